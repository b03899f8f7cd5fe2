//! URL template of a webhook, with placeholders for the task.

use std::fmt;

use percent_encoding::{AsciiSet, NON_ALPHANUMERIC, utf8_percent_encode};
use url::{Host, Url};

/// Characters to percent-encode: all but the unreserved ones (RFC 3986, section 2.3).
const ENCODED: AsciiSet = NON_ALPHANUMERIC
    .remove(b'-')
    .remove(b'.')
    .remove(b'_')
    .remove(b'~');

/// An `http` or `https` URL with placeholders `{class}`, `{method}` and `{id}` in its path and query.
///
/// No task can change scheme, host and port. Only these are shown, since the rest of a webhook URL is often
/// a secret.
#[derive(Clone, PartialEq, Eq)]
pub struct UrlTemplate {
    text: String,
    /// The URL with its placeholders.
    url: Url,
}

impl UrlTemplate {
    const PLACEHOLDERS: [&str; 3] = ["{class}", "{method}", "{id}"];

    /// Parses a template.
    ///
    /// # Errors
    /// A message with the expected format.
    pub fn parse(text: &str) -> Result<Self, String> {
        // Characters that URL parsers repair or read as `/` are refused.
        if text.contains(|c: char| c.is_whitespace() || c.is_control() || c == '\\') {
            return Err("expected a URL without white space and `\\`".to_owned());
        }
        let rest = text
            .strip_prefix("https://")
            .or_else(|| text.strip_prefix("http://"))
            .ok_or("expected https:// or http://, then a host")?;
        let authority = rest.split(['/', '?', '#']).next().unwrap_or_default();
        if authority.is_empty() {
            return Err("expected a host behind `://`".to_owned());
        }
        if authority.contains('@') {
            return Err("expected no user and password; use `headers` for credentials".to_owned());
        }
        if authority.contains(['{', '}']) {
            return Err(
                "expected placeholders in path and query only, found one in the host".to_owned(),
            );
        }
        if text.contains('#') {
            return Err("expected no `#`: what follows it is never sent".to_owned());
        }
        let mut bare = text.to_owned();
        for name in Self::PLACEHOLDERS {
            bare = bare.replace(name, "");
        }
        if bare.contains(['{', '}']) {
            return Err(
                "expected no other placeholders than {class}, {method} and {id}".to_owned(),
            );
        }
        let url = Url::parse(&bare).map_err(|error| format!("is not a URL: {error}"))?;
        Ok(Self {
            text: text.to_owned(),
            url,
        })
    }

    /// The URL for a task.
    ///
    /// # Errors
    /// None in practice: filled-in values are encoded.
    pub fn fill(&self, class: &str, method: &str, id: &str) -> Result<Url, url::ParseError> {
        if !self.has_placeholders() {
            return Ok(self.url.clone());
        }
        let mut text = self.text.clone();
        for (name, value) in Self::PLACEHOLDERS.into_iter().zip([class, method, id]) {
            text = text.replace(name, &utf8_percent_encode(value, &ENCODED).to_string());
        }
        Url::parse(&text)
    }

    /// Whether a task is needed to fill it in.
    pub fn has_placeholders(&self) -> bool {
        self.text.contains('{')
    }

    /// Whether requests are sent without TLS.
    pub fn is_plain(&self) -> bool {
        self.url.scheme() == "http"
    }

    /// Its host.
    pub fn host(&self) -> Option<Host<&str>> {
        self.url.host()
    }
}

impl fmt::Display for UrlTemplate {
    /// Scheme, host and port.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.url.origin().ascii_serialization())
    }
}

impl fmt::Debug for UrlTemplate {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{self}/[redacted]")
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn a_task_fills_path_and_query() {
        let url =
            UrlTemplate::parse("https://shop.example:8443/h/{class}/{method}?id={id}&x=1").unwrap();
        let filled = url
            .fill("Shop\\Order", "close:now", "7-1700000000000")
            .unwrap();
        assert_eq!(
            filled.as_str(),
            "https://shop.example:8443/h/Shop%5COrder/close%3Anow?id=7-1700000000000&x=1"
        );
        assert_eq!(url.to_string(), "https://shop.example:8443");
        assert_eq!(format!("{url:?}"), "https://shop.example:8443/[redacted]");
    }

    #[test]
    fn what_is_no_such_url_says_what_was_expected() {
        let refused = [
            ("ftp://shop.example/", "expected https:// or http://"),
            ("https:shop.example", "expected https:// or http://"),
            ("HTTPS://shop.example", "expected https:// or http://"),
            ("https://", "expected a host"),
            ("https:///x", "expected a host"),
            ("https://:443/", "is not a URL"),
            (
                "https://user:secret@shop.example/",
                "expected no user and password",
            ),
            ("https://{class}.example/", "in path and query only"),
            ("https://shop.example:{id}/", "in path and query only"),
            ("https://shop.example{class}/", "in path and query only"),
            ("https://shop.example\\{class}", "without white space"),
            ("https://shop.example/ x", "without white space"),
            ("https://shop.example/{key}", "no other placeholders"),
            ("https://shop.example/{class", "no other placeholders"),
            ("https://shop.example/#{class}", "expected no `#`"),
            ("https://shop.example:99999/", "is not a URL"),
        ];
        for (text, why) in refused {
            let error = UrlTemplate::parse(text).unwrap_err();
            assert!(
                error.contains(why) && !error.contains("secret"),
                "{text}: {error}"
            );
        }
    }

    proptest! {
        #[test]
        fn no_task_changes_where_the_url_leads(value in "\\PC{0,40}", path in prop::sample::select(vec!["/{class}", "?{class}", "/..{class}/{method}", "/a/{id}?x={method}"])) {
            let url = UrlTemplate::parse(&format!("http://shop.example:81{path}")).unwrap();
            let filled = url.fill(&value, &value, &value).unwrap();
            prop_assert_eq!(filled.host_str(), Some("shop.example"));
            prop_assert_eq!(filled.port(), Some(81));
            prop_assert_eq!(filled.fragment(), None);
            prop_assert_eq!(filled.scheme(), "http");
            prop_assert_eq!(filled.username(), "");
        }
    }
}

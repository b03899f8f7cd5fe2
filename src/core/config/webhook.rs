//! Target `webhook`: URL, signing keys, headers and limits of HTTP requests.

use std::fmt;
use std::time::Duration;

use http::header::HeaderMap;
use rustls::pki_types::CertificateDer;
use rustls::pki_types::pem::PemObject;

use super::egress_policy::EgressPolicy;
use super::headers;
use super::reader::{Problems, Reader, read_file};
use super::rules::{at_least, checked, or};
use super::signing_key::SigningKey;
use super::url_template::UrlTemplate;

/// Default time limit for connecting, including name resolution and TLS.
const CONNECT_TIMEOUT: Duration = Duration::from_secs(5);

/// Default limit of response bytes that are read.
const RESPONSE_BYTES_MAX: u64 = 64 * 1024;

/// Upper bound of `max_response`.
const RESPONSE_BYTES_LIMIT: u64 = 16 * 1024 * 1024;

/// `webhook = { .. }`
#[derive(Clone, PartialEq, Eq)]
pub struct WebhookConfig {
    /// Destination.
    pub url: UrlTemplate,
    /// Signing keys, newest first; each adds a signature. Empty: unsigned.
    pub keys: Vec<SigningKey>,
    /// Headers of every request; their values are never shown.
    pub headers: HeaderMap,
    /// Time limit for connecting.
    pub connect_timeout: Duration,
    /// Maximum number of response bytes that are read.
    pub response_bytes_max: u64,
    /// Whether the response of a successful run is kept as the result of the task.
    pub keep_result: bool,
    /// Addresses that may be connected to.
    pub egress: EgressPolicy,
    /// Certificate authorities that are trusted in addition to those of the host.
    pub authorities: Vec<CertificateDer<'static>>,
}

impl WebhookConfig {
    /// Describes how requests are signed.
    pub(super) fn signed(&self) -> String {
        match self.keys.len() {
            0 => "unsigned".to_owned(),
            1 => "signed".to_owned(),
            keys => format!("signed with {keys} keys"),
        }
    }
}

impl fmt::Debug for WebhookConfig {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self {
            url,
            keys,
            headers,
            connect_timeout,
            response_bytes_max,
            keep_result,
            egress,
            authorities,
        } = self;
        f.debug_struct("WebhookConfig")
            .field("url", url)
            .field("keys", keys)
            .field("headers", &headers.keys())
            .field("connect_timeout", connect_timeout)
            .field("response_bytes_max", response_bytes_max)
            .field("keep_result", keep_result)
            .field("egress", egress)
            .field("authorities", &authorities.len())
            .finish()
    }
}

pub(super) fn webhook(mut section: Reader, p: &mut Problems) -> Option<WebhookConfig> {
    let url = match section.text_or_file("url", p) {
        Some(None) => {
            p.add(&section.at("url"), "is missing");
            None
        }
        url => url.flatten(),
    };
    let url = url.and_then(|url| section.parsed("url", UrlTemplate::parse(&url), p));
    let keys = signing_keys(&mut section, p);
    let headers = headers::headers(&mut section, p);
    let connect_timeout = or(CONNECT_TIMEOUT, at_least(Duration::from_millis(1)));
    let connect_timeout = section.by("connect_timeout", p, connect_timeout);
    let fits = |bytes: &u64| *bytes <= RESPONSE_BYTES_LIMIT;
    let response_bytes_max = or(RESPONSE_BYTES_MAX, checked(fits, "0 to 16777216 bytes"));
    let response_bytes_max = section.by("max_response", p, response_bytes_max);
    let egress = egress(&mut section, p);
    if let (Some(url), Some(egress)) = (&url, &egress)
        && let Some(kind) = url.host().and_then(|host| egress.refuses_host(&host))
    {
        p.add(
            &section.at("url"),
            format!("leads to {kind} address, expected a public one, or an entry in `allow` that names it"),
        );
    }
    let authorities = authorities(&mut section, p);
    section.done(p);
    Some(WebhookConfig {
        url: url?,
        keys: keys?,
        headers: headers?,
        connect_timeout: connect_timeout?,
        response_bytes_max: response_bytes_max?,
        keep_result: false,
        egress: egress?,
        authorities: authorities?,
    })
}

fn signing_keys(section: &mut Reader, p: &mut Problems) -> Option<Vec<SigningKey>> {
    let mut keys = Some(Vec::new());
    let texts = section.texts("secret", p);
    let files = section.texts("secret_file", p);
    let direct = texts.map(|texts| texts.into_iter().map(Ok).collect());
    let filed = files.map(|files| files.iter().map(|path| read_file(path)).collect());
    for (name, texts) in [("secret", direct), ("secret_file", filed)] {
        let texts: Option<Vec<Result<String, String>>> = texts;
        if texts.is_none() {
            keys = None;
        }
        let many = texts.as_ref().is_some_and(|texts| texts.len() > 1);
        for (index, text) in texts.into_iter().flatten().enumerate() {
            let path = match many {
                true => format!("{name}[{index}]"),
                false => name.to_owned(),
            };
            let key = section.parsed(&path, text.and_then(|text| SigningKey::parse(&text)), p);
            keys = keys.zip(key).map(|(mut keys, key)| {
                keys.push(key);
                keys
            });
        }
    }
    keys
}

fn egress(section: &mut Reader, p: &mut Problems) -> Option<EgressPolicy> {
    let entries = section.texts("allow", p)?;
    match EgressPolicy::parse(&entries) {
        Ok(egress) => Some(egress),
        Err(problems) => {
            for problem in problems {
                p.add(&section.at("allow"), problem);
            }
            None
        }
    }
}

fn authorities(section: &mut Reader, p: &mut Problems) -> Option<Vec<CertificateDer<'static>>> {
    let files = section.texts("ca_file", p)?;
    let read = files.iter().map(|path| {
        let pem = read_file(path)?;
        let found: Result<Vec<_>, _> = CertificateDer::pem_slice_iter(pem.as_bytes()).collect();
        match found {
            Ok(found) if !found.is_empty() => Ok(found),
            _ => Err(format!("expected certificates in PEM in `{path}`")),
        }
    });
    let read: Result<Vec<_>, String> = read.collect();
    section
        .parsed("ca_file", read, p)
        .map(|found| found.concat())
}

#[cfg(test)]
mod tests {
    use std::io::Write;

    use super::*;
    use crate::config::{Config, TargetConfig};

    const NEW: &str = "whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw";
    const OLD: &str = "whsec_C2FVsBQIhrscChlQIMV+b5sSYspob7oD";

    fn read(webhook: &str) -> Result<WebhookConfig, Vec<String>> {
        let text = format!("[[routes]]\nmatch = '.'\nwebhook = {{ {webhook} }}");
        match Config::from_toml(&text) {
            Ok(mut config) => match config.routes.remove(0).target {
                TargetConfig::Webhook(webhook) => Ok(*webhook),
                other => panic!("{other:?}"),
            },
            Err(error) => Err(error.to_string().lines().map(str::to_owned).collect()),
        }
    }

    #[test]
    fn a_webhook_needs_no_more_than_a_url() {
        let webhook = read("url = 'https://shop.example/hooks'").unwrap();
        assert_eq!(webhook.connect_timeout, Duration::from_secs(5));
        assert_eq!(webhook.response_bytes_max, 65_536);
        assert!(webhook.keys.is_empty() && webhook.headers.is_empty());
    }

    #[test]
    fn keys_come_from_texts_and_files_in_their_order_and_are_never_shown() {
        let mut file = tempfile::NamedTempFile::new().unwrap();
        writeln!(file, "{OLD}").unwrap();
        let text = format!(
            "url = 'https://shop.example/T0/token', secret = ['{NEW}'], secret_file = '{0}', headers = {{ authorization = 'Bearer s3cret', x-key = {{ file = '{0}' }} }}",
            file.path().display()
        );
        let webhook = read(&text).unwrap();
        let keys = [NEW, OLD].map(|key| SigningKey::parse(key).unwrap());
        assert_eq!(webhook.keys, keys);
        assert_eq!(webhook.headers["authorization"], "Bearer s3cret");
        assert_eq!(webhook.headers["x-key"], OLD);
        let shown = format!("{webhook:?}");
        for secret in ["MfKQ", "C2FV", "s3cret", "token"] {
            assert!(!shown.contains(secret), "{shown}");
        }
    }

    #[test]
    fn all_that_is_wrong_with_a_webhook_is_said_at_once() {
        let problems = read(
            "url = 'http://u:p4ss@h/', secret = ['whsec_c2hvcnQ=', 5], secret_file = '/no/such', connect_timeout = '0s', max_response = -1, allow = ['x y'], ca_file = '/no/such', redirects = 3, \
             headers = { webhook-id = 'x', Content-Type = 'y', 'a b' = 'z', ok = 5, x = \"a\\nb\" }",
        )
        .unwrap_err();
        let wanted = [
            "`routes[0].webhook.url`: expected no user and password; use `headers` for credentials",
            "`routes[0].webhook.secret`: expected a text, or an array of texts",
            "`routes[0].webhook.secret_file`: cannot read `/no/such`: No such file or directory (os error 2)",
            "`routes[0].webhook.headers.Content-Type`: is set by lapsed or by HTTP itself, expected another header",
            "`routes[0].webhook.headers.a b`: is not the name of a header",
            "`routes[0].webhook.headers.ok`: expected a text, or { file = \"path\" }",
            "`routes[0].webhook.headers.webhook-id`: is set by lapsed or by HTTP itself, expected another header",
            "`routes[0].webhook.headers.x`: expected visible characters of ASCII",
            "`routes[0].webhook.connect_timeout`: expected at least 1 ms, found \"0s\"",
            "`routes[0].webhook.allow`: `x y` is none of an address (`127.0.0.1`), a network (`10.0.0.0/8`), the name of a host (`hooks.internal`)",
            "`routes[0].webhook.ca_file`: cannot read `/no/such`: No such file or directory (os error 2)",
            "`routes[0].webhook.redirects`: is not the name of a setting",
        ];
        for line in wanted {
            assert!(
                problems.iter().any(|problem| problem == line),
                "{line}\n{problems:#?}"
            );
        }
        assert_eq!(
            problems.len(),
            wanted.len() + 1,
            "and one about `max_response`: {problems:#?}"
        );
        let bad = read(&format!(
            "url = 'https://h/', secret = ['{NEW}', 'whsec_c2hvcnQ=']"
        ));
        assert_eq!(
            bad.unwrap_err(),
            [
                "`routes[0].webhook.secret[1]`: expected `whsec_` and base64 of 24 to 64 bytes, found 5 bytes"
            ]
        );
    }

    #[test]
    fn an_address_that_is_not_public_is_refused_where_it_is_written_down() {
        let refused = [
            ("http://127.0.0.1:8080/", "a loopback"),
            ("http://127.1/", "a loopback"),
            ("http://2130706433/", "a loopback"),
            ("http://0x7f.0.0.1/", "a loopback"),
            ("http://[::1]/", "a loopback"),
            ("http://[::ffff:10.0.0.1]/", "a private"),
            ("http://169.254.169.254/latest", "a link-local"),
            ("http://localhost:3000/", "a loopback"),
            ("http://0/", "an unspecified"),
        ];
        for (url, kind) in refused {
            let problems = read(&format!("url = '{url}'")).unwrap_err();
            let wanted = format!(
                "`routes[0].webhook.url`: leads to {kind} address, expected a public one, or an entry in `allow` that names it"
            );
            assert_eq!(problems, [wanted], "{url}");
        }
        for (url, allow) in [
            ("http://127.0.0.1:8080/", "127.0.0.0/8"),
            ("http://localhost:3000/", "localhost"),
            ("http://[::1]/", "::1"),
        ] {
            read(&format!("url = '{url}', allow = ['{allow}']")).unwrap();
        }
    }
}

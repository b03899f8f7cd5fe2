//! The response of a webhook, and its meaning.

use std::time::Duration;

use http::StatusCode;
use http::header::{DATE, HeaderMap, HeaderName, RETRY_AFTER};

use crate::config::UrlTemplate;
use crate::handler::HandlerError;
use crate::task::{UnixMs, on_one_line};

/// Maximum number of characters of a body in the error of the task.
const EXCERPT_CHARS: usize = 200;

/// Minimum delay, whatever the server requests.
const RETRY_AFTER_MIN: Duration = Duration::from_secs(1);

/// Maximum delay, whatever the server requests.
const RETRY_AFTER_MAX: Duration = Duration::from_secs(24 * 3600);

/// The value `no` makes a failure permanent.
const LAPSED_RETRY: HeaderName = HeaderName::from_static("lapsed-retry");

/// A response.
#[derive(Debug)]
pub(super) struct Reply {
    pub(super) status: StatusCode,
    pub(super) headers: HeaderMap,
    /// The beginning of the body.
    pub(super) body: Vec<u8>,
}

impl Reply {
    /// Returns the result of the run. `now` is the wall clock of this machine, for responses without a date.
    pub(super) fn verdict(&self, url: &UrlTemplate, now: UnixMs) -> Result<(), HandlerError> {
        if self.status.is_success() {
            return Ok(());
        }
        let message = self.message(url);
        if self.status == StatusCode::GONE || self.forbids_retry() {
            return Err(HandlerError::permanent(message));
        }
        match self.retry_after(now) {
            Some(delay) => Err(HandlerError::retry_after(message, delay)),
            None => Err(HandlerError::new(message)),
        }
    }

    fn message(&self, url: &UrlTemplate) -> String {
        let mut text = format!("webhook {url} answered {}", self.status);
        if self.status.is_redirection() {
            text.push_str(" (redirects are not followed: let `url` name the place itself)");
        }
        let body = String::from_utf8_lossy(&self.body);
        let excerpt = body.trim();
        if !excerpt.is_empty() {
            text.push_str(": ");
            let excerpt: String = excerpt.chars().take(EXCERPT_CHARS).collect();
            text.push_str(&on_one_line(&excerpt));
        }
        text
    }

    fn forbids_retry(&self) -> bool {
        let value = self.headers.get(LAPSED_RETRY);
        value.is_some_and(|value| value.as_bytes().trim_ascii().eq_ignore_ascii_case(b"no"))
    }

    /// Parses `retry-after`: seconds, or a date, which is compared with the date of the response if it has one.
    fn retry_after(&self, now: UnixMs) -> Option<Duration> {
        const WAIT: [StatusCode; 2] = [
            StatusCode::TOO_MANY_REQUESTS,
            StatusCode::SERVICE_UNAVAILABLE,
        ];
        if !WAIT.contains(&self.status) {
            return None;
        }
        let text = self.headers.get(RETRY_AFTER)?.to_str().ok()?.trim();
        let delay = match text.bytes().all(|c| c.is_ascii_digit()) && !text.is_empty() {
            true => text.parse().map_or(RETRY_AFTER_MAX, Duration::from_secs),
            false => {
                let date = |text| httpdate::parse_http_date(text).ok();
                let server = self
                    .headers
                    .get(DATE)
                    .and_then(|text| date(text.to_str().ok()?));
                let now = u64::try_from(now.0).unwrap_or(0);
                let now = std::time::UNIX_EPOCH + Duration::from_millis(now);
                date(text)?
                    .duration_since(server.unwrap_or(now))
                    .unwrap_or_default()
            }
        };
        Some(delay.clamp(RETRY_AFTER_MIN, RETRY_AFTER_MAX))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const NOW: UnixMs = UnixMs(784_111_777_000); // Sun, 06 Nov 1994 08:49:37 GMT

    fn verdict(
        status: u16,
        headers: &[(&'static str, &str)],
        body: &str,
    ) -> Result<(), HandlerError> {
        let headers = headers
            .iter()
            .map(|(name, value)| (HeaderName::from_static(name), value.parse().unwrap()));
        let reply = Reply {
            status: StatusCode::from_u16(status).unwrap(),
            headers: headers.collect(),
            body: body.into(),
        };
        reply.verdict(
            &UrlTemplate::parse("https://shop.example/hooks/token").unwrap(),
            NOW,
        )
    }

    #[test]
    fn a_status_says_what_came_of_it() {
        for status in [200, 201, 202, 204, 299] {
            verdict(status, &[("lapsed-retry", "no")], "no").unwrap();
        }
        for status in [300, 301, 302, 304, 400, 401, 404, 422, 429, 500, 503, 599] {
            let error = verdict(status, &[], "").unwrap_err();
            let again = HandlerError::new(error.to_string());
            assert_eq!(error, again, "{status}");
            let never = verdict(status, &[("lapsed-retry", " No ")], "").unwrap_err();
            assert_eq!(
                never,
                HandlerError::permanent(never.to_string()),
                "{status}"
            );
        }
        let gone = verdict(410, &[], "").unwrap_err();
        assert_eq!(
            gone,
            HandlerError::permanent("webhook https://shop.example answered 410 Gone")
        );
        let moved = verdict(302, &[], "").unwrap_err().to_string();
        assert!(
            moved.contains("302 Found (redirects are not followed"),
            "{moved}"
        );
    }

    #[test]
    fn a_busy_server_says_when_to_come_again_within_bounds() {
        let date = "Sun, 06 Nov 1994 08:50:37 GMT";
        let told = [
            (429, vec![("retry-after", "120")], Some(120)),
            (503, vec![("retry-after", " 7 ")], Some(7)),
            (503, vec![("retry-after", "0")], Some(1)),
            (
                503,
                vec![("retry-after", "99999999999999999999999")],
                Some(86_400),
            ),
            (503, vec![("retry-after", date)], Some(60)),
            (
                503,
                vec![
                    ("retry-after", date),
                    ("date", "Sun, 06 Nov 1994 08:50:27 GMT"),
                ],
                Some(10),
            ),
            (
                503,
                vec![("retry-after", "Sun, 06 Nov 1994 08:00:00 GMT")],
                Some(1),
            ),
            (503, vec![("retry-after", "-3")], None),
            (503, vec![("retry-after", "soon")], None),
            (503, vec![("retry-after", "")], None),
            (500, vec![("retry-after", "120")], None),
        ];
        for (status, headers, seconds) in told {
            let error = verdict(status, &headers, "").unwrap_err();
            let wanted = match seconds {
                Some(seconds) => {
                    HandlerError::retry_after(error.to_string(), Duration::from_secs(seconds))
                }
                None => HandlerError::new(error.to_string()),
            };
            assert_eq!(error, wanted, "{headers:?}");
        }
    }

    #[test]
    fn an_error_has_the_first_200_characters_and_does_no_harm() {
        let body = format!(
            " {{\"error\": 'no'}}\n\u{1b}[2J\u{202e}\u{0}é{}",
            "x".repeat(400)
        );
        let text = verdict(500, &[], &body).unwrap_err().to_string();
        let (_, said) = text.split_once("500 Internal Server Error: ").unwrap();
        assert!(
            said.starts_with(r#"{"error": 'no'}\n\u{1b}[2J\u{202e}\0é"#),
            "{said}"
        );
        assert_eq!(said.matches('x').count(), 200 - 23, "{said}");
        assert!(!text.contains("token"));
    }
}

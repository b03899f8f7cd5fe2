//! What a webhook answers: the status on the first line, then headers up to an empty line, then the body. And the same bytes as
//! the output of a program.

use std::time::Duration;

use http::{HeaderMap, HeaderName, HeaderValue};
use lapsed::handler::fuzzing::{read_output, read_reply};
use lapsed_core::task::is_invisible;

/// Longest error: the URL, the status, what is said of redirects, and 200 characters of the body, each escaped.
const ERROR_BYTES_MAX: usize = 400 + 200 * 10;

pub fn run(input: &[u8]) {
    let text = String::from_utf8_lossy(input);
    let (head, body) = text.split_once("\n\n").unwrap_or((&text, ""));
    let mut lines = head.lines();
    let status = lines.next().and_then(|line| line.trim().parse().ok());
    let status = status
        .filter(|status| (100..1000).contains(status))
        .unwrap_or(500);
    let mut headers = HeaderMap::new();
    for (name, value) in lines.filter_map(|line| line.split_once(':')) {
        let name = HeaderName::from_bytes(name.trim().as_bytes());
        let value = HeaderValue::from_bytes(value.as_bytes());
        if let (Ok(name), Ok(value)) = (name, value) {
            headers.append(name, value);
        }
    }
    check_reply(status, headers, body);
    check_output(input);
}

fn check_reply(status: u16, headers: HeaderMap, body: &str) {
    let may_delay = status == 429 || status == 503;
    let read = read_reply(status, headers, body.as_bytes());
    assert_eq!(read.is_ok(), (200..300).contains(&status), "{status}");
    let Err((error, delay)) = read else {
        return;
    };
    assert!(error.contains(&status.to_string()), "{error}");
    assert!(!error.contains(is_invisible), "{error:?}");
    assert!(error.len() <= ERROR_BYTES_MAX, "{} bytes", error.len());
    assert!(
        !error.contains("token"),
        "the path may be a secret: {error}"
    );
    if let Some(delay) = delay {
        assert!(may_delay);
        assert!((Duration::from_secs(1)..=Duration::from_secs(86_400)).contains(&delay));
    }
}

/// The output of a program is read the same however it arrives, and is not kept.
fn check_output(input: &[u8]) {
    let whole = read_output(&[input]);
    let pieces: Vec<&[u8]> = input.chunks(7).collect();
    assert_eq!(read_output(&pieces), whole);
    assert!(whole.kept <= 2 * 1024, "{} bytes", whole.kept);
    if let Some(Err(problem)) = &whole.advice {
        assert!(
            problem.contains("expected") && problem.len() < 1_024,
            "{problem}"
        );
        assert!(!problem.contains(is_invisible), "{problem:?}");
    }
}

//! What holds for the text of every error.

use lapsed_core::task::is_invisible;

/// Longest text of an error, in bytes, whatever the input is.
const BYTES_MAX: usize = 2_048;

/// Checks an error: one line, of a bounded length, that contains one of `says`.
pub fn check(error: &impl ToString, says: &[&str]) {
    let text = error.to_string();
    assert!(
        says.iter().any(|part| text.contains(part)),
        "an error says what was expected: {text}"
    );
    assert!(
        !text.contains(is_invisible),
        "an error is one line: {text:?}"
    );
    check_length(&text);
}

/// Checks that a long input has a short error.
pub fn check_length(text: &str) {
    assert!(
        text.len() <= BYTES_MAX,
        "an error has {} bytes, expected at most {BYTES_MAX}: {text:.200}",
        text.len()
    );
}

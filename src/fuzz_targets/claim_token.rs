//! Claim tokens of workers: the text of a token; or `signed`, the part before the dot and the signed part, each on a line.

use lapsed::engine::fuzzing::{open_token, sign_token};

const KEY: [u8; 32] = [7; 32];

pub fn run(input: &[u8]) {
    let Ok(text) = std::str::from_utf8(input) else {
        return;
    };
    // Nobody who does not know the key makes a token.
    assert!(open_token(text, &KEY).is_none(), "{text}");
    let mut lines = text.splitn(3, '\n');
    let (Some("signed"), Some(fence), Some(packed)) = (lines.next(), lines.next(), lines.next())
    else {
        return;
    };
    let signed = sign_token(fence, packed.as_bytes(), &KEY);
    let Some(token) = open_token(&signed, &KEY) else {
        return;
    };
    assert!(open_token(&signed, &[8; 32]).is_none());
    assert!(signed.len() <= 4_096 && token.to_string().len() <= 2 * 4_096);
    // Each character counts.
    let at = text.len() % signed.len();
    let other = if signed.as_bytes()[at] == b'A' {
        "B"
    } else {
        "A"
    };
    if signed.is_char_boundary(at) && signed.is_char_boundary(at + 1) {
        let mut forged = signed.clone();
        forged.replace_range(at..=at, other);
        assert!(open_token(&forged, &KEY).is_none(), "{forged}");
    }
}

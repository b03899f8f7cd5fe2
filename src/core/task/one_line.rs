//! Texts of other programs, as people see them.

use std::borrow::Cow;

/// Escapes what would move a cursor, begin a new line or change the direction of a text, so that a text of another program
/// stays one visible part of its line. The result of escaping an escaped text is the same text.
pub fn on_one_line(text: &str) -> Cow<'_, str> {
    if !text.contains(is_invisible) {
        return Cow::Borrowed(text);
    }
    let mut shown = String::with_capacity(text.len() + 16);
    for c in text.chars() {
        match c {
            '\0' => shown.push_str("\\0"),
            _ if is_invisible(c) => shown.extend(c.escape_default()),
            _ => shown.push(c),
        }
    }
    Cow::Owned(shown)
}

/// True for control characters, separators of lines and paragraphs, and characters that change the direction of a text.
pub fn is_invisible(c: char) -> bool {
    c.is_control()
        || matches!(c, '\u{61c}' | '\u{200e}' | '\u{200f}' | '\u{2028}'..='\u{202e}' | '\u{2066}'..='\u{2069}')
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_others_wrote_stays_on_its_line() {
        for (text, shown) in [
            ("a\nb\u{1b}[2J é", "a\\nb\\u{1b}[2J é"),
            ("\r\n2026-11-23 ERROR", "\\r\\n2026-11-23 ERROR"),
            ("\u{9b}2J\u{7f}\0", "\\u{9b}2J\\u{7f}\\0"),
            ("gnp.\u{202e}exe", "gnp.\\u{202e}exe"),
            ("a\u{2028}b\u{2066}c", "a\\u{2028}b\\u{2066}c"),
            (
                "'\"\\ 你好 👩‍💻 \u{e01}\u{e34}",
                "'\"\\ 你好 👩‍💻 \u{e01}\u{e34}",
            ),
        ] {
            assert_eq!(on_one_line(text), shown);
            assert_eq!(on_one_line(shown), shown);
        }
    }
}

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

/// Longest part of a text that an error quotes, in characters.
const QUOTED_CHARS_MAX: usize = 120;

/// The beginning of a text, as an error quotes it: escaped, and with `…` where it is cut. Whoever writes a long text gets a
/// short error.
pub fn quoted(text: &str) -> String {
    let (begin, is_cut) = match text.char_indices().nth(QUOTED_CHARS_MAX) {
        Some((end, _)) => (&text[..end], true),
        None => (text, false),
    };
    let escaped = begin.escape_debug();
    match is_cut {
        true => format!("{escaped}…"),
        false => escaped.to_string(),
    }
}

/// Longest beginning and end of a parser's message that are shown, in characters.
const MESSAGE_BEGIN_CHARS_MAX: usize = 300;
const MESSAGE_END_CHARS_MAX: usize = 600;

/// The message of a parser, which quotes what it has read: on one line, and without the middle if it is long. Its end says what
/// was expected.
pub fn parser_message(message: &str) -> String {
    let place = |from: usize| message.char_indices().nth(from).map(|(at, _)| at);
    let begin = place(MESSAGE_BEGIN_CHARS_MAX);
    let mut last = message.char_indices().rev();
    let end = last.nth(MESSAGE_END_CHARS_MAX - 1).map(|(at, _)| at);
    match (begin, end) {
        (Some(begin), Some(end)) if begin < end => {
            let (begin, end) = (&message[..begin], &message[end..]);
            format!("{}…{}", on_one_line(begin), on_one_line(end))
        }
        _ => on_one_line(message).into_owned(),
    }
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
    fn an_error_quotes_the_beginning_of_a_text() {
        assert_eq!(quoted("a\n\"b\u{202e}"), "a\\n\\\"b\\u{202e}");
        assert_eq!(quoted(&"é".repeat(120)), "é".repeat(120));
        assert_eq!(quoted(&"é".repeat(121)), format!("{}…", "é".repeat(120)));
    }

    #[test]
    fn a_message_of_a_parser_keeps_its_beginning_and_its_end() {
        let message = |middle: &str| format!("unknown field `{middle}`, expected one of `a`, `b`");
        assert_eq!(parser_message(&message("\n")), message("\\n"));
        assert_eq!(
            parser_message(&message(&"é".repeat(858))),
            message(&"é".repeat(858))
        );
        let cut = parser_message(&message(&"é".repeat(9_000)));
        assert_eq!(cut.chars().count(), 901);
        assert!(
            cut.starts_with("unknown field `é") && cut.ends_with("é`, expected one of `a`, `b`")
        );
    }

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

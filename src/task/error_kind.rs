//! Kinds of errors: errors are of one kind if they are equal but for their numbers.

/// Longest kind, in characters. Errors that are alike up to there are of one kind.
const CHARS_MAX: usize = 200;

/// Ends a kind that was cut.
const CUT: char = '…';

/// The kind of an error: its first line, with `#` for each number and each long hexadecimal text, and `…` where it is cut.
pub fn error_kind(error: &str) -> String {
    let mut kind = String::new();
    for part in parts(error) {
        match part {
            Part::Text(text) => kind.push_str(text),
            Part::Number => kind.push('#'),
        }
    }
    if let Some((end, _)) = kind.char_indices().nth(CHARS_MAX) {
        kind.truncate(end);
        kind.push(CUT);
    }
    kind
}

/// A regular expression that matches the errors of a kind, in the syntax that MySQL and MariaDB share.
#[cfg(any(feature = "mysql", test))]
pub(crate) fn error_kind_pattern(kind: &str) -> String {
    let (text, end) = match kind.strip_suffix(CUT) {
        Some(beginning) => (beginning, ""),
        None => (kind, "(\\r?\\n|$)"),
    };
    let mut pattern = "^\\s*".to_owned();
    for c in text.chars() {
        match c {
            '#' => pattern += "(#|[0-9A-Fa-f][0-9A-Fa-f-]{7,}|-[0-9A-Fa-f-]{7,}|[0-9]+)",
            '\\' | '.' | '+' | '*' | '?' | '(' | ')' | '|' | '[' | ']' | '{' | '}' | '^' | '$' => {
                pattern.push('\\');
                pattern.push(c);
            }
            _ => pattern.push(c),
        }
    }
    pattern + end
}

enum Part<'a> {
    Text(&'a str),
    Number,
}

/// Divides the first line into texts and numbers. A word is a number if it has a digit and otherwise only hexadecimal digits
/// and dashes; of other words, each run of digits is one.
fn parts(error: &str) -> Vec<Part<'_>> {
    let line = error.trim_start().lines().next().unwrap_or_default();
    let mut parts = Vec::new();
    let (mut at, mut text_from) = (0, 0);
    while at < line.len() {
        let rest = &line[at..];
        let word = rest
            .find(|c: char| !c.is_ascii_alphanumeric() && c != '-')
            .unwrap_or(rest.len());
        let digits = rest
            .find(|c: char| !c.is_ascii_digit())
            .unwrap_or(rest.len());
        let starts_word = at == 0 || !line.as_bytes()[at - 1].is_ascii_alphanumeric();
        let is_id = starts_word && word >= 8 && is_hexadecimal(&rest[..word]);
        let number = if is_id { word } else { digits };
        if number == 0 {
            at += rest.chars().next().map_or(1, char::len_utf8);
            continue;
        }
        if text_from < at {
            parts.push(Part::Text(&line[text_from..at]));
        }
        parts.push(Part::Number);
        at += number;
        text_from = at;
    }
    if text_from < line.len() {
        parts.push(Part::Text(&line[text_from..]));
    }
    parts
}

fn is_hexadecimal(word: &str) -> bool {
    word.bytes()
        .all(|byte| byte.is_ascii_hexdigit() || byte == b'-')
        && word.bytes().any(|byte| byte.is_ascii_digit())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn errors_that_differ_in_numbers_only_are_of_one_kind() {
        for (one, other, kind) in [
            (
                "order 17 is unknown (code 404)",
                "order 9 is unknown (code 500)\nstack",
                "order # is unknown (code #)",
            ),
            (
                "no user 3f2b8c1e-7d5a-4b1c-9a77-0f6f3f2b8c1e here",
                "no user 00000000-0000-0000-0000-000000000000 here",
                "no user # here",
            ),
            ("`a.b` [x]: {1}", "  `a.b` [x]: {22}", "`a.b` [x]: {#}"),
            ("错误 5：超时", "错误 77：超时", "错误 #：超时"),
            ("42", "7", "#"),
            ("", "  \n", ""),
        ] {
            assert_eq!(
                (error_kind(one), error_kind(other)),
                (kind.into(), kind.into())
            );
        }
        let words = ["deadbeef is food", "cafebabe is food"].map(error_kind);
        assert_ne!(words[0], words[1]);
        let long = error_kind(&"x".repeat(999));
        assert_eq!(
            (long.chars().count(), long.ends_with(CUT)),
            (CHARS_MAX + 1, true)
        );
        assert_eq!(error_kind(&"x".repeat(CHARS_MAX)), "x".repeat(CHARS_MAX));
    }

    #[test]
    fn the_pattern_of_a_kind_has_its_texts_as_they_are() {
        assert_eq!(
            error_kind_pattern("a.b (#)"),
            "^\\s*a\\.b \\((#|[0-9A-Fa-f][0-9A-Fa-f-]{7,}|-[0-9A-Fa-f-]{7,}|[0-9]+)\\)(\\r?\\n|$)"
        );
        assert_eq!(error_kind_pattern("ab…"), "^\\s*ab");
    }
}

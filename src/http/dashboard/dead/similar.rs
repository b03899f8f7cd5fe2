//! Errors that are alike: equal but for their numbers.

/// Longest part of an error that decides, in characters.
const CHARS_MAX: usize = 200;

/// The first line of an error, with `#` for each number and each long hexadecimal text.
pub fn kind_of(error: &str) -> String {
    let mut kind = String::new();
    for part in parts(error) {
        match part {
            Part::Text(text) => kind.push_str(text),
            Part::Number => kind.push('#'),
        }
    }
    kind
}

/// The longest text in the first line of an error that has no number: what all errors alike contain.
pub fn common_part(error: &str) -> &str {
    let texts = parts(error).into_iter().filter_map(|part| match part {
        Part::Text(text) => Some(text.trim()),
        Part::Number => None,
    });
    texts.max_by_key(|text| text.len()).unwrap_or_default()
}

enum Part<'a> {
    Text(&'a str),
    Number,
}

/// Divides the first line into texts and numbers. A word is a number if it has a digit and otherwise only hexadecimal digits
/// and dashes; of other words, each run of digits is one.
fn parts(error: &str) -> Vec<Part<'_>> {
    let line = error.trim_start().lines().next().unwrap_or_default();
    let end = line
        .char_indices()
        .nth(CHARS_MAX)
        .map_or(line.len(), |(at, _)| at);
    let line = &line[..end];
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
        for (one, other, kind, common) in [
            (
                "order 17 is unknown (code 404)",
                "order 9 is unknown (code 500)\nstack",
                "order # is unknown (code #)",
                "is unknown (code",
            ),
            (
                "no user 3f2b8c1e-7d5a-4b1c-9a77-0f6f3f2b8c1e here",
                "no user 00000000-0000-0000-0000-000000000000 here",
                "no user # here",
                "no user",
            ),
            (
                "exit status: 1",
                "exit status: 2",
                "exit status: #",
                "exit status:",
            ),
            ("错误 5：超时", "错误 77：超时", "错误 #：超时", "：超时"),
            ("42", "7", "#", ""),
            ("", "  \n", "", ""),
        ] {
            assert_eq!((kind_of(one), kind_of(other)), (kind.into(), kind.into()));
            assert_eq!(common_part(one), common);
            assert!(one.contains(common) && other.contains(common));
        }
        assert_ne!(
            kind_of("deadbeef is food"),
            kind_of("cafebabe is food"),
            "words"
        );
        assert_eq!(kind_of(&"x".repeat(999)).len(), CHARS_MAX);
    }
}

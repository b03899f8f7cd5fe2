//! Kinds of errors: errors are of one kind if they are equal but for their numbers.

/// Longest kind, in characters. Errors that are alike up to there are of one kind.
const CHARS_MAX: usize = 200;

/// Ends a kind that was cut.
const CUT: char = '…';

/// What begins an error before the message of the program, as a regular expression. See [`own_prefix`].
const OWN_PREFIXES: &str = "(permanent failure: |gave up after [0-9#]+ of [0-9#]+ attempts: |\
     gave up after [0-9#]+ attempts: the next would have begun after its deadline of [0-9#a-z. ]+: |\
     `[^`\r\n]*` ended with exit status: [0-9#]+: )*";

/// Matches no text, in each syntax of regular expressions.
const NOTHING: &str = "a^";

/// The kind of an error: its first line, with `#` for each number and each long hexadecimal text, and `…` where it is cut.
/// What the engine puts before the message of a program, such as the number of attempts, does not count.
pub fn error_kind(error: &str) -> String {
    let mut kind = String::new();
    for part in parts(message(error)) {
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
pub fn error_kind_pattern(kind: &str) -> String {
    if message(kind) != kind {
        // No error is of this kind.
        return NOTHING.to_owned();
    }
    let (text, end) = match kind.strip_suffix(CUT) {
        Some(beginning) => (beginning, ""),
        None => (kind, "(\\r?\\n|$)"),
    };
    // Without a message, what the engine puts before one is the kind.
    let prefixes = if text.is_empty() { "" } else { OWN_PREFIXES };
    let mut pattern = format!("^\\s*{prefixes}");
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

/// The first line of an error without what the engine puts before the message of a program.
fn message(error: &str) -> &str {
    let mut message = error.trim_start().lines().next().unwrap_or_default();
    while let Some(rest) = own_prefix(message).filter(|rest| !rest.trim().is_empty()) {
        message = rest;
    }
    message
}

/// What follows the first thing that the engine or a target has put before a message; `None` if there is none.
fn own_prefix(text: &str) -> Option<&str> {
    /// What follows a number; in a kind it is `#`.
    fn number(text: &str) -> Option<&str> {
        let rest = text.trim_start_matches(|c: char| c.is_ascii_digit() || c == '#');
        (rest.len() < text.len()).then_some(rest)
    }
    if let Some(rest) = text.strip_prefix("permanent failure: ") {
        return Some(rest);
    }
    if let Some(rest) = text.strip_prefix("gave up after ") {
        let rest = number(rest)?;
        if let Some(rest) = rest.strip_prefix(" of ") {
            return number(rest)?.strip_prefix(" attempts: ");
        }
        let rest =
            rest.strip_prefix(" attempts: the next would have begun after its deadline of ")?;
        let is_length = |c: char| c.is_ascii_digit() || c.is_ascii_lowercase() || "#. ".contains(c);
        let end = rest.find(|c| !is_length(c)).filter(|end| *end > 0)?;
        return rest[end..].strip_prefix(": ");
    }
    let (_, rest) = text.strip_prefix('`')?.split_once('`')?;
    number(rest.strip_prefix(" ended with exit status: ")?)?.strip_prefix(": ")
}

enum Part<'a> {
    Text(&'a str),
    Number,
}

/// Divides the first line into texts and numbers. A word is a number if it has a digit and otherwise only hexadecimal digits
/// and dashes; of other words, each run of digits is one.
fn parts(error: &str) -> Vec<Part<'_>> {
    let line = error.lines().next().unwrap_or_default();
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
        let pattern = error_kind_pattern("a.b (#)");
        let rest = pattern.strip_prefix("^\\s*").unwrap();
        assert_eq!(
            rest.strip_prefix(OWN_PREFIXES).unwrap(),
            "a\\.b \\((#|[0-9A-Fa-f][0-9A-Fa-f-]{7,}|-[0-9A-Fa-f-]{7,}|[0-9]+)\\)(\\r?\\n|$)"
        );
        assert!(error_kind_pattern("ab…").ends_with(")*ab"));
    }

    /// What the engine and targets put before messages.
    const PREFIXES: [&str; 8] = [
        "",
        "permanent failure: ",
        "gave up after 16 of 16 attempts: ",
        "gave up after 3 attempts: the next would have begun after its deadline of 1m 40s: ",
        "gave up after 3 attempts: the next would have begun after its deadline of 1 min 40 s: ",
        "gave up after 3 attempts: the next would have begun after its deadline of 1.25 s: ",
        "`sh` ended with exit status: 3: ",
        "gave up after 5 of 5 attempts: `a b` ended with exit status: 1: ",
    ];

    #[test]
    fn what_the_engine_puts_before_a_message_does_not_decide_the_kind() {
        for prefix in PREFIXES {
            let of = |message: &str| error_kind(&format!("{prefix}{message}"));
            assert_eq!(
                of("connect ECONNREFUSED 10.0.0.7"),
                "connect ECONNREFUSED #.#.#.#"
            );
            assert_ne!(of("connect ECONNREFUSED"), of("数据库错误"));
        }
        // Without a message, it is all that there is.
        let bare = "gave up after 3 of 3 attempts: `sh` ended with exit status: 3";
        assert_eq!(error_kind(bare), "`sh` ended with exit status: #");
        assert_eq!(error_kind("permanent failure: "), "permanent failure: ");
        assert_eq!(
            error_kind("`sh` ended badly: 3: x"),
            "`sh` ended badly: #: x"
        );
    }

    #[test]
    fn the_pattern_of_a_kind_matches_the_errors_of_this_kind_and_no_others() {
        let messages = ["no user 7", "no user 7 here", "x", "permanent failure:", ""];
        let errors = PREFIXES
            .iter()
            .flat_map(|prefix| messages.map(|message| format!("  {prefix}{message}")));
        let errors: Vec<String> = errors.collect();
        for one in &errors {
            let kind = error_kind(one);
            let pattern = regex::Regex::new(&error_kind_pattern(&kind)).unwrap();
            for other in &errors {
                let is_same = error_kind(other) == kind;
                assert_eq!(pattern.is_match(other), is_same, "{kind:?}: {other:?}");
            }
        }
        for kind in ["permanent failure: x", "`sh` ended with exit status: #: x"] {
            let never = regex::Regex::new(&error_kind_pattern(kind)).unwrap();
            assert!(!never.is_match(&kind.replace('#', "3")), "{kind}");
        }
    }

    #[test]
    fn only_what_the_engine_says_with_its_numbers_is_left_out() {
        for (error, kind) in [
            ("gave up after 3 of 3 attempts: x", "x"),
            (
                "gave up after  of 3 attempts: x",
                "gave up after  of # attempts: x",
            ),
            (
                "gave up after 2 attempts: the next would have begun after its deadline of 5m: x",
                "x",
            ),
            (
                "gave up after 2 attempts: the next would have begun after its deadline of : x",
                "gave up after # attempts: the next would have begun after its deadline of : x",
            ),
            ("error 5f", "error #f"),
            ("error 5f5f5f5f", "error #"),
        ] {
            assert_eq!(error_kind(error), kind, "{error}");
        }
    }
}

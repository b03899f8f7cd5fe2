//! Glob patterns, as Redis matches them: `*`, `?`, `[a-z]`, `[^a]`, `\x`.

/// True if the whole text matches.
pub(crate) fn matches(pattern: &[u8], text: &[u8]) -> bool {
    let Some((first, rest)) = pattern.split_first() else {
        return text.is_empty();
    };
    match first {
        b'*' => (0..=text.len()).any(|skipped| matches(rest, &text[skipped..])),
        b'?' => !text.is_empty() && matches(rest, &text[1..]),
        b'[' => {
            let Some((byte, after)) = text.split_first() else {
                return false;
            };
            let (is_in, rest) = class(rest, *byte);
            is_in && matches(rest, after)
        }
        b'\\' if !rest.is_empty() => {
            text.first() == Some(&rest[0]) && matches(&rest[1..], &text[1..])
        }
        byte => text.first() == Some(byte) && matches(rest, &text[1..]),
    }
}

/// Whether the byte is in the class that begins here, and what follows the class.
fn class(pattern: &[u8], byte: u8) -> (bool, &[u8]) {
    let (negated, mut rest) = match pattern.strip_prefix(b"^") {
        Some(rest) => (true, rest),
        None => (false, pattern),
    };
    let mut found = false;
    loop {
        match rest {
            [] => return (found != negated, rest),
            [b']', after @ ..] => return (found != negated, after),
            [b'\\', one, after @ ..] => {
                found |= *one == byte;
                rest = after;
            }
            [low, b'-', high, after @ ..] => {
                let (low, high) = (low.min(high), low.max(high));
                found |= (*low..=*high).contains(&byte);
                rest = after;
            }
            [one, after @ ..] => {
                found |= *one == byte;
                rest = after;
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::matches;

    #[test]
    fn patterns_match_as_in_redis() {
        for (pattern, text, is_match) in [
            ("*@*", "A@b", true),
            ("h[a-c]llo", "hbllo", true),
            ("h[^a]llo", "hallo", false),
            ("a\\*", "a*", true),
            ("a\\*", "ab", false),
            ("?", "", false),
            ("", "", true),
        ] {
            assert_eq!(
                matches(pattern.as_bytes(), text.as_bytes()),
                is_match,
                "{pattern} {text}"
            );
        }
    }
}

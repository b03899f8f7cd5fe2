//! The words of an inline command.

/// Splits a line into words. Within double quotes there are escapes, within single quotes only `\'`. Returns false if a
/// quote is not closed, or not followed by a space.
pub fn split(line: &[u8], words: &mut Vec<u8>, ranges: &mut Vec<(usize, usize)>) -> bool {
    let mut rest = line.iter().copied().peekable();
    loop {
        while rest
            .next_if(|byte| byte.is_ascii_whitespace() || *byte == 0x0b)
            .is_some()
        {}
        if rest.peek().is_none() {
            return true;
        }
        let begin = words.len();
        while let Some(byte) = rest.next_if(|byte| !byte.is_ascii_whitespace() && *byte != 0x0b) {
            match byte {
                0 => break,
                b'"' | b'\'' => {
                    if !quoted(byte, &mut rest, words) {
                        return false;
                    }
                    if rest.peek().is_some_and(|next| !next.is_ascii_whitespace()) {
                        return false;
                    }
                    break;
                }
                byte => words.push(byte),
            }
        }
        ranges.push((begin, words.len()));
    }
}

/// Reads the inside of quotes and the closing one. Returns false if there is none.
fn quoted(
    quote: u8,
    rest: &mut std::iter::Peekable<impl Iterator<Item = u8> + Clone>,
    words: &mut Vec<u8>,
) -> bool {
    while let Some(byte) = rest.next() {
        match byte {
            b'\\' if quote == b'\'' && rest.peek() == Some(&b'\'') => {
                words.extend(rest.next());
            }
            b'\\' if quote == b'"' => match rest.next() {
                None => return false,
                Some(b'x') => {
                    let mut ahead = rest.clone();
                    let mut digit = || ahead.next().and_then(|byte| char::from(byte).to_digit(16));
                    match (digit(), digit()) {
                        (Some(high), Some(low)) => {
                            words.push((high * 16 + low) as u8);
                            rest.next();
                            rest.next();
                        }
                        _ => words.push(b'x'),
                    }
                }
                Some(b'n') => words.push(b'\n'),
                Some(b'r') => words.push(b'\r'),
                Some(b't') => words.push(b'\t'),
                Some(b'b') => words.push(0x08),
                Some(b'a') => words.push(0x07),
                Some(byte) => words.push(byte),
            },
            byte if byte == quote => return true,
            byte => words.push(byte),
        }
    }
    false
}

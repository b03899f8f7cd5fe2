//! Requests in RESP, and words on a line.

/// The words of a command: its name first.
pub type Words = Vec<Vec<u8>>;

/// A request that is none: the connection ends.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Malformed(pub(crate) &'static str);

/// Reads the request at the front of `input`. Returns its length, too; `None` if more bytes are needed.
pub(crate) fn parse(input: &[u8]) -> Result<Option<(Words, usize)>, Malformed> {
    let Some((first, mut at)) = line(input, 0) else {
        return Ok(None);
    };
    let Some(count) = first.strip_prefix(b"*") else {
        let words = first.split(u8::is_ascii_whitespace);
        let words = words.filter(|word| !word.is_empty()).map(<[u8]>::to_vec);
        return Ok(Some((words.collect(), at)));
    };
    let count = number(count).ok_or(Malformed("invalid multibulk length"))?;
    let mut words = Vec::new();
    for _ in 0..count {
        let Some((head, start)) = line(input, at) else {
            return Ok(None);
        };
        let length = head.strip_prefix(b"$").and_then(number);
        let length = length.and_then(|length| usize::try_from(length).ok());
        let length = length.ok_or(Malformed("invalid bulk length"))?;
        let Some(word) = input.get(start..start + length) else {
            return Ok(None);
        };
        if input.len() < start + length + 2 {
            return Ok(None);
        }
        words.push(word.to_vec());
        at = start + length + 2;
    }
    Ok(Some((words, at)))
}

/// The line that begins at `from`, and where the next one does.
fn line(input: &[u8], from: usize) -> Option<(&[u8], usize)> {
    let rest = input.get(from..)?;
    let end = rest.iter().position(|byte| *byte == b'\n')?;
    let text = rest[..end].strip_suffix(b"\r").unwrap_or(&rest[..end]);
    Some((text, from + end + 1))
}

fn number(text: &[u8]) -> Option<i64> {
    std::str::from_utf8(text).ok()?.parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn requests_are_taken_one_after_the_other_and_only_when_complete() {
        let input = b"*2\r\n$3\r\nGET\r\n$2\r\n\r\n\r\nPING  x\r\n*1\r\n$4\r\nPING\r\n";
        let (words, get) = parse(input).unwrap().unwrap();
        assert_eq!(words, [&b"GET"[..], b"\r\n"]);
        let (words, inline) = parse(&input[get..]).unwrap().unwrap();
        assert_eq!(words, [&b"PING"[..], b"x"]);
        let rest = &input[get + inline..];
        assert_eq!(parse(&rest[..rest.len() - 1]), Ok(None));
        assert_eq!(parse(rest), Ok(Some((vec![b"PING".to_vec()], rest.len()))));
    }
}

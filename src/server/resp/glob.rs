//! Patterns of keys, as in `SCAN MATCH`.

use super::reply::Reply;

/// Longest pattern, in bytes. A key has 255.
pub const PATTERN_BYTES_MAX: usize = 1024;

/// A pattern: `*`, `?`, `[abc]`, `[^a]`, `[a-z]`, and `\` before a character that stands for itself.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Glob(Vec<Part>);

#[derive(Debug, Clone, PartialEq, Eq)]
enum Part {
    Any,
    One,
    Byte(u8),
    /// A bit for each byte that fits.
    Set(Box<[u64; 4]>),
}

impl Glob {
    /// Parses a pattern. Every text of at most [`PATTERN_BYTES_MAX`] bytes is one.
    ///
    /// # Errors
    /// It is longer.
    pub fn new(pattern: &[u8]) -> Result<Self, Reply> {
        let bytes = pattern.len();
        if bytes > PATTERN_BYTES_MAX {
            return Err(Reply::err(format_args!(
                "pattern has {bytes} bytes, expected at most {PATTERN_BYTES_MAX}"
            )));
        }
        let mut parts = Vec::new();
        let mut rest = pattern.iter().copied().peekable();
        while let Some(byte) = rest.next() {
            parts.push(match byte {
                b'*' if parts.last() == Some(&Part::Any) => continue,
                b'*' => Part::Any,
                b'?' => Part::One,
                b'\\' => Part::Byte(rest.next().unwrap_or(b'\\')),
                b'[' => {
                    let negated = rest.next_if_eq(&b'^').is_some();
                    let mut set = [0; 4];
                    while let Some(byte) = rest.next() {
                        let from = match byte {
                            b']' => break,
                            b'\\' => rest.next().unwrap_or(b'\\'),
                            byte => byte,
                        };
                        let mut ahead = rest.clone();
                        let to = match (ahead.next(), ahead.next()) {
                            (Some(b'-'), Some(to)) => {
                                rest = ahead;
                                to
                            }
                            _ => from,
                        };
                        for byte in from.min(to)..=from.max(to) {
                            set[usize::from(byte >> 6)] |= 1 << (byte & 63);
                        }
                    }
                    if negated {
                        set = set.map(|bits: u64| !bits);
                    }
                    Part::Set(Box::new(set))
                }
                byte => Part::Byte(byte),
            });
        }
        Ok(Self(parts))
    }

    /// True if the whole text matches. Takes time in proportion to the product of both lengths at most.
    pub fn matches(&self, text: &[u8]) -> bool {
        let (mut part, mut at) = (0, 0);
        // Where to go on after the latest `*`, if what follows does not match.
        let mut back: Option<(usize, usize)> = None;
        while at < text.len() {
            match self.0.get(part) {
                Some(Part::Any) => {
                    back = Some((part + 1, at));
                    part += 1;
                }
                Some(found) if found.fits(text[at]) => {
                    part += 1;
                    at += 1;
                }
                _ => match &mut back {
                    None => return false,
                    Some((after, from)) => {
                        *from += 1;
                        (part, at) = (*after, *from);
                    }
                },
            }
        }
        self.0[part..].iter().all(|rest| *rest == Part::Any)
    }
}

impl Part {
    fn fits(&self, byte: u8) -> bool {
        match self {
            Self::Any | Self::One => true,
            Self::Byte(own) => *own == byte,
            Self::Set(set) => set[usize::from(byte >> 6)] >> (byte & 63) & 1 == 1,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn patterns_match_as_in_redis() {
        for (pattern, text, fits) in [
            ("*", "", true),
            ("Order@*", "Order@close@1", true),
            ("Order@*", "Mail@send", false),
            ("*@close@?", "Order@close@1", true),
            ("*@close@?", "Order@close@12", false),
            ("h[ae]llo", "hello", true),
            ("h[^e]llo", "hello", false),
            ("h[a-c]llo", "hbllo", true),
            ("h[c-a]llo", "hbllo", true),
            ("a\\*b", "a*b", true),
            ("a\\*b", "axb", false),
            ("**a*", "bab", true),
            ("[", "x", false),
            ("[\\]-\\^]", "]", true),
            ("[^a-y]", "z", true),
        ] {
            assert_eq!(
                Glob::new(pattern.as_bytes())
                    .unwrap()
                    .matches(text.as_bytes()),
                fits,
                "{pattern} {text}"
            );
        }
    }

    #[test]
    fn a_hostile_pattern_ends() {
        let pattern = "*a".repeat(100) + "b";
        assert!(
            !Glob::new(pattern.as_bytes())
                .unwrap()
                .matches("a".repeat(255).as_bytes())
        );
    }

    #[test]
    fn a_long_set_costs_no_more_than_a_byte() {
        let long = format!("*[{}]", "b".repeat(PATTERN_BYTES_MAX - 3));
        let short = "*[b]";
        let parts = |pattern: &str| Glob::new(pattern.as_bytes()).unwrap();
        assert_eq!(parts(&long), parts(short));
        let longer = "b".repeat(PATTERN_BYTES_MAX + 1);
        assert!(Glob::new(longer.as_bytes()).is_err());
    }
}

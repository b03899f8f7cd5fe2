//! Patterns of keys, as in `SCAN MATCH`.

/// A pattern: `*`, `?`, `[abc]`, `[^a]`, `[a-z]`, and `\` before a character that stands for itself.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Glob(Vec<Part>);

#[derive(Debug, Clone, PartialEq, Eq)]
enum Part {
    Any,
    One,
    Byte(u8),
    Set {
        ranges: Vec<(u8, u8)>,
        negated: bool,
    },
}

impl Glob {
    /// Parses a pattern. Every text is one.
    pub fn new(pattern: &[u8]) -> Self {
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
                    let mut ranges = Vec::new();
                    while let Some(byte) = rest.next() {
                        let from = match byte {
                            b']' => break,
                            b'\\' => rest.next().unwrap_or(b'\\'),
                            byte => byte,
                        };
                        let mut ahead = rest.clone();
                        match (ahead.next(), ahead.next()) {
                            (Some(b'-'), Some(to)) => {
                                ranges.push((from.min(to), from.max(to)));
                                rest = ahead;
                            }
                            _ => ranges.push((from, from)),
                        }
                    }
                    Part::Set { ranges, negated }
                }
                byte => Part::Byte(byte),
            });
        }
        Self(parts)
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
            Self::Set { ranges, negated } => {
                let within = |(from, to): &(u8, u8)| (*from..=*to).contains(&byte);
                ranges.iter().any(within) != *negated
            }
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
        ] {
            assert_eq!(
                Glob::new(pattern.as_bytes()).matches(text.as_bytes()),
                fits,
                "{pattern} {text}"
            );
        }
    }

    #[test]
    fn a_hostile_pattern_ends() {
        let pattern = "*a".repeat(100) + "b";
        assert!(!Glob::new(pattern.as_bytes()).matches("a".repeat(255).as_bytes()));
    }
}

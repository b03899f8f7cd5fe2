//! Names in Redis events: a task key, a sentinel, or a key of another program.

use super::{KEY_BYTES_MAX, TaskKey};

/// Prefix of a sentinel's name. A decimal number from 1 follows.
pub const SENTINEL_PREFIX: &str = "#SILCK`";

/// The kind of a name.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum KeyName {
    /// A task's key.
    Task(TaskKey),
    /// The sentinel with this number, counted from 1.
    Sentinel(u16),
    /// A key of another program: counted, never logged, never sent to the database.
    Foreign(Foreign),
}

impl KeyName {
    /// Classifies a name. Takes bytes, because names in Redis need not be text. Does not allocate for a name longer
    /// than a key may be.
    pub fn parse(name: &[u8]) -> Self {
        if name.len() > KEY_BYTES_MAX {
            return Self::Foreign(Foreign::TooLong);
        }
        let Ok(text) = std::str::from_utf8(name) else {
            return Self::Foreign(Foreign::NotUtf8);
        };
        if let Some(number) = text.strip_prefix(SENTINEL_PREFIX) {
            return match sentinel_number(number) {
                Some(number) => Self::Sentinel(number),
                None => Self::Foreign(Foreign::NotInGrammar),
            };
        }
        match TaskKey::parse(text) {
            Ok(key) => Self::Task(key),
            Err(_) => Self::Foreign(Foreign::NotInGrammar),
        }
    }
}

/// The reason why a name is not a task key.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Foreign {
    /// Longer than [`KEY_BYTES_MAX`].
    TooLong,
    /// Not text.
    NotUtf8,
    /// Text, but not a key.
    NotInGrammar,
}

/// Parses `7` but not `07`, `+7`, `7.0` or `0`, because names of sentinels are exact.
fn sentinel_number(digits: &str) -> Option<u16> {
    let exact = digits.bytes().all(|b| b.is_ascii_digit()) && !digits.starts_with('0');
    exact.then(|| digits.parse().ok()).flatten()
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn any_bytes_are_classified_as_a_name(bytes in prop::collection::vec(any::<u8>(), 0..400)) {
            let _ = KeyName::parse(&bytes);
        }
    }

    #[test]
    fn sentinels_are_matched_exactly() {
        assert_eq!(KeyName::parse(b"#SILCK`10"), KeyName::Sentinel(10));
        for not_one in [
            "#SILCK`",
            "#SILCK`0",
            "#SILCK`01",
            "#SILCK`+1",
            "#SILCK`1 ",
            "#SILCK`99999",
            "#SILCK`1@x",
        ] {
            assert_eq!(
                KeyName::parse(not_one.as_bytes()),
                KeyName::Foreign(Foreign::NotInGrammar),
                "{not_one}"
            );
        }
    }

    #[test]
    fn binary_and_huge_names_are_foreign() {
        assert_eq!(
            KeyName::parse(b"C@m@\xff"),
            KeyName::Foreign(Foreign::NotUtf8)
        );
        assert_eq!(
            KeyName::parse(&vec![b'x'; 1_000_000]),
            KeyName::Foreign(Foreign::TooLong)
        );
    }
}

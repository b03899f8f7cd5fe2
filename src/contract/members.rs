//! Readers of JSON members whose errors say what was expected.

use std::fmt;
use std::marker::PhantomData;

use serde::de::{Deserialize, Deserializer, Error, IgnoredAny, SeqAccess, Unexpected, Visitor};
use serde_json::value::RawValue;

/// A JSON array of which no more than `N` elements are kept: each takes more memory than its text.
pub struct AtMost<T, const N: usize> {
    /// The first elements.
    pub first: Vec<T>,
    /// The number of all.
    pub count: usize,
}

impl<'de, T: Deserialize<'de>, const N: usize> Deserialize<'de> for AtMost<T, N> {
    fn deserialize<D: Deserializer<'de>>(given: D) -> Result<Self, D::Error> {
        struct Elements<T, const N: usize>(PhantomData<T>);
        impl<'de, T: Deserialize<'de>, const N: usize> Visitor<'de> for Elements<T, N> {
            type Value = AtMost<T, N>;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("an array")
            }

            fn visit_seq<A: SeqAccess<'de>>(self, mut given: A) -> Result<Self::Value, A::Error> {
                let mut first = Vec::new();
                while first.len() < N {
                    match given.next_element()? {
                        Some(element) => first.push(element),
                        None => break,
                    }
                }
                let mut count = first.len();
                while count >= N && given.next_element::<IgnoredAny>()?.is_some() {
                    count += 1;
                }
                Ok(AtMost { first, count })
            }
        }
        given.deserialize_seq(Elements(PhantomData))
    }
}

/// Maximum number of arguments: a key has 255 bytes at most, which this many do not fit.
const ARGUMENTS_MAX: usize = 256;

/// Reads the arguments of a key.
pub(super) fn arguments<'de, D: Deserializer<'de>>(given: D) -> Result<Vec<String>, D::Error> {
    let arguments: AtMost<String, ARGUMENTS_MAX> = AtMost::deserialize(given)?;
    match arguments.count {
        ..=ARGUMENTS_MAX => Ok(arguments.first),
        count => Err(D::Error::custom(format_args!(
            "`args` has {count} elements, expected at most {ARGUMENTS_MAX}"
        ))),
    }
}

/// Reads any JSON as it is written: a number may have more digits than a Rust type.
pub(super) fn json<'de, D: Deserializer<'de>>(given: D) -> Result<Option<String>, D::Error> {
    let json: Option<Box<RawValue>> = Option::deserialize(given)?;
    Ok(json.map(|json| Box::<str>::from(json).into_string()))
}

/// Reads a duration as text. What is no text, such as a bare number, is refused with what was expected.
pub fn duration_text<'de, D: Deserializer<'de>>(given: D) -> Result<Option<String>, D::Error> {
    struct Text;
    impl Visitor<'_> for Text {
        type Value = Option<String>;

        fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
            f.write_str("a duration with its unit, such as \"30m\" or \"1500ms\"")
        }

        fn visit_str<E>(self, text: &str) -> Result<Self::Value, E> {
            Ok(Some(text.to_owned()))
        }

        fn visit_unit<E>(self) -> Result<Self::Value, E> {
            Ok(None)
        }
    }
    given.deserialize_any(Text)
}

/// A type of whole numbers, with the largest of them.
pub(super) trait Count: TryFrom<u64> {
    const MAX: u64;
}

impl Count for u16 {
    const MAX: u64 = u16::MAX as u64;
}

impl Count for u32 {
    const MAX: u64 = u32::MAX as u64;
}

/// Reads a whole number.
pub(super) fn count<'de, D: Deserializer<'de>, N: Count>(given: D) -> Result<Option<N>, D::Error> {
    struct Number<N>(PhantomData<N>);
    impl<N: Count> Visitor<'_> for Number<N> {
        type Value = Option<N>;

        fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
            write!(f, "a whole number up to {}", N::MAX)
        }

        fn visit_u64<E: Error>(self, number: u64) -> Result<Self::Value, E> {
            let fits = N::try_from(number).map(Some);
            fits.map_err(|_| E::invalid_value(Unexpected::Unsigned(number), &self))
        }

        fn visit_unit<E>(self) -> Result<Self::Value, E> {
            Ok(None)
        }
    }
    given.deserialize_any(Number(PhantomData))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_duration_without_its_unit_is_told_what_is_expected() {
        let read = |json| duration_text(&mut serde_json::Deserializer::from_str(json));
        assert_eq!(read("\"30m\"").unwrap().as_deref(), Some("30m"));
        assert_eq!(read("null").unwrap(), None);
        let number = read("60").unwrap_err().to_string();
        assert!(
            number.contains("integer `60`, expected a duration with its unit"),
            "{number}"
        );
    }
}

//! A section from one declaration: its struct, how each key is read, and which keys take effect only after a restart. What
//! an unknown key may have meant comes from the keys that are read.

use std::fmt::Display;
use std::net::SocketAddr;
use std::ops::RangeInclusive;
use std::time::Duration;

use serde::de::DeserializeOwned;

use super::reader::{Problems, Reader};

/// Declares a section. Each field has the name of its key, and a rule by which that is read: a function of the section, the
/// key and the problems. `live` marks a field that takes effect without a restart.
///
/// Fields are read in their order. A rule may use the fields above its own, which are `None` if they are invalid, and the
/// parameters in parentheses behind the name of the section.
macro_rules! section {
    (
        $(#[$meta:meta])*
        pub struct $name:ident $(($($parameter:ident: $of:ty),+))? {
            $($(#[$doc:meta])* pub $field:ident: $type:ty = $rule:expr $(; $live:ident)?,)+
        }
    ) => {
        $(#[$meta])*
        pub struct $name {
            $($(#[$doc])* pub $field: $type,)+
        }

        impl $name {
            /// Reads all keys before it fails, so that all problems are reported.
            pub(super) fn read(
                mut section: $crate::config::reader::Reader,
                $($($parameter: $of,)+)?
                p: &mut $crate::config::reader::Problems,
            ) -> Option<Self> {
                $(let $field: Option<$type> = section.by(stringify!($field), p, $rule);)+
                section.done(p);
                Some(Self { $($field: $field?,)+ })
            }

            #[allow(dead_code, reason = "a section compares the sections in it as values")]
            /// True if the change from these settings to `newer` takes effect only after a restart.
            pub(super) fn needs_restart(&self, newer: &Self) -> bool {
                false $(|| section!(@changed self, newer, $field $($live)?))+
            }
        }
    };
    (@changed $older:expr, $newer:expr, $field:ident live) => {{
        let (_, _) = ($older, $newer);
        false
    }};
    (@changed $older:expr, $newer:expr, $field:ident) => { $older.$field != $newer.$field };
}

pub(super) use section;

/// Any value of the type.
pub(super) fn any<T: DeserializeOwned>(
    section: &mut Reader,
    key: &str,
    p: &mut Problems,
) -> Option<T> {
    section.take(key, p)
}

/// A number in this range.
pub(super) fn within<T: DeserializeOwned + PartialOrd + Display>(
    range: RangeInclusive<T>,
) -> impl FnOnce(&mut Reader, &str, &mut Problems) -> Option<T> {
    let expected = format!("{} to {}", range.start(), range.end());
    checked(move |number| range.contains(number), expected)
}

/// A value that fits a condition, and the description of that.
pub(super) fn checked<T: DeserializeOwned>(
    holds: impl FnOnce(&T) -> bool,
    expected: impl Into<String>,
) -> impl FnOnce(&mut Reader, &str, &mut Problems) -> Option<T> {
    let expected = expected.into();
    move |section, key, p| section.checked(key, p, holds, &expected)
}

/// An address and port to listen on; `None` for an empty text.
pub(super) fn address(
    example: &str,
) -> impl FnOnce(&mut Reader, &str, &mut Problems) -> Option<Option<SocketAddr>> {
    move |section, key, p| section.address(key, example, p)
}

/// A duration.
pub(super) fn at_least(
    least: Duration,
) -> impl FnOnce(&mut Reader, &str, &mut Problems) -> Option<Duration> {
    move |section, key, p| section.duration(key, p, least)
}

/// A duration, or `"none"`.
pub(super) fn at_least_or_none(
    least: Duration,
) -> impl FnOnce(&mut Reader, &str, &mut Problems) -> Option<Option<Duration>> {
    move |section, key, p| section.duration_or_none(key, p, least)
}

/// What `rule` reads, or this value if there is no such key.
pub(super) fn or<T>(
    default: T,
    rule: impl FnOnce(&mut Reader, &str, &mut Problems) -> Option<T>,
) -> impl FnOnce(&mut Reader, &str, &mut Problems) -> Option<T> {
    move |section, key, p| {
        let given = section.given(key, p, rule)?;
        Some(given.unwrap_or(default))
    }
}

/// This value: the field is no key of the section.
pub(super) fn no_key<T>(value: T) -> impl FnOnce(&mut Reader, &str, &mut Problems) -> Option<T> {
    move |_, _, _| Some(value)
}

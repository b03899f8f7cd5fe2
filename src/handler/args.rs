//! Typed arguments, parsed from the texts of a key.

use std::fmt::Display;
use std::str::FromStr;

use super::HandlerError;

/// An argument that can be parsed from its text. Implemented for every [`FromStr`].
pub trait FromArg: Sized {
    /// Parses the text.
    ///
    /// # Errors
    /// A text that says what is wrong.
    fn from_arg(text: &str) -> Result<Self, String>;
}

impl<T> FromArg for T
where
    T: FromStr,
    T::Err: Display,
{
    fn from_arg(text: &str) -> Result<Self, String> {
        text.parse().map_err(|error: T::Err| error.to_string())
    }
}

/// All arguments of a task: a tuple of up to eight, or a `Vec` of any number.
pub trait FromArgs: Sized + Send + 'static {
    /// Parses the arguments.
    ///
    /// # Errors
    /// Permanent: a wrong number of arguments, or one that cannot be parsed. Another attempt would have the same key.
    fn from_args(args: &[&str]) -> Result<Self, HandlerError>;
}

impl<T: FromArg + Send + 'static> FromArgs for Vec<T> {
    fn from_args(args: &[&str]) -> Result<Self, HandlerError> {
        args.iter()
            .enumerate()
            .map(|(index, text)| read(index, text))
            .collect()
    }
}

fn read<T: FromArg>(index: usize, text: &str) -> Result<T, HandlerError> {
    T::from_arg(text).map_err(|error| {
        let expected = std::any::type_name::<T>()
            .rsplit("::")
            .next()
            .unwrap_or_default();
        let found = text.escape_debug();
        HandlerError::permanent(format!(
            "argument {}: expected `{expected}`, found `{found}`: {error}",
            index + 1
        ))
    })
}

fn check_count(expected: usize, found: usize) -> Result<(), HandlerError> {
    if expected == found {
        return Ok(());
    }
    let plural = if expected == 1 { "" } else { "s" };
    Err(HandlerError::permanent(format!(
        "expected {expected} argument{plural}, found {found}"
    )))
}

impl FromArgs for () {
    fn from_args(args: &[&str]) -> Result<Self, HandlerError> {
        check_count(0, args.len())
    }
}

macro_rules! tuples {
    ($($count:literal: $($type:ident $index:tt),+;)+) => {$(
        impl<$($type: FromArg + Send + 'static),+> FromArgs for ($($type,)+) {
            fn from_args(args: &[&str]) -> Result<Self, HandlerError> {
                check_count($count, args.len())?;
                Ok(($(read::<$type>($index, args[$index])?,)+))
            }
        }
    )+};
}

tuples! {
    1: A 0;
    2: A 0, B 1;
    3: A 0, B 1, C 2;
    4: A 0, B 1, C 2, D 3;
    5: A 0, B 1, C 2, D 3, E 4;
    6: A 0, B 1, C 2, D 3, E 4, F 5;
    7: A 0, B 1, C 2, D 3, E 4, F 5, G 6;
    8: A 0, B 1, C 2, D 3, E 4, F 5, G 6, H 7;
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn arguments_are_read_into_their_types() {
        assert_eq!(
            <(u64, String, bool)>::from_args(&["42", "x y", "true"]).unwrap(),
            (42, "x y".to_owned(), true)
        );
        assert_eq!(<Vec<i8>>::from_args(&["1", "-2"]).unwrap(), [1, -2]);
        <()>::from_args(&[]).unwrap();
    }

    #[test]
    fn what_does_not_fit_says_what_was_expected() {
        let error = <(u64,)>::from_args(&["abc"]).unwrap_err();
        assert_eq!(
            error.to_string(),
            "argument 1: expected `u64`, found `abc`: invalid digit found in string"
        );
        let error = <(u64, u64)>::from_args(&["1"]).unwrap_err();
        assert_eq!(error.to_string(), "expected 2 arguments, found 1");
        let error = <()>::from_args(&[""]).unwrap_err();
        assert_eq!(error.to_string(), "expected 0 arguments, found 1");
    }
}

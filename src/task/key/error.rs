//! Why a text is not a task key.

use std::fmt;

use super::KEY_BYTES_MAX;

/// Why a text is not a task key.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum KeyError {
    /// More than [`KEY_BYTES_MAX`] bytes.
    #[error("key has {bytes} bytes, expected at most {KEY_BYTES_MAX}")]
    TooLong {
        /// How long it is.
        bytes: usize,
    },
    /// There is no `@`.
    #[error("key has no `@`, expected `Class@method` and then any `@argument`")]
    NoMethod,
    /// The class or the method is not a name.
    #[error("{part} `{}` does not fit, expected a letter or `_`, then letters, digits or `_.:\\-`", .text.escape_debug())]
    Name {
        /// `class` or `method`.
        part: Part,
        /// What was found.
        text: String,
    },
    /// An argument cannot stand in a key.
    #[error("argument {} {problem}", .index + 1)]
    Arg {
        /// Which one, counted from 0.
        index: usize,
        /// What is wrong with it.
        problem: ArgProblem,
    },
}

/// A named part of a key.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Part {
    /// Before the first `@`.
    Class,
    /// After it.
    Method,
}

impl fmt::Display for Part {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Class => "class",
            Self::Method => "method",
        })
    }
}

/// What is wrong with an argument.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ArgProblem {
    /// `@` separates arguments.
    At,
    /// It would break logs and headers.
    Control,
    /// SQL ignores it when it compares.
    EndsInSpace,
}

impl fmt::Display for ArgProblem {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::At => "contains `@`, which separates arguments",
            Self::Control => "contains a control character",
            Self::EndsInSpace => "ends in a space",
        })
    }
}

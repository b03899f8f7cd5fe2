//! Errors of task keys.

use std::fmt;

use super::KEY_BYTES_MAX;
use crate::task::quoted;

/// The error for an invalid task key.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum KeyError {
    /// More than [`KEY_BYTES_MAX`] bytes.
    #[error("key has {bytes} bytes, expected at most {KEY_BYTES_MAX}")]
    TooLong {
        /// Its length.
        bytes: usize,
    },
    /// It has no `@`.
    #[error("key has no `@`, expected `Class@method` and then any `@argument`")]
    NoMethod,
    /// The class or the method is not a valid name.
    #[error("{part} `{}` does not fit, expected a letter or `_`, then letters, digits or `_.:\\-`", quoted(.text))]
    Name {
        /// `class` or `method`.
        part: Part,
        /// The text found.
        text: String,
    },
    /// An argument is invalid.
    #[error("argument {} {problem}", .index + 1)]
    Arg {
        /// Its index, from 0.
        index: usize,
        /// The problem.
        problem: ArgProblem,
    },
}

/// A named part of a key.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Part {
    /// The part before the first `@`.
    Class,
    /// The part after it.
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

/// Why an argument is invalid.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ArgProblem {
    /// It contains `@`, which separates arguments.
    At,
    /// It contains a control character, which would break logs and headers.
    Control,
    /// It ends in a space, which SQL ignores in comparisons.
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

//! The column `reason`.

use std::fmt;
use std::str::FromStr;

use crate::task::{EndedOccurrence, NotAnOccurrence, Reason};

/// What the column `reason` states.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum StoredReason {
    /// Why the task is dead.
    Death(Reason),
    /// The latest occurrence of a series that goes on. Earlier versions read none.
    Latest(EndedOccurrence),
}

impl StoredReason {
    /// Returns why the task is dead, if it is.
    pub fn death(self) -> Option<Reason> {
        match self {
            Self::Death(reason) => Some(reason),
            Self::Latest(_) => None,
        }
    }

    /// Returns the latest occurrence, if it is known.
    pub fn latest(self) -> Option<EndedOccurrence> {
        match self {
            Self::Death(_) => None,
            Self::Latest(ended) => Some(ended),
        }
    }
}

impl fmt::Display for StoredReason {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Death(reason) => reason.fmt(f),
            Self::Latest(ended) => ended.fmt(f),
        }
    }
}

impl FromStr for StoredReason {
    type Err = NotAnOccurrence;

    fn from_str(text: &str) -> Result<Self, NotAnOccurrence> {
        match text.parse() {
            Ok(reason) => Ok(Self::Death(reason)),
            Err(_) => text.parse().map(Self::Latest),
        }
    }
}

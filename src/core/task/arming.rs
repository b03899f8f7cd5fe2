//! Identity of one arming of a task.

use std::fmt;
use std::str::FromStr;

use super::UnixMs;

/// One arming of one row. As a fence it keeps an older arming from acting on a newer one.
///
/// Displayed as `<row id>-<end_time ms>`: the id of a task, stable over all attempts, by which handlers and targets
/// deduplicate.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Arming {
    /// The row.
    pub row: u64,
    /// Its `end_time`.
    pub due: UnixMs,
}

impl fmt::Display for Arming {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}-{}", self.row, self.due.0)
    }
}

impl FromStr for Arming {
    type Err = &'static str;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        let read = || {
            let (row, due) = text.split_once('-')?;
            Some(Self {
                row: row.parse().ok()?,
                due: UnixMs(due.parse().ok()?),
            })
        };
        read().ok_or("expected `<row id>-<due ms>`")
    }
}

//! A walk along the index of due times.

use super::queries::Queries;
use super::session::id;
use crate::ledger::DuePlace;
use crate::task::UnixMs;

/// Before every row.
pub(super) const START: DuePlace = (UnixMs(0), 0);

/// After every row.
pub(super) const END: DuePlace = (UnixMs(i64::MAX), u64::MAX);

/// A range of the rows of one `status` and `sts`.
#[derive(Debug, Clone, Copy)]
pub(super) struct Walk {
    pub status: u8,
    pub deleted: bool,
    pub direction: Direction,
    /// Where to begin. This place is not in the range.
    pub from: DuePlace,
    /// Where to end: up to and with this due time, or down to the one after it.
    pub to: UnixMs,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Direction {
    Up,
    Down,
}

impl Walk {
    /// Returns the statement that reads places, from the index alone.
    pub fn places(self, queries: &Queries) -> &str {
        match self.direction {
            Direction::Up => &queries.places_up,
            Direction::Down => &queries.places_down,
        }
    }

    /// Returns the statement that reads what scans need of a row.
    pub fn scan(self, queries: &Queries) -> &str {
        match self.direction {
            Direction::Up => &queries.scan_up,
            Direction::Down => &queries.scan_down,
        }
    }

    /// Returns the values of the statements.
    pub fn values(self) -> (u8, bool, i64, i64, i64) {
        let (due, row) = self.from;
        (self.status, self.deleted, due.0, id(row), self.to.0)
    }
}

//! Counting the occurrences of a recurrence, and the limits for one that is late. Pure.

use std::time::Duration;

use super::{Recurrence, RecurrenceError};
use crate::task::{KEY_BYTES_MAX, TaskKey, UnixMs};

/// An occurrence that starts later than this, or than half its period, is missed.
pub const GRACE_MAX: Duration = Duration::from_secs(60);

/// Most occurrences that are counted.
const COUNTED_MAX: u32 = 1_000;

impl Recurrence {
    /// Returns the time after which the series continues from the arming at `due`: that, or the original time of a moved
    /// occurrence, if later.
    pub fn continues_after(&self, due: UnixMs) -> UnixMs {
        self.moved_from().map_or(due, |from| from.max(due))
    }

    /// Returns the time after which a new series has its first occurrence: `now`, or just before its start if that is an
    /// occurrence and has just passed, so that a start of "now" is not missed.
    pub fn starts_after(&self, now: UnixMs) -> UnixMs {
        let is_young = |start: &UnixMs| *start <= now && now.since(*start) <= self.grace(*start);
        match self.start().filter(is_young) {
            Some(start) if self.has(start) => UnixMs(start.0 - 1),
            _ => now,
        }
    }

    /// Returns how late an occurrence may start: half the time until the next one, at most [`GRACE_MAX`].
    pub(in crate::task) fn grace(&self, due: UnixMs) -> Duration {
        let next = self.next(due);
        next.map_or(GRACE_MAX, |next| (next.since(due) / 2).min(GRACE_MAX))
    }

    /// Returns an upper bound of the occurrences after `after` and up to `to`. A clock change may bring two of them
    /// closer together than [`closest`](Self::closest).
    pub(in crate::task) fn at_most(&self, after: UnixMs, to: UnixMs) -> u64 {
        const SPARE: u64 = 3;
        let span = u64::try_from(to.0.saturating_sub(after.0)).unwrap_or(0);
        span / self.closest().as_millis().max(1) as u64 + SPARE
    }

    /// Counts the occurrences between `after` and `before`, at most 1,000.
    pub fn between(&self, after: UnixMs, before: UnixMs) -> u32 {
        let after = self.continues_after(after);
        self.count(after, UnixMs(before.0.saturating_sub(1)), COUNTED_MAX)
    }

    /// Checks that each occurrence of this key can be a separate task, if occurrences may overlap.
    ///
    /// # Errors
    /// Returns [`RecurrenceError::KeyTooLong`] or [`RecurrenceError::KeyHasSuffix`].
    pub fn check_room(&self, key: &TaskKey) -> Result<(), RecurrenceError> {
        const SUFFIX_BYTES: usize = "@~1763750000000".len();
        let bytes = key.as_str().len();
        if self.may_overlap()
            && let Some(suffix) = key.suffix()
        {
            return Err(RecurrenceError::KeyHasSuffix(suffix.to_owned()));
        }
        match self.may_overlap() && bytes + SUFFIX_BYTES > KEY_BYTES_MAX {
            true => Err(RecurrenceError::KeyTooLong {
                bytes,
                max: KEY_BYTES_MAX - SUFFIX_BYTES,
            }),
            false => Ok(()),
        }
    }

    /// Counts the occurrences after `after` and up to `to`, at most `max`.
    pub(in crate::task) fn count(&self, after: UnixMs, to: UnixMs, max: u32) -> u32 {
        let mut at = after;
        for counted in 0..max {
            match self.next(at) {
                Some(next) if next <= to => at = next,
                _ => return counted,
            }
        }
        max
    }
}

//! Limits of a recurrence.

use std::time::Duration;

/// Shortest period.
pub const EVERY_MIN: Duration = Duration::from_secs(1);

/// Default number of missed occurrences that [`CatchUp::All`](super::CatchUp::All) runs.
pub const CATCH_UP_MAX: u32 = 1_000;

/// Largest number of missed occurrences to run. They are counted one by one whenever a run of the series ends.
pub const CATCH_UP_LIMIT: u32 = 10_000;

/// Largest value for [`Recurrence::times`](super::Recurrence::times).
pub const TIMES_MAX: u32 = 10_000;

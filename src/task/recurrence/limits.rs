//! Limits of a recurrence.

use std::time::Duration;

/// Shortest time from one occurrence to the next.
pub const EVERY_MIN: Duration = Duration::from_secs(1);

/// Most missed occurrences that [`CatchUp::All`](super::CatchUp::All) runs by default.
pub const CATCH_UP_MAX: u32 = 1_000;

/// Most missed occurrences that it can be configured to run: they are counted one by one whenever a run of the series
/// ends.
pub const CATCH_UP_LIMIT: u32 = 10_000;

/// Largest number for [`Recurrence::times`](super::Recurrence::times).
pub const TIMES_MAX: u32 = 10_000;

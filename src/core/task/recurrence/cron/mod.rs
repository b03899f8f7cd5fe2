//! Cron expressions in a time zone, and what their hours mean when the clocks change.

mod fields;

use std::fmt;
use std::time::Duration;

use jiff::civil::DateTime;
use jiff::tz::{AmbiguousOffset, TimeZone, TimeZoneDatabase};
use jiff::{Timestamp, ToSpan as _};

use self::fields::WallTimes;
use super::error::RecurrenceError;
use crate::task::UnixMs;

/// A cron expression in a time zone.
#[derive(Clone)]
pub(super) struct CronRule {
    text: String,
    zone_name: String,
    zone: TimeZone,
    wall_times: WallTimes,
    clock: Clock,
    closest: Duration,
}

/// What the hour field means.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Clock {
    /// Hours are named, such as `2` or `9-17`. Each wall time occurs once a day: a skipped one when the clocks have been
    /// put forward, a repeated one the first time.
    Wall,
    /// Every hour, or every n-th (`*`, `*/2`). A wall time occurs whenever the clock shows it: never in a skipped hour,
    /// twice in a repeated one.
    Elapsed,
}

impl CronRule {
    /// Reads five fields (minute, hour, day, month, weekday), or six (second first), or a name such as `@daily`.
    pub fn parse(text: &str, zone_name: &str) -> Result<Self, RecurrenceError> {
        let zone = zone(zone_name)?;
        let refused = |problem: String| RecurrenceError::Cron {
            text: text.to_owned(),
            problem,
        };
        let fields = fields::split(text).map_err(refused)?;
        let wall_times = WallTimes::parse(&fields).map_err(refused)?;
        let clock = match fields[2].split(',').any(|item| item.starts_with('*')) {
            true => Clock::Elapsed,
            false => Clock::Wall,
        };
        let is_one_second = fields[0].bytes().all(|byte| byte.is_ascii_digit());
        let closest = Duration::from_secs(if is_one_second { 60 } else { 1 });
        let rule = Self {
            closest,
            text: text.trim().to_owned(),
            zone_name: zone_name.to_owned(),
            zone,
            wall_times,
            clock,
        };
        match rule.next(UnixMs(0)) {
            Some(_) => Ok(rule),
            None => Err(refused("has no occurrence until the year 2200".to_owned())),
        }
    }

    /// The expression as given.
    pub fn text(&self) -> &str {
        &self.text
    }

    /// The IANA name of its time zone.
    pub fn zone_name(&self) -> &str {
        &self.zone_name
    }

    /// As [`Recurrence::closest`](super::Recurrence::closest).
    pub fn closest(&self) -> Duration {
        self.closest
    }

    /// The first occurrence strictly after this moment.
    pub fn next(&self, after: UnixMs) -> Option<UnixMs> {
        #[cfg(test)]
        STEPS.with(|steps| steps.set(steps.get() + 1));
        let after = Timestamp::from_millisecond(after.0).ok()?;
        let next = match self.clock {
            Clock::Wall => self.next_by_wall(after),
            Clock::Elapsed => self.next_by_elapsed(after),
        };
        next.map(|next| UnixMs(next.as_millisecond()))
    }

    /// Wall times in ascending order never map to descending moments, so a search from the wall time of `after` misses
    /// no occurrence.
    fn next_by_wall(&self, after: Timestamp) -> Option<Timestamp> {
        let mut wall = self.zone.to_datetime(after);
        loop {
            wall = self.next_wall(wall, false)?;
            let moment = self.moment_of(wall)?;
            if moment > after {
                return Some(moment);
            }
        }
    }

    /// The moment of a wall time: the first of two if the clocks repeat it, the end of the gap if they skip it.
    fn moment_of(&self, wall: DateTime) -> Option<Timestamp> {
        let ambiguous = self.zone.to_ambiguous_timestamp(wall);
        let in_gap = matches!(ambiguous.offset(), AmbiguousOffset::Gap { .. });
        let earlier = ambiguous.earlier().ok()?;
        match in_gap {
            true => Some(self.zone.following(earlier).next()?.timestamp()),
            false => Some(earlier),
        }
    }

    /// Between two changes of the clocks the offset is constant, so the next wall time is the next moment.
    fn next_by_elapsed(&self, after: Timestamp) -> Option<Timestamp> {
        let (mut from, mut inclusive) = (after, false);
        loop {
            let offset = self.zone.to_offset(from);
            let wall = self.next_wall(offset.to_datetime(from), inclusive)?;
            let moment = offset.to_timestamp(wall).ok()?;
            match self.zone.following(from).next() {
                Some(change) if change.timestamp() <= moment => {
                    (from, inclusive) = (change.timestamp(), true);
                }
                _ => return Some(moment),
            }
        }
    }

    fn next_wall(&self, from: DateTime, inclusive: bool) -> Option<DateTime> {
        let subsecond = i64::from(from.subsec_nanosecond()).nanoseconds();
        let second = from.checked_sub(subsecond).ok()?;
        match inclusive {
            true => self.wall_times.first_from(second),
            false => self
                .wall_times
                .first_from(second.checked_add(1.second()).ok()?),
        }
    }
}

impl PartialEq for CronRule {
    fn eq(&self, other: &Self) -> bool {
        (&self.text, &self.zone_name) == (&other.text, &other.zone_name)
    }
}

impl Eq for CronRule {}

impl fmt::Debug for CronRule {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "CronRule({} {})", self.text, self.zone_name)
    }
}

#[cfg(test)]
std::thread_local! {
    static STEPS: std::cell::Cell<u64> = const { std::cell::Cell::new(0) };
}

/// Number of searches for an occurrence by this thread.
#[cfg(test)]
pub(in crate::task) fn steps() -> u64 {
    STEPS.with(std::cell::Cell::get)
}

/// Looks up the time zone in the system's database, then in the bundled one.
fn zone(name: &str) -> Result<TimeZone, RecurrenceError> {
    TimeZone::get(name)
        .or_else(|_| TimeZoneDatabase::bundled().get(name))
        .map_err(|_| RecurrenceError::Zone(name.to_owned()))
}

#[cfg(test)]
mod tests;

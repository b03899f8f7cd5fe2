//! History of the last 24 h over all daemons, by minute: charts without a time-series database.

use std::collections::{BTreeMap, HashSet};
use std::sync::{Mutex, MutexGuard};
use std::time::Duration;

use serde::Serialize;

use super::deps::Deps;
use crate::clock::LedgerClock;
use crate::task::UnixMs;
use crate::telemetry::history::{LatenessPercentiles, Minute, PerSource};

/// How long minutes are kept.
pub const HISTORY_KEPT: Duration = Duration::from_secs(24 * 3600);

/// Length of a minute, in milliseconds.
pub(super) const MINUTE_MS: i64 = 60_000;

/// What the daemons did in each of the last minutes.
#[derive(Debug)]
pub struct History {
    clock: LedgerClock,
    /// Name of this daemon.
    daemon: String,
    minutes: Mutex<Minutes>,
}

/// Minutes by their start, in milliseconds since 1970.
type Minutes = BTreeMap<i64, Recorded>;

/// What the daemons did in one minute.
#[derive(Debug, Default)]
struct Recorded {
    sum: Minute,
    /// The daemons in the sum.
    daemons: HashSet<String>,
}

/// What the daemons did in one step of time.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct HistoryPoint {
    /// Start of the step.
    pub at: UnixMs,
    /// Maximum number of daemons in a minute of the step. Zero: nothing was recorded, which is no zero in the others.
    pub daemons: usize,
    /// Claimed tasks by the source of the signal that started them.
    pub started: PerSource<u64>,
    /// Runs that succeeded.
    pub succeeded: u64,
    /// Runs that failed, timed out or panicked.
    pub failed: u64,
    /// Tasks and occurrences that died.
    pub dead: u64,
    /// How late handlers started; `None` if none did.
    pub lateness: Option<LatenessPercentiles>,
    /// Maximum number of overdue tasks that was counted; `None` if they were not counted.
    pub overdue: Option<u64>,
    /// Maximum time that the oldest overdue task had waited.
    pub overdue_ms_max: Option<u64>,
    /// Maximum number of pending tasks that was counted; `None` if they were not counted.
    pub pending: Option<u64>,
    /// True if there were at least as many overdue or pending tasks: counting ended early.
    pub at_least: bool,
}

impl History {
    pub(super) fn new(deps: &Deps) -> Self {
        Self::of(deps.ledger.clock().clone(), deps.claimant.daemon.clone())
    }

    fn of(clock: LedgerClock, daemon: String) -> Self {
        Self {
            clock,
            daemon,
            minutes: Mutex::default(),
        }
    }

    /// Returns the last `span`, oldest step first, in steps of `step`. The last step ends with the last full minute.
    ///
    /// A step is a whole number of minutes, at least one; a span is at most [`HISTORY_KEPT`].
    pub async fn points(&self, span: Duration, step: Duration) -> Vec<HistoryPoint> {
        let step_ms = whole_minutes(step);
        let count = (whole_minutes(span.min(HISTORY_KEPT)) + step_ms - 1) / step_ms;
        let now = self.clock.now().0;
        let until = now - now.rem_euclid(MINUTE_MS);
        let since = until - count * step_ms;
        let minutes = self.minutes();
        let steps = (0..count).map(|step| since + step * step_ms);
        let point = |at: i64| {
            let mut sum = Recorded::default();
            let mut daemons = 0;
            for recorded in minutes
                .range(at..at + step_ms)
                .map(|(_, recorded)| recorded)
            {
                sum.sum.add(&recorded.sum);
                daemons = daemons.max(recorded.daemons.len());
            }
            HistoryPoint::of(UnixMs(at), daemons, sum.sum)
        };
        steps.map(point).collect()
    }

    /// Takes a minute of this daemon.
    pub(super) fn record(&self, at: i64, minute: &Minute) {
        let mut minutes = self.minutes();
        add(&mut minutes, at, &self.daemon, minute);
        let oldest = at - whole_minutes(HISTORY_KEPT);
        *minutes = minutes.split_off(&oldest);
    }

    fn minutes(&self) -> MutexGuard<'_, Minutes> {
        self.minutes
            .lock()
            .expect("nothing panics while holding it")
    }
}

/// Adds a minute of a daemon, once.
fn add(minutes: &mut Minutes, at: i64, daemon: &str, minute: &Minute) {
    let recorded = minutes.entry(at).or_default();
    if recorded.daemons.insert(daemon.to_owned()) {
        recorded.sum.add(minute);
    }
}

/// The length in milliseconds, as whole minutes, at least one.
fn whole_minutes(length: Duration) -> i64 {
    let minutes = length.as_secs() / 60;
    i64::try_from(minutes)
        .unwrap_or(i64::MAX / MINUTE_MS)
        .clamp(1, 1_000_000)
        * MINUTE_MS
}

impl HistoryPoint {
    fn of(at: UnixMs, daemons: usize, minute: Minute) -> Self {
        let Minute {
            started,
            succeeded,
            failed,
            dead,
            lateness,
            overdue,
            overdue_ms_max,
            pending,
            at_least,
        } = minute;
        Self {
            at,
            daemons,
            started,
            succeeded,
            failed,
            dead,
            lateness: lateness.percentiles(),
            overdue,
            overdue_ms_max,
            pending,
            at_least,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const MINUTE: Duration = Duration::from_secs(60);
    const DAY_MS: i64 = 24 * 60 * MINUTE_MS;

    fn died(dead: u64) -> Minute {
        Minute {
            dead,
            ..Minute::default()
        }
    }

    #[tokio::test]
    async fn a_day_is_kept() {
        let clock = LedgerClock::frozen_at(UnixMs(DAY_MS));
        let history = History::of(clock.clone(), "a".to_owned());
        for at in (0..DAY_MS).step_by(MINUTE_MS as usize) {
            history.record(at, &died(1));
        }
        let hours = history.points(HISTORY_KEPT, MINUTE * 60).await;
        let of_hour = |hour: &HistoryPoint| (hour.at.0, hour.dead, hour.daemons);
        assert_eq!(hours.len(), 24);
        assert_eq!(of_hour(&hours[0]), (0, 60, 1));
        assert_eq!(of_hour(&hours[23]), (DAY_MS - 60 * MINUTE_MS, 60, 1));

        history.record(DAY_MS + 9 * MINUTE_MS, &died(7));
        clock.set(UnixMs(DAY_MS + 10 * MINUTE_MS));
        let day = history.points(HISTORY_KEPT * 2, HISTORY_KEPT).await;
        let dead: Vec<u64> = day.iter().map(|day| day.dead).collect();
        assert_eq!(
            dead,
            [DAY_MS as u64 / 60_000 - 10 + 7],
            "a longer span is cut"
        );
        assert_eq!(history.minutes().len(), 24 * 60 - 9 + 1);
    }

    #[tokio::test]
    async fn a_daemon_is_counted_once_in_a_minute() {
        let history = History::of(LedgerClock::frozen_at(UnixMs(MINUTE_MS)), "a".to_owned());
        let mut minutes = history.minutes();
        for (daemon, dead) in [("a", 1), ("b", 2), ("a", 4)] {
            add(&mut minutes, 0, daemon, &died(dead));
        }
        drop(minutes);
        let points = history.points(MINUTE, MINUTE).await;
        assert_eq!((points[0].dead, points[0].daemons), (3, 2));
    }
}

//! History: what a daemon did in each of the last minutes, for charts and alerts.
//!
//! Runs are counted by atomic additions. Each minute the counters are read, and the differences are one [`Minute`].

mod lateness;

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Mutex, MutexGuard};

use prometheus_client::metrics::counter::Counter;
use serde::{Deserialize, Serialize};

use self::lateness::LatenessCounter;
pub use self::lateness::{Lateness, LatenessPercentiles};

/// One value for each source of signals.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct PerSource<T> {
    /// Redis published `expired` for the key.
    pub event: T,
    /// The daemon raised the signal at the due time, or a probe of the ledger did.
    pub nudge: T,
    /// The sweep found the task overdue.
    pub sweep: T,
    /// The daemon released the task, adopted it, or created it due.
    pub direct: T,
}

impl<T> PerSource<T> {
    /// Converts each value.
    pub(super) fn map<U>(&self, mut convert: impl FnMut(&T) -> U) -> PerSource<U> {
        let Self {
            event,
            nudge,
            sweep,
            direct,
        } = self;
        PerSource {
            event: convert(event),
            nudge: convert(nudge),
            sweep: convert(sweep),
            direct: convert(direct),
        }
    }

    /// Combines the values of both by source.
    fn zip<U, V>(&self, other: &PerSource<U>, combine: impl Fn(&T, &U) -> V) -> PerSource<V> {
        PerSource {
            event: combine(&self.event, &other.event),
            nudge: combine(&self.nudge, &other.nudge),
            sweep: combine(&self.sweep, &other.sweep),
            direct: combine(&self.direct, &other.direct),
        }
    }
}

impl PerSource<u64> {
    /// Sum over the sources.
    pub fn total(&self) -> u64 {
        let Self {
            event,
            nudge,
            sweep,
            direct,
        } = *self;
        event + nudge + sweep + direct
    }
}

/// What a daemon did in a minute, or several daemons in some minutes.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(default)]
pub struct Minute {
    /// Claims by the source of their signal. A run starts when its claim commits.
    pub started: PerSource<u64>,
    /// Runs that succeeded.
    pub succeeded: u64,
    /// Runs that failed, timed out or panicked.
    pub failed: u64,
    /// Tasks and occurrences that died.
    pub dead: u64,
    /// How late handlers and targets started.
    pub lateness: Lateness,
    /// How late workers took tasks of pull queues: as late as they ask.
    pub lateness_pull: Lateness,
    /// Number of overdue tasks; `None` if this daemon did not count them. Over several minutes, the maximum.
    pub overdue: Option<u64>,
    /// How long the oldest overdue task has waited. Over several minutes, the maximum.
    pub overdue_ms_max: Option<u64>,
    /// Number of pending tasks; `None` if this daemon did not count them. Over several minutes, the maximum.
    pub pending: Option<u64>,
    /// True if counting pending or overdue tasks ended early: there are at least as many.
    pub at_least: bool,
}

impl Minute {
    /// Adds what another daemon did in this minute, or this one in another minute.
    pub fn add(&mut self, other: &Self) {
        let Self {
            started,
            succeeded,
            failed,
            dead,
            lateness,
            lateness_pull,
            overdue,
            overdue_ms_max,
            pending,
            at_least,
        } = other;
        self.started = self.started.zip(started, |a, b| a.saturating_add(*b));
        self.succeeded = self.succeeded.saturating_add(*succeeded);
        self.failed = self.failed.saturating_add(*failed);
        self.dead = self.dead.saturating_add(*dead);
        self.lateness.add(lateness);
        self.lateness_pull.add(lateness_pull);
        self.overdue = self.overdue.max(*overdue);
        self.overdue_ms_max = self.overdue_ms_max.max(*overdue_ms_max);
        self.pending = self.pending.max(*pending);
        self.at_least |= at_least;
    }
}

/// The counters of this process. Recording takes no lock and allocates nothing.
#[derive(Debug, Default)]
pub struct Recorder {
    /// Claims by source; shared with the metric.
    started: PerSource<Counter>,
    succeeded: AtomicU64,
    failed: AtomicU64,
    dead: AtomicU64,
    lateness: LatenessCounter,
    lateness_pull: LatenessCounter,
    /// The gauges as they were last counted. Locked by gauges and once a minute, never by a run.
    gauges: Mutex<Gauges>,
    /// The counters at the end of the last minute.
    seen: Mutex<Totals>,
}

#[derive(Debug, Clone, Copy, Default)]
struct Gauges {
    overdue: Option<(u64, bool)>,
    overdue_ms_max: Option<u64>,
    pending: Option<(u64, bool)>,
}

/// What a daemon has done since its start.
#[derive(Debug, Clone, Default)]
pub struct Totals {
    started: PerSource<u64>,
    succeeded: u64,
    failed: u64,
    dead: u64,
    lateness: Vec<u64>,
    lateness_pull: Vec<u64>,
}

impl Totals {
    /// What the daemon did since `before`, without gauges.
    pub fn since(&self, before: &Self) -> Minute {
        let Self {
            started,
            succeeded,
            failed,
            dead,
            lateness,
            lateness_pull,
        } = self;
        Minute {
            started: started.zip(&before.started, |now, before| now - before),
            succeeded: succeeded - before.succeeded,
            failed: failed - before.failed,
            dead: dead - before.dead,
            lateness: Lateness::between(&before.lateness, lateness),
            lateness_pull: Lateness::between(&before.lateness_pull, lateness_pull),
            ..Minute::default()
        }
    }
}

impl Recorder {
    /// Creates a recorder that counts claims in these counters.
    pub(super) fn new(started: PerSource<Counter>) -> Self {
        Self {
            started,
            ..Self::default()
        }
    }

    /// Counters of claims by the source of their signal.
    pub(super) fn started(&self) -> &PerSource<Counter> {
        &self.started
    }

    /// Records how late a handler started, or a worker took a task of a pull queue.
    pub(super) fn late(&self, ms: u64, is_pull: bool) {
        match is_pull {
            true => self.lateness_pull.record(ms),
            false => self.lateness.record(ms),
        }
    }

    /// Counts a run by the name of its outcome.
    pub(super) fn ran(&self, outcome: &str) {
        let counter = match outcome {
            "succeeded" => &self.succeeded,
            "failed" | "timed_out" | "panicked" => &self.failed,
            _ => return,
        };
        counter.fetch_add(1, Ordering::Relaxed);
    }

    /// Counts a dead task.
    pub(super) fn buried(&self) {
        self.dead.fetch_add(1, Ordering::Relaxed);
    }

    /// Takes a count of tasks in this state; with `at_least`, counting stopped there.
    pub(super) fn counted(&self, state: &str, count: u64, at_least: bool) {
        let mut gauges = self.gauges();
        match state {
            "overdue" => gauges.overdue = Some((count, at_least)),
            "pending" => gauges.pending = Some((count, at_least)),
            _ => {}
        }
    }

    /// Forgets the counts of tasks: another daemon counts them now.
    pub(super) fn counted_elsewhere(&self) {
        let mut gauges = self.gauges();
        (gauges.overdue, gauges.pending) = (None, None);
    }

    /// Takes how long the oldest overdue task has waited.
    pub(super) fn overdue_for(&self, ms: u64) {
        self.gauges().overdue_ms_max = Some(ms);
    }

    /// Returns what was recorded since the start of the process.
    pub fn read(&self) -> Totals {
        let read = |counter: &AtomicU64| counter.load(Ordering::Relaxed);
        Totals {
            started: self.started.map(Counter::get),
            succeeded: read(&self.succeeded),
            failed: read(&self.failed),
            dead: read(&self.dead),
            lateness: self.lateness.read(),
            lateness_pull: self.lateness_pull.read(),
        }
    }

    /// Returns how many tasks and occurrences have died in the minute that is not over.
    pub fn dead_in_this_minute(&self) -> u64 {
        let seen = self.seen.lock().expect("nothing panics while holding it");
        self.dead.load(Ordering::Relaxed).saturating_sub(seen.dead)
    }

    /// Ends a minute: returns what was recorded since the last call.
    pub fn end_minute(&self) -> Minute {
        let now = self.read();
        let mut seen = self.seen.lock().expect("nothing panics while holding it");
        let before = std::mem::replace(&mut *seen, now.clone());
        let did = now.since(&before);
        let Gauges {
            overdue,
            overdue_ms_max,
            pending,
        } = *self.gauges();
        let counts = [overdue, pending];
        Minute {
            lateness: did.lateness.with_max_ms(self.lateness.take_max_ms()),
            lateness_pull: (did.lateness_pull).with_max_ms(self.lateness_pull.take_max_ms()),
            overdue: overdue.map(|(count, _)| count),
            overdue_ms_max,
            pending: pending.map(|(count, _)| count),
            at_least: counts.iter().flatten().any(|(_, at_least)| *at_least),
            ..did
        }
    }

    fn gauges(&self) -> MutexGuard<'_, Gauges> {
        self.gauges.lock().expect("nothing panics while holding it")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_minute_has_what_happened_since_the_last_one() {
        let recorder = Recorder::default();
        recorder.started().nudge.inc_by(2);
        recorder.started().sweep.inc();
        for outcome in ["succeeded", "failed", "timed_out", "panicked", "snoozed"] {
            recorder.ran(outcome);
        }
        recorder.buried();
        recorder.late(7, false);
        recorder.late(90_000, true);
        recorder.counted("pending", 40, true);
        recorder.counted("overdue", 3, false);
        recorder.overdue_for(900);
        let minute = recorder.end_minute();
        let (total, sweep) = (minute.started.total(), minute.started.sweep);
        assert_eq!((total, sweep), (3, 1));
        assert_eq!((minute.succeeded, minute.failed, minute.dead), (1, 3, 1));
        assert_eq!(minute.lateness.percentiles().unwrap().max_ms, 7);
        let pull = minute.lateness_pull.percentiles().unwrap();
        assert_eq!(pull.max_ms, 90_000, "a worker that asks late");
        let gauges = (minute.overdue, minute.overdue_ms_max, minute.pending);
        assert_eq!(gauges, (Some(3), Some(900), Some(40)));
        assert!(minute.at_least);

        recorder.counted_elsewhere();
        recorder.started().event.inc();
        let next = recorder.end_minute();
        assert_eq!((next.started.total(), next.started.event), (1, 1));
        assert_eq!((next.succeeded, next.failed, next.dead), (0, 0, 0));
        let gauges = (next.overdue, next.overdue_ms_max, next.pending);
        assert_eq!(gauges, (None, Some(900), None));
    }

    #[test]
    fn a_minute_of_two_daemons_has_the_work_of_both_and_the_count_of_one() {
        let counting = Minute {
            started: PerSource {
                event: 1,
                ..PerSource::default()
            },
            dead: 1,
            pending: Some(7),
            overdue_ms_max: Some(5),
            ..Minute::default()
        };
        let mut sum = Minute {
            started: PerSource {
                event: 2,
                ..PerSource::default()
            },
            overdue_ms_max: Some(9),
            ..Minute::default()
        };
        sum.add(&counting);
        assert_eq!((sum.started.event, sum.dead), (3, 1));
        assert_eq!((sum.pending, sum.overdue_ms_max), (Some(7), Some(9)));
    }

    #[test]
    fn a_minute_of_an_older_version_is_read() {
        let read: Minute = serde_json::from_str(r#"{"dead": 3, "unknown": 1}"#).unwrap();
        assert_eq!(
            read,
            Minute {
                dead: 3,
                ..Minute::default()
            }
        );
    }
}

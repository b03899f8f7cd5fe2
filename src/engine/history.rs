//! History of the last 24 h over all daemons, by minute: charts without a time-series database.

use std::collections::{BTreeMap, HashSet};
use std::sync::{Arc, Mutex, MutexGuard};
use std::time::Duration;

use serde::Serialize;
use tokio::time::Instant;

use crate::clock::LedgerClock;
use crate::ledger::{Collection, Document, DocumentPlace, DocumentRange, Documents, LedgerError};
use crate::task::UnixMs;
use crate::telemetry::history::{LatenessPercentiles, Minute, PerSource};

/// How long minutes are kept.
pub const HISTORY_KEPT: Duration = Duration::from_secs(24 * 3600);

/// Length of a minute, in milliseconds.
pub(super) const MINUTE_MS: i64 = 60_000;

/// Maximum age of the minutes of other daemons, beyond the minute that is not over.
const READ_EVERY: Duration = Duration::from_secs(10);

/// A document is visible at most this long after its time: its transaction has committed.
const COMMIT_MAX: Duration = Duration::from_secs(120);

/// Documents in a page, and pages at a time: the minutes of a day of 138 daemons.
const PAGE: u32 = 1_000;
const PAGES_MAX: usize = 200;

/// Documents that one statement deletes.
const DELETED_MAX: u32 = 1_000;

/// What the daemons did in each of the last minutes.
///
/// Each daemon writes its minutes into the ledger. They are read when they are asked for, so they outlive the daemons.
pub struct History {
    ledger: Arc<dyn Documents>,
    clock: LedgerClock,
    /// Name of this daemon.
    daemon: String,
    minutes: Mutex<Minutes>,
    /// How far the ledger was read. Locked while it is read.
    read: tokio::sync::Mutex<Read>,
}

#[derive(Debug, Default)]
struct Read {
    /// When the ledger was last read.
    asked: Option<Instant>,
    /// The ledger's time then; `None` before the first success.
    until: Option<UnixMs>,
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
    /// How late handlers and targets started; `None` if none did.
    pub lateness: Option<LatenessPercentiles>,
    /// How late workers took tasks of pull queues; `None` if they took none.
    pub lateness_pull: Option<LatenessPercentiles>,
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
    pub(super) fn new(ledger: Arc<dyn Documents>, clock: LedgerClock, daemon: String) -> Self {
        Self {
            ledger,
            clock,
            daemon,
            minutes: Mutex::default(),
            read: tokio::sync::Mutex::default(),
        }
    }

    /// Returns the last `span`, oldest step first, in steps of `step`. The last step ends with the last full minute.
    ///
    /// A step is a whole number of minutes, at least one; a span is at most [`HISTORY_KEPT`]. If the ledger does not answer,
    /// the minutes of other daemons are missing.
    ///
    /// # Cancel safety
    /// Cancel safe.
    pub async fn points(&self, span: Duration, step: Duration) -> Vec<HistoryPoint> {
        if let Err(error) = self.read_others().await {
            tracing::debug!(%error, "could not read the history of other daemons");
        }
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

    /// Writes a minute of this daemon into the ledger.
    pub(super) async fn write(&self, at: i64, minute: &Minute) -> Result<(), LedgerError> {
        let body = serde_json::to_string(minute).expect("numbers become JSON");
        let name = format!("{at}/{}", self.daemon);
        let history = Collection::History;
        self.ledger.insert_document(history, &name, &body).await?;
        Ok(())
    }

    /// Deletes minutes that are too old.
    pub(super) async fn prune(&self) -> Result<(), LedgerError> {
        let before = self.clock.now().minus(HISTORY_KEPT);
        let history = Collection::History;
        let delete = || self.ledger.delete_documents(history, before, DELETED_MAX);
        while delete().await? == u64::from(DELETED_MAX) {}
        Ok(())
    }

    /// Reads minutes that were written since the last time. Does nothing while another caller reads.
    async fn read_others(&self) -> Result<(), LedgerError> {
        let Ok(mut read) = self.read.try_lock() else {
            return Ok(());
        };
        if read.asked.is_some_and(|asked| asked.elapsed() < READ_EVERY) {
            return Ok(());
        }
        read.asked = Some(Instant::now());
        let now = self.clock.now();
        let oldest = now.minus(HISTORY_KEPT);
        let since = read.until.map_or(oldest, |until| until.minus(COMMIT_MAX));
        let mut range = DocumentRange {
            since: since.max(oldest),
            before: DocumentPlace::END,
            limit: PAGE,
        };
        for _ in 0..PAGES_MAX {
            let page = self.ledger.documents(Collection::History, &range).await?;
            let mut minutes = self.minutes();
            for document in &page {
                if let Some((at, daemon, minute)) = parsed(document) {
                    add(&mut minutes, at, daemon, &minute);
                }
            }
            drop(minutes);
            match page.last() {
                Some(last) if page.len() == PAGE as usize => range.before = last.place(),
                _ => break,
            }
        }
        read.until = Some(now);
        Ok(())
    }

    fn minutes(&self) -> MutexGuard<'_, Minutes> {
        self.minutes
            .lock()
            .expect("nothing panics while holding it")
    }
}

/// Start, daemon and contents of a minute; `None` for a document of a later version.
fn parsed(document: &Document) -> Option<(i64, &str, Minute)> {
    let (at, daemon) = document.name.split_once('/')?;
    let minute = serde_json::from_str(&document.body).ok()?;
    Some((at.parse().ok()?, daemon, minute))
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
            lateness_pull,
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
            lateness_pull: lateness_pull.percentiles(),
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
    use crate::ledger::Ledger as _;
    use crate::ledger::memory::MemoryLedger;

    const MINUTE: Duration = Duration::from_secs(60);
    const DAY_MS: i64 = 24 * 60 * MINUTE_MS;

    fn died(dead: u64) -> Minute {
        Minute {
            dead,
            ..Minute::default()
        }
    }

    fn ledger(now: i64) -> Arc<MemoryLedger> {
        let ledger = Arc::new(MemoryLedger::new(UnixMs(now)));
        ledger.clock().set(UnixMs(now));
        ledger
    }

    fn of(ledger: &Arc<MemoryLedger>, daemon: &str) -> History {
        History::new(
            Arc::clone(ledger) as _,
            ledger.clock().clone(),
            daemon.to_owned(),
        )
    }

    #[tokio::test]
    async fn a_day_is_kept() {
        let ledger = ledger(DAY_MS);
        let history = of(&ledger, "a");
        for at in (0..DAY_MS).step_by(MINUTE_MS as usize) {
            history.record(at, &died(1));
        }
        let hours = history.points(HISTORY_KEPT, MINUTE * 60).await;
        let of_hour = |hour: &HistoryPoint| (hour.at.0, hour.dead, hour.daemons);
        assert_eq!(hours.len(), 24);
        assert_eq!(of_hour(&hours[0]), (0, 60, 1));
        assert_eq!(of_hour(&hours[23]), (DAY_MS - 60 * MINUTE_MS, 60, 1));

        history.record(DAY_MS + 9 * MINUTE_MS, &died(7));
        ledger.clock().set(UnixMs(DAY_MS + 10 * MINUTE_MS));
        let day = history.points(HISTORY_KEPT * 2, HISTORY_KEPT).await;
        let dead: Vec<u64> = day.iter().map(|day| day.dead).collect();
        assert_eq!(
            dead,
            [24 * 60 - 10 + 7],
            "a longer span is cut, and nothing was recorded for nine minutes"
        );
        assert_eq!(history.minutes().len(), 24 * 60 - 9 + 1);
    }

    #[tokio::test(start_paused = true)]
    async fn the_minutes_of_all_daemons_are_added_up_once() {
        let ledger = ledger(MINUTE_MS);
        let (a, b) = (of(&ledger, "a"), of(&ledger, "b"));
        a.record(0, &died(1));
        a.write(0, &died(1)).await.unwrap();
        b.write(0, &died(2)).await.unwrap();
        let dead = async |history: &History| {
            let points = history.points(MINUTE * 2, MINUTE * 2).await;
            (points[0].dead, points[0].daemons)
        };
        assert_eq!(dead(&a).await, (3, 2));
        assert_eq!(
            dead(&of(&ledger, "a")).await,
            (3, 2),
            "after a restart, too"
        );

        ledger.clock().set(UnixMs(2 * MINUTE_MS));
        b.write(MINUTE_MS, &died(5)).await.unwrap();
        assert_eq!(dead(&a).await, (3, 2), "the ledger is not read each time");
        tokio::time::advance(READ_EVERY).await;
        assert_eq!(dead(&a).await, (8, 2));
    }

    #[tokio::test]
    async fn minutes_are_deleted_after_a_day_and_those_of_later_versions_are_skipped() {
        let ledger = ledger(0);
        let history = of(&ledger, "a");
        history.write(0, &died(1)).await.unwrap();
        for name in ["later", "0/b"] {
            let inserted = ledger.insert_document(Collection::History, name, "7").await;
            assert_eq!(inserted.unwrap(), None);
        }
        ledger.clock().set(UnixMs(MINUTE_MS));
        let points = history.points(MINUTE, MINUTE).await;
        assert_eq!((points[0].dead, points[0].daemons), (1, 1));
        let count = async || {
            let range = DocumentRange::latest(10);
            let found = ledger.documents(Collection::History, &range).await;
            found.unwrap().len()
        };
        history.prune().await.unwrap();
        assert_eq!(count().await, 3);
        ledger.clock().set(UnixMs(DAY_MS + 1));
        history.prune().await.unwrap();
        assert_eq!(count().await, 0);
    }
}

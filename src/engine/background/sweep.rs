//! Sweep: finds overdue tasks each second, which makes lost events harmless.

mod methods;

use std::sync::Arc;
use std::time::Duration;

use tokio::time::Instant;

use crate::clock::LedgerClock;
use crate::config::SweepConfig;
use crate::engine::activity::Activity;
use crate::engine::health::LedgerHealth;
use crate::engine::pace::jittered;
use crate::engine::pauses::PauseWatch;
use crate::engine::queue::SignalQueue;
use crate::engine::queue::class::SignalClass;
use crate::engine::queue::fair::Refused;
use crate::handler::Router;
use crate::ledger::{DuePage, DueScan, LedgerError, MethodTag, Scans, Upcoming, Window};
use crate::membership::Ownership;
use crate::task::{KeyBuckets, Paused, UnixMs};
use crate::timer::{Cause, Signal, Source};

/// Rows of one page.
pub const PAGE: u32 = 1_000;

/// Maximum number of pages of one scan. The next scan continues from there, or finds the rows again.
pub const PAGES_MAX: usize = 32;

/// Tasks that fell due less than this ago are left alone: a timer's signal is having them claimed.
const SWEEP_GRACE: Duration = Duration::from_millis(500);

/// Lateness at which other daemons take over a task that its owner has not claimed: first the second in rank, then all
/// others.
const SECOND_GRACE: Duration = Duration::from_millis(1_000);
const OTHERS_GRACE: Duration = Duration::from_millis(1_250);

/// Minimum pause between sweeps that take over tasks of others. Added to the last grace it is well below 2 s.
const TAKEOVER_PAUSE: Duration = Duration::from_millis(250);

/// Maximum number of tasks of others that one sweep takes over.
const TAKEN_OVER_MAX: usize = 4_000;

/// Maximum number of tasks that one sweep skips because their routes are blocked. The tasks behind them are looked for,
/// but not all at once.
const SKIPPED_MAX: usize = 8 * PAGE as usize;

/// Time limit for scanning old rows among which many are paused. The next sweep continues from there.
const PAUSED_SCAN_MAX: Duration = Duration::from_millis(100);

/// Minimum rest between two sweeps.
const SWEEP_PAUSE: Duration = Duration::from_millis(50);

/// Rest after a sweep while nothing that another one finds could start. With a long backlog, each sweep of each daemon reads
/// very many entries.
const REST: Duration = Duration::from_secs(10);

/// Interval between reads of the ledger's clock.
const CLOCK_EVERY: Duration = Duration::from_secs(5);

/// Report of one sweep.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, serde::Serialize)]
pub struct SweepReport {
    /// Number of overdue tasks found.
    pub overdue: usize,
    /// Number of overdue rows whose key is not a task key.
    pub foreign: usize,
}

/// Positions of the scans.
#[derive(Debug, Default)]
struct Cursors {
    /// Position of the scan for the oldest rows. The scan goes round, so that due rows without a route here are passed.
    sweep: Option<(UnixMs, u64)>,
    /// Where the last scan by class and method ended, if there are more of them than one sweep reads.
    method: Option<MethodTag>,
    clock_read: Option<Instant>,
    /// End of the last sweep.
    swept: Option<Instant>,
    /// True once the log has reported rows whose key is not a task key.
    foreign_logged: bool,
    /// Time until a task of another daemon may be taken over, if the last sweep saw one.
    takeover_in: Option<Duration>,
}

/// Findings of a sweep so far.
#[derive(Debug, Default)]
struct Findings {
    report: SweepReport,
    /// Tasks that their owners have left waiting.
    others: Vec<(SignalClass, Signal)>,
    /// Time until the next such task may be taken over.
    takeover_in: Option<Duration>,
    /// Number of tasks skipped because their routes are blocked.
    skipped: usize,
    /// True if some tasks have no route here, or keys that are not task keys.
    unroutable: bool,
}

/// Finds overdue tasks whose signal was lost.
pub struct Sweep {
    pub scans: Arc<dyn Scans>,
    pub clock: LedgerClock,
    pub health: Arc<LedgerHealth>,
    pub router: Arc<Router>,
    pub ownership: Arc<Ownership>,
    pub config: SweepConfig,
    pub activity: Arc<Activity>,
    pub queue: Arc<SignalQueue>,
    pub pauses: Arc<PauseWatch>,
}

impl Sweep {
    /// Sweeps every `sweep.interval`, and at once when activated.
    pub async fn run(self) {
        let activity = &self.activity;
        let (mut cursors, mut cause) = (Cursors::default(), Cause::Start);
        loop {
            let pass = self.sweep(&mut cursors, cause);
            if let Err(error) = activity.pass(cause, pass).await {
                self.health.failed("reconcile", &error);
            }
            // Even if activated more often.
            tokio::time::sleep(SWEEP_PAUSE).await;
            // Without an activation, the interval bounds how long an overdue task waits.
            let interval = jittered(self.config.interval);
            let takeover_in = cursors.takeover_in.take().unwrap_or(interval);
            let pause = interval.min(takeover_in.max(TAKEOVER_PAUSE));
            cause = tokio::select! {
                cause = activity.next(pause) => cause,
                () = self.queue.drained() => Cause::Room,
            };
        }
    }

    async fn sweep(&self, cursors: &mut Cursors, cause: Cause) -> Result<(), LedgerError> {
        // Unwritten settlements come first: their rows only look overdue.
        if self.health.settlements_wait() || self.health.owners_come_first().await? {
            return Ok(());
        }
        match self.try_sweep(cursors, cause).await? {
            true => self.health.answered().await,
            false => Ok(()),
        }
    }

    /// Returns false if the sweep rests, and the ledger was not asked.
    async fn try_sweep(&self, cursors: &mut Cursors, cause: Cause) -> Result<bool, LedgerError> {
        let is_old = |read: Instant| read.elapsed() >= CLOCK_EVERY;
        let reads_clock = cursors.clock_read.is_none_or(is_old) || self.clock.has_jumped();
        if reads_clock {
            self.health.sync_clock().await?;
            cursors.clock_read = Some(Instant::now());
        }
        let is_resting = cursors.swept.is_some_and(|swept| swept.elapsed() < REST);
        if is_resting && cause == Cause::Interval && !self.may_start_more() {
            return Ok(reads_clock);
        }
        if self.config.enabled {
            self.sweep_once(cursors).await?;
        }
        cursors.swept = Some(Instant::now());
        Ok(true)
    }

    /// Signals overdue tasks, oldest first if they fit a page. Else a page of the newest, then the oldest from where the last
    /// sweep stopped, so that a long backlog does not hide tasks that fell due just now. If tasks that may not start are among them and some are left, the
    /// oldest of each class and method follow. This daemon's own tasks come first; tasks that others have left waiting are
    /// taken over at the end.
    async fn sweep_once(&self, cursors: &mut Cursors) -> Result<SweepReport, LedgerError> {
        let mut findings = Findings::default();
        // True once this sweep has seen every overdue task that may start.
        let mut whole = false;
        let newest = DueScan {
            window: Window::OverdueNewest(SWEEP_GRACE),
            after: None,
            limit: PAGE,
        };
        let paused = self.pauses.paused();
        let has_spare_slots = self.has_spare_slots();
        // A daemon at its limit takes over no tasks of others, so it does not read their rows.
        let buckets = match has_spare_slots {
            true => KeyBuckets::all(),
            false => self.ownership.own_buckets(),
        };
        let asked = Instant::now();
        let mut newest = self.scan_overdue(newest, &buckets, &paused).await?;
        if self.health.answered_late(asked) {
            return Ok(findings.report);
        }
        let more = newest.next.is_some();
        if !more {
            // These are all: the one that has waited longest starts first.
            newest.rows.reverse();
        }
        self.signal_page(newest, &mut findings);
        if !more {
            cursors.sweep = None;
            whole = true;
        }
        let began = Instant::now();
        for _ in 0..PAGES_MAX {
            let skipped = findings.skipped >= SKIPPED_MAX;
            if !more || skipped || !self.queue.has_room_to_sweep(PAGE as usize) {
                break;
            }
            if !paused.is_empty() && began.elapsed() >= PAUSED_SCAN_MAX {
                break;
            }
            let oldest = DueScan {
                window: Window::OverdueOldest(SWEEP_GRACE),
                after: cursors.sweep,
                limit: PAGE,
            };
            let asked = Instant::now();
            let page = self.scan_overdue(oldest, &buckets, &paused).await?;
            if self.health.answered_late(asked) {
                break;
            }
            cursors.sweep = page.next;
            self.signal_page(page, &mut findings);
            if cursors.sweep.is_none() {
                whole = true;
                break;
            }
        }
        let passed_over = findings.skipped > 0 || findings.unroutable || !paused.is_empty();
        if !whole && passed_over {
            whole = self.sweep_methods(cursors, &mut findings, &paused).await?;
        }
        let Findings {
            report,
            others,
            takeover_in,
            skipped: _,
            unroutable: _,
        } = findings;
        if report.foreign > 0 && !cursors.foreign_logged {
            cursors.foreign_logged = true;
            tracing::warn!(
                rows = report.foreign,
                "overdue rows have keys that are not task keys: nothing runs them; `lapsed list --state overdue` shows them, `lapsed cancel --prefix` removes them"
            );
        }
        if has_spare_slots {
            self.take_over(others, whole || cursors.sweep.is_none());
            cursors.takeover_in = takeover_in;
        }
        Ok(report)
    }

    /// Scans a page of overdue tasks that may start, at least those of these buckets.
    async fn scan_overdue(
        &self,
        scan: DueScan,
        buckets: &KeyBuckets,
        paused: &Paused,
    ) -> Result<DuePage, LedgerError> {
        // The ledger would walk past every overdue row to find none.
        if buckets.is_empty() {
            return Ok(DuePage::default());
        }
        if !paused.is_empty() {
            return self.scans.scan_unpaused(scan, paused).await;
        }
        // In a burst, most overdue tasks already wait in the queue.
        let known = |row: u64, _| self.queue.contains_row(row);
        self.scans.scan_new(scan, buckets, &known).await
    }

    /// True if there are more free slots than fresh signals that could start: a daemon at its limit takes over no tasks
    /// of others.
    fn has_spare_slots(&self) -> bool {
        !self.queue.is_crowded() && self.has_free_slots()
    }

    /// True if a task that is found now may start before those that wait here: in a slot that is kept for others, or on a
    /// worker.
    fn may_start_more(&self) -> bool {
        self.has_free_slots() || self.queue.demands().has_active()
    }

    fn has_free_slots(&self) -> bool {
        self.queue.free_slots() > self.queue.startable(SignalClass::Fresh)
    }

    /// Signals the tasks of a page. Returns the number of those that may start, here or on another daemon.
    fn signal_page(&self, page: DuePage, findings: &mut Findings) -> usize {
        let DuePage {
            rows,
            foreign,
            next: _,
        } = page;
        findings.report.overdue += rows.len();
        findings.report.foreign += foreign;
        findings.unroutable |= foreign > 0;
        let mut startable = 0;
        let now = self.clock.now();
        for Upcoming {
            key,
            arming,
            due_at,
        } in rows
        {
            let Some(route) = self.router.find(&key) else {
                self.queue.unroutable(&key);
                findings.unroutable = true;
                continue;
            };
            if self.queue.is_idle(&route) {
                // Signalled when a worker asks.
                findings.skipped += 1;
                continue;
            }
            let late = now.since(due_at);
            let class = SignalClass::of_overdue(late);
            let rank = self.ownership.rank(&key);
            let signal = Signal::new(key, Source::Sweep, Some(arming));
            let grace = match rank {
                0 => {
                    match self.queue.push_as(class, signal) {
                        Err(Refused::Blocked) => findings.skipped += 1,
                        Err(Refused::Full) | Ok(()) => startable += 1,
                    }
                    continue;
                }
                // A route at its limit takes over no tasks of others.
                _ if self.queue.blocked_like(&route, &signal.key).is_some() => continue,
                1 => SECOND_GRACE,
                _ => OTHERS_GRACE,
            };
            startable += 1;
            if late < grace {
                let takeover_in = grace - late;
                findings.takeover_in = Some(
                    findings
                        .takeover_in
                        .map_or(takeover_in, |soonest| soonest.min(takeover_in)),
                );
            } else if findings.others.len() < TAKEN_OVER_MAX {
                findings.others.push((class, signal));
            }
        }
        startable
    }

    /// Takes over tasks that others have left waiting. Tasks of a backlog are taken over only when this daemon's own
    /// part is signalled, and from the other end, since their owner may be working on it.
    fn take_over(&self, others: Vec<(SignalClass, Signal)>, includes_backlog: bool) {
        for (class, signal) in others.into_iter().rev() {
            if class == SignalClass::Fresh || includes_backlog {
                // Without room the signal is dropped; the next sweep finds the task again.
                self.queue.push_as(class, signal).unwrap_or(());
            }
        }
    }
}

/// Counts overdue tasks without signalling them, for `lapsed sweep`.
///
/// # Errors
/// [`LedgerError`].
pub async fn count_overdue(scans: &dyn Scans) -> Result<SweepReport, LedgerError> {
    let mut report = SweepReport::default();
    let mut after = None;
    loop {
        let scan = DueScan {
            window: Window::OverdueOldest(Duration::ZERO),
            after,
            limit: PAGE,
        };
        let page = scans.scan(scan).await?;
        report.overdue += page.rows.len();
        report.foreign += page.foreign;
        after = page.next;
        if after.is_none() {
            return Ok(report);
        }
    }
}

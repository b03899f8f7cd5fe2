//! What makes lost events harmless: each second, the sweep of what is overdue.

use std::sync::Arc;
use std::time::Duration;

use tokio::time::Instant;

use crate::engine::deps::Deps;
use crate::engine::pauses::PauseWatch;
use crate::engine::queue::SignalQueue;
use crate::engine::queue::class::SignalClass;
use crate::engine::queue::fair::Refused;
use crate::ledger::{DuePage, DueScan, LedgerError, Upcoming, Window};
use crate::task::{KeyBuckets, Paused, UnixMs};
use crate::timer::{Signal, Source};

/// Rows of one page.
pub const PAGE: u32 = 1_000;

/// Most pages of one scan; the next one goes on from there, or finds them again.
pub const PAGES_MAX: usize = 32;

/// What fell due less than this ago is being claimed just now, on the signal of a timer.
const SWEEP_GRACE: Duration = Duration::from_millis(500);

/// When others come in for a task whose owner has not claimed it: the next in line, and then everybody else.
const NEXT_GRACE: Duration = Duration::from_millis(1_000);
const OTHERS_GRACE: Duration = Duration::from_millis(1_250);

/// Sweeps for their sake are so far apart, at least. Added to the last grace it is well below 2 s.
const RIPE_PAUSE: Duration = Duration::from_millis(250);

/// Most tasks of others that one sweep takes over.
const TAKEN_OVER_MAX: usize = 4_000;

/// Most tasks that one sweep passes by because their routes have more than they can start: what is behind them is
/// looked for, but not all at once.
const PASSED_BY_MAX: usize = 8 * PAGE as usize;

/// How long one sweep goes through old rows among which many are paused; the next one goes on from there.
const AROUND_PAUSED: Duration = Duration::from_millis(100);

/// Rest between two sweeps, at least.
const SWEEP_PAUSE: Duration = Duration::from_millis(50);

/// How often the ledger's clock is read.
const CLOCK_EVERY: Duration = Duration::from_secs(5);

/// What one sweep found.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, serde::Serialize)]
pub struct SweepReport {
    /// Overdue tasks that were handed in.
    pub overdue: usize,
    /// Overdue rows whose key is no task key.
    pub foreign: usize,
}

/// Where the scans are.
#[derive(Debug, Default)]
struct Cursors {
    /// The sweep goes round: due rows that nothing here can run are passed by.
    sweep: Option<(UnixMs, u64)>,
    clock_read: Option<Instant>,
    /// The log says that there are rows whose key is no task key.
    told_of_foreign: bool,
    /// When somebody else's task will have waited for long enough, if the last sweep saw one.
    ripe_in: Option<Duration>,
}

/// What a sweep has seen so far.
#[derive(Debug, Default)]
struct Seen {
    report: SweepReport,
    /// Tasks that others have left waiting.
    of_others: Vec<(SignalClass, Signal)>,
    /// When the next one of these will be.
    ripe_in: Option<Duration>,
    /// Tasks of routes that can start none of them soon.
    passed_by: usize,
}

/// Finds overdue tasks whose signal was lost.
pub struct Sweep {
    pub deps: Arc<Deps>,
    pub queue: Arc<SignalQueue>,
    pub pauses: Arc<PauseWatch>,
}

impl Sweep {
    /// Reconciles every `sweep.interval`, and at once when asked to, until the engine stops.
    pub async fn run(self) {
        let mut cursors = Cursors::default();
        let work = async {
            loop {
                self.sweep(&mut cursors).await;
                // However often somebody asks.
                tokio::time::sleep(SWEEP_PAUSE).await;
                // Asked means something; unasked it is the promise that nothing waits longer than this.
                let interval = self.deps.jittered(self.deps.sweep.interval);
                let ripe_in = cursors.ripe_in.take().unwrap_or(interval);
                let pause = interval.min(ripe_in.max(RIPE_PAUSE));
                tokio::select! {
                    () = tokio::time::sleep(pause) => {}
                    () = self.deps.activate.sweep.activated() => {}
                    () = self.queue.drained() => {}
                }
            }
        };
        self.deps.lifecycle.until_stopped(work).await;
    }

    async fn sweep(&self, cursors: &mut Cursors) {
        // Results that are known but not yet written come first: their rows only look overdue.
        if self.deps.health.settlements_wait() {
            return;
        }
        let result = match self.deps.owners_come_first().await {
            Ok(true) => return,
            Ok(false) => self.try_sweep(cursors).await,
            Err(error) => Err(error),
        };
        match result {
            Ok(()) => self.deps.ledger_answered(),
            Err(error) => self.deps.ledger_failed("reconcile", &error),
        }
    }

    async fn try_sweep(&self, cursors: &mut Cursors) -> Result<(), LedgerError> {
        if cursors
            .clock_read
            .is_none_or(|read| read.elapsed() >= CLOCK_EVERY)
        {
            self.deps.ledger.sync_clock().await?;
            cursors.clock_read = Some(Instant::now());
        }
        if self.deps.sweep.enabled {
            self.sweep_once(cursors).await?;
        }
        Ok(())
    }

    /// Hands in what is overdue: from where the last sweep stopped, and a page of the newest, so that a backlog
    /// that cannot be worked off does not hide what fell due just now. Our own first; what others have left waiting
    /// when all is seen.
    async fn sweep_once(&self, cursors: &mut Cursors) -> Result<SweepReport, LedgerError> {
        let mut seen = Seen::default();
        let newest = DueScan {
            window: Window::OverdueNewest(SWEEP_GRACE),
            after: None,
            limit: PAGE,
        };
        let paused = self.pauses.paused();
        let has_room = self.has_room();
        // A daemon at its limit takes nothing from others, so it does not read their rows.
        let among = match has_room {
            true => KeyBuckets::all(),
            false => self.deps.ownership.own_buckets(),
        };
        let asked = Instant::now();
        let newest = self.scan_overdue(newest, &among, &paused).await?;
        if self.deps.health.answered_late(asked) {
            return Ok(seen.report);
        }
        let more = newest.next.is_some();
        self.hand_in(newest, &mut seen);
        if !more {
            cursors.sweep = None;
        }
        let began = Instant::now();
        for _ in 0..PAGES_MAX {
            let passed_by = seen.passed_by >= PASSED_BY_MAX;
            if !more || passed_by || !self.queue.has_room_to_sweep(PAGE as usize) {
                break;
            }
            if !paused.is_empty() && began.elapsed() >= AROUND_PAUSED {
                break;
            }
            let oldest = DueScan {
                window: Window::OverdueOldest(SWEEP_GRACE),
                after: cursors.sweep,
                limit: PAGE,
            };
            let asked = Instant::now();
            let page = self.scan_overdue(oldest, &among, &paused).await?;
            if self.deps.health.answered_late(asked) {
                break;
            }
            cursors.sweep = page.next;
            self.hand_in(page, &mut seen);
            if cursors.sweep.is_none() {
                break;
            }
        }
        let Seen {
            report,
            of_others,
            ripe_in,
            passed_by: _,
        } = seen;
        if report.foreign > 0 && !cursors.told_of_foreign {
            cursors.told_of_foreign = true;
            tracing::warn!(
                rows = report.foreign,
                "rows are overdue whose key is no task key: nothing runs them; `lapsed list --state overdue` shows them, `lapsed cancel --prefix` takes them away"
            );
        }
        if has_room {
            self.take_over(of_others, cursors.sweep.is_none());
            cursors.ripe_in = ripe_in;
        }
        Ok(report)
    }

    /// A page of what is overdue and may start, of these buckets at least.
    async fn scan_overdue(
        &self,
        scan: DueScan,
        among: &KeyBuckets,
        paused: &Paused,
    ) -> Result<DuePage, LedgerError> {
        let ledger = &self.deps.ledger;
        // The ledger would walk past every overdue row to find none.
        if among.is_empty() {
            return Ok(DuePage::default());
        }
        if !paused.is_empty() {
            return ledger.pauses().scan_unpaused(scan, paused).await;
        }
        // In a burst most of what is overdue waits here already.
        let known = |row: u64, _| self.queue.contains_row(row);
        ledger.scan_news(scan, among, &known).await
    }

    /// Whether there is more room for runs here than there are tasks that wait for it: who is at its limit does not
    /// take from others.
    fn has_room(&self) -> bool {
        !self.queue.is_crowded()
            && self.queue.free_slots() > self.queue.startable(SignalClass::Fresh)
    }

    fn hand_in(&self, page: DuePage, seen: &mut Seen) {
        let DuePage {
            rows,
            foreign,
            next: _,
        } = page;
        seen.report.overdue += rows.len();
        seen.report.foreign += foreign;
        let now = self.deps.ledger.clock().now();
        for Upcoming {
            key,
            arming,
            due_at,
        } in rows
        {
            let Some(route) = self.deps.router.find(&key) else {
                self.queue.unroutable(&key);
                continue;
            };
            let late = now.since(due_at);
            let class = SignalClass::of_overdue(late);
            let rank = self.deps.ownership.rank(&key);
            let signal = Signal {
                key,
                source: Source::Sweep,
                arming: Some(arming),
            };
            let grace = match rank {
                0 => {
                    if self.queue.push_as(class, signal) == Err(Refused::Held) {
                        seen.passed_by += 1;
                    }
                    continue;
                }
                // Who is at its limit does not take from others.
                _ if self.queue.held(&route.name).is_some() => continue,
                1 => NEXT_GRACE,
                _ => OTHERS_GRACE,
            };
            if late < grace {
                let ripe_in = grace - late;
                seen.ripe_in = Some(seen.ripe_in.map_or(ripe_in, |soonest| soonest.min(ripe_in)));
            } else if seen.of_others.len() < TAKEN_OVER_MAX {
                seen.of_others.push((class, signal));
            }
        }
    }

    /// Takes over what others have left waiting; of a backlog only when our own part of it is handed in, and from its
    /// other end, since its owner may be at it.
    fn take_over(&self, of_others: Vec<(SignalClass, Signal)>, backlog_too: bool) {
        for (class, signal) in of_others.into_iter().rev() {
            if class == SignalClass::Fresh || backlog_too {
                // What there is no room for is found again.
                self.queue.push_as(class, signal).unwrap_or(());
            }
        }
    }
}

/// Counts what is overdue, and signals nothing: for `lapsed sweep`.
///
/// # Errors
/// [`LedgerError`].
pub async fn count_overdue(deps: &Deps) -> Result<SweepReport, LedgerError> {
    let mut report = SweepReport::default();
    let mut after = None;
    loop {
        let scan = DueScan {
            window: Window::OverdueOldest(Duration::ZERO),
            after,
            limit: PAGE,
        };
        let page = deps.ledger.scan(scan).await?;
        report.overdue += page.rows.len();
        report.foreign += page.foreign;
        after = page.next;
        if after.is_none() {
            return Ok(report);
        }
    }
}

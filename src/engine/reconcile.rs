//! What makes lost events harmless: the look-ahead and the sweep each second, the audit when keys may be missing.

use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use tokio::time::Instant;

use super::Shared;
use crate::ledger::{DuePage, DueScan, LedgerError, Upcoming, Window};
use crate::task::{DELAY_MAX, TaskKey, UnixMs};
use crate::timer::{Alarm, ArmMode, Cause, Remaining, Signal, Source};

/// Rows of one page.
const PAGE: u32 = 1_000;

/// Most pages of one scan; the next one goes on from there, or finds them again.
const PAGES_MAX: usize = 64;

/// How far the look-ahead reads anew each time, at least until it comes again: rows are moved and created
/// in place, behind its edge.
const NEAR: Duration = Duration::from_secs(2);

/// How often the ledger's clock is read.
const CLOCK_EVERY: Duration = Duration::from_secs(5);

/// Audits are at least so far apart, unless Redis is another one.
const AUDIT_EVERY: Duration = Duration::from_secs(60);

/// How exactly a key's remaining time must fit its row's due time to speak for it: a second for programs that
/// count in seconds, and some for the way.
const FITS_MS: u64 = 2_000;

/// How often tasks are counted for the metrics, if counting is quick.
const COUNT_EVERY: Duration = Duration::from_secs(15);

/// Counting may take a hundredth of the time.
const COUNT_SHARE: u32 = 100;

/// What one sweep found.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, serde::Serialize)]
pub struct SweepReport {
    /// Overdue tasks that were handed in.
    pub overdue: usize,
    /// Overdue rows whose key is no task key.
    pub foreign: usize,
}

/// What one audit found and did.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, serde::Serialize)]
pub struct AuditReport {
    /// Future tasks that were looked at.
    pub pending: usize,
    /// Keys armed again.
    pub rearmed: usize,
    /// Rows that a legacy program had deleted and armed again.
    pub revived: usize,
}

/// Where the scans are.
#[derive(Debug, Default)]
struct Cursors {
    /// The sweep goes round: due rows that nothing here can run are passed by.
    sweep: Option<(UnixMs, u64)>,
    /// Up to where due times are in memory.
    edge: Option<UnixMs>,
    clock_read: Option<Instant>,
    audited: Option<Instant>,
    /// Asked for too soon after the last.
    audit_owed: Option<Cause>,
}

impl Shared {
    /// Reconciles every `sweep.interval`, and at once when asked to, until the engine stops.
    pub(super) async fn reconcile_until_stopped(self: Arc<Self>) {
        let mut cursors = Cursors::default();
        let work = async {
            loop {
                self.reconcile(&mut cursors).await;
                // Asked means something; unasked it is the promise that nothing waits longer than this.
                let _ =
                    tokio::time::timeout(self.jittered(self.sweep.interval), self.intake.asked())
                        .await;
            }
        };
        self.stopping.run_until_cancelled(work).await;
    }

    /// Daemons that started together must not sweep together.
    fn jittered(&self, interval: Duration) -> Duration {
        interval.mul_f64(rand::random_range(0.9..=1.0))
    }

    async fn reconcile(&self, cursors: &mut Cursors) {
        let wanted = self.intake.wanted();
        cursors.audit_owed = wanted.audit.or(cursors.audit_owed);
        // Results that are known but not yet written come first: their rows only look overdue.
        if self.settlements_held_up.load(Ordering::Relaxed) {
            return;
        }
        let result = self.try_reconcile(cursors).await;
        match result {
            Ok(()) => self.ledger_answered(),
            Err(error) => self.ledger_failed("reconcile", &error),
        }
    }

    async fn try_reconcile(&self, cursors: &mut Cursors) -> Result<(), LedgerError> {
        if cursors
            .clock_read
            .is_none_or(|read| read.elapsed() >= CLOCK_EVERY)
        {
            self.parts.ledger.sync_clock().await?;
            cursors.clock_read = Some(Instant::now());
        }
        self.sweep_once(cursors).await?;
        if self.nudge.enabled {
            self.look_ahead(cursors).await?;
        }
        self.revive_deleted(self.nudge.horizon).await?;
        if let Some(cause) = self.audit_due(cursors) {
            cursors.audited = Some(Instant::now());
            cursors.audit_owed = None;
            let report = self.audit(cause).await?;
            tracing::info!(
                cause = cause.as_str(),
                pending = report.pending,
                rearmed = report.rearmed,
                revived = report.revived,
                "audited"
            );
        }
        Ok(())
    }

    fn audit_due(&self, cursors: &Cursors) -> Option<Cause> {
        let cause = cursors.audit_owed?;
        let soon = cursors
            .audited
            .is_some_and(|audited| audited.elapsed() < AUDIT_EVERY);
        (!soon || cause == Cause::RedisChanged).then_some(cause)
    }

    /// Hands in what is overdue: from where the last sweep stopped, and a page of the newest, so that a backlog
    /// that cannot be worked off does not hide what fell due just now.
    async fn sweep_once(&self, cursors: &mut Cursors) -> Result<SweepReport, LedgerError> {
        let mut report = SweepReport::default();
        let newest = DueScan {
            window: Window::OverdueNewest,
            after: None,
            limit: PAGE,
        };
        let newest = self.parts.ledger.scan(newest).await?;
        let more = newest.next.is_some();
        self.hand_in(newest, &mut report);
        if !more {
            cursors.sweep = None;
            return Ok(report);
        }
        for _ in 0..PAGES_MAX {
            if self.intake.swept_room() < PAGE as usize {
                break;
            }
            let page = self
                .parts
                .ledger
                .scan(DueScan {
                    window: Window::OverdueOldest,
                    after: cursors.sweep,
                    limit: PAGE,
                })
                .await?;
            cursors.sweep = page.next;
            self.hand_in(page, &mut report);
            if cursors.sweep.is_none() {
                break;
            }
        }
        Ok(report)
    }

    fn hand_in(&self, page: DuePage, report: &mut SweepReport) {
        let DuePage {
            rows,
            foreign,
            next: _,
        } = page;
        report.overdue += rows.len();
        report.foreign += foreign;
        for Upcoming {
            key,
            arming,
            due_at: _,
        } in rows
        {
            if self.parts.router.find(&key).is_some() {
                self.sink().raise(Signal {
                    key,
                    source: Source::Sweep,
                    arming: Some(arming),
                });
            } else {
                self.unroutable(&key);
            }
        }
    }

    /// Tells the timer what falls due in the next seconds: the near window in full, then the new edge.
    async fn look_ahead(&self, cursors: &mut Cursors) -> Result<(), LedgerError> {
        let now = self.parts.ledger.clock().now();
        let horizon = self.nudge.horizon;
        let near = NEAR.max(self.sweep.interval.saturating_mul(2)).min(horizon);
        self.expect_window(near, None).await?;
        let edge = cursors.edge.unwrap_or(now).max(now.plus(near));
        self.expect_window(horizon, Some(edge)).await?;
        cursors.edge = Some(now.plus(horizon));
        Ok(())
    }

    async fn expect_window(&self, span: Duration, from: Option<UnixMs>) -> Result<(), LedgerError> {
        let mut after = from.map(|edge| (edge, 0));
        for _ in 0..PAGES_MAX {
            let page = self
                .parts
                .ledger
                .scan(DueScan {
                    window: Window::Ahead(span),
                    after,
                    limit: PAGE,
                })
                .await?;
            after = page.next;
            let runnable = page
                .rows
                .into_iter()
                .filter(|row| self.parts.router.find(&row.key).is_some());
            self.parts.timer.expect(runnable.map(alarm).collect());
            if after.is_none() {
                return Ok(());
            }
        }
        Ok(())
    }

    /// A program that knows only the first six columns deletes with `sts = 1` and never takes that back when it
    /// creates the task again. Which of the two a row means, only Redis can tell: a key that is armed for this
    /// row's due time speaks for a new creation.
    async fn revive_deleted(&self, span: Duration) -> Result<usize, LedgerError> {
        let (mut after, mut revived) = (None, 0);
        for _ in 0..PAGES_MAX {
            let page = self
                .parts
                .ledger
                .scan(DueScan {
                    window: Window::DeletedAhead(span),
                    after,
                    limit: PAGE,
                })
                .await?;
            after = page.next;
            revived += self.revive_armed(page.rows).await?;
            if after.is_none() {
                break;
            }
        }
        Ok(revived)
    }

    async fn revive_armed(&self, rows: Vec<Upcoming>) -> Result<usize, LedgerError> {
        if rows.is_empty() {
            return Ok(0);
        }
        let keys: Vec<TaskKey> = rows.iter().map(|row| row.key.clone()).collect();
        // Without Redis there is no evidence, and a deletion is a deletion.
        let Ok(remaining) = self.parts.timer.remaining(&keys).await else {
            return Ok(0);
        };
        let now = self.parts.ledger.clock().now();
        let mut revived = Vec::new();
        for (row, remaining) in rows.into_iter().zip(remaining) {
            let Remaining::Ms(remaining_ms) = remaining else {
                continue;
            };
            let due_in_ms = row.arming.due.since(now).as_millis() as u64;
            if remaining_ms.abs_diff(due_in_ms) <= FITS_MS
                && self.parts.ledger.revive(row.arming).await?
            {
                revived.push(alarm(row));
            }
        }
        let count = revived.len();
        if count > 0 {
            tracing::info!(
                tasks = count,
                "revived tasks that were deleted and armed again by another program"
            );
            self.hold(revived);
        }
        Ok(count)
    }

    /// Goes through every future task, the soonest first, and arms what the timer has lost.
    async fn audit(&self, cause: Cause) -> Result<AuditReport, LedgerError> {
        let mut report = AuditReport {
            revived: self.revive_deleted(DELAY_MAX).await?,
            ..AuditReport::default()
        };
        let mut after = None;
        loop {
            let page = self
                .parts
                .ledger
                .scan(DueScan {
                    window: Window::Ahead(DELAY_MAX),
                    after,
                    limit: PAGE,
                })
                .await?;
            after = page.next;
            report.pending += page.rows.len();
            let alarms: Vec<Alarm> = page.rows.into_iter().map(alarm).collect();
            match self.parts.timer.arm(&alarms, ArmMode::IfMissing).await {
                Ok(armed) => report.rearmed += armed.written,
                Err(error) => {
                    tracing::warn!(%error, "audit stopped: the timer does not answer; the next connection starts another");
                    break;
                }
            }
            if after.is_none() {
                break;
            }
            // What falls due meanwhile comes first.
            tokio::task::yield_now().await;
        }
        self.parts
            .metrics
            .audited(cause.as_str(), report.rearmed as u64);
        Ok(report)
    }

    /// One sweep and one audit that run nothing: for `lapsed sweep`.
    pub(super) async fn reconcile_for_people(
        &self,
    ) -> Result<(SweepReport, AuditReport), LedgerError> {
        self.parts.ledger.check().await?;
        let mut sweep = SweepReport::default();
        let mut after = None;
        loop {
            let page = self
                .parts
                .ledger
                .scan(DueScan {
                    window: Window::OverdueOldest,
                    after,
                    limit: PAGE,
                })
                .await?;
            sweep.overdue += page.rows.len();
            sweep.foreign += page.foreign;
            after = page.next;
            if after.is_none() {
                break;
            }
        }
        Ok((sweep, self.audit(Cause::Asked).await?))
    }

    /// Keeps the gauges of tasks by state fresh, as often as counting is cheap.
    pub(super) async fn count_tasks_until_stopped(self: Arc<Self>) {
        let Some(catalog) = self.parts.catalog.clone() else {
            return;
        };
        let work = async {
            loop {
                let asked = Instant::now();
                match catalog.stats().await {
                    Ok(stats) => self.parts.metrics.counted(&stats),
                    Err(error) => self.ledger_failed("count tasks", &error),
                }
                tokio::time::sleep(COUNT_EVERY.max(asked.elapsed() * COUNT_SHARE)).await;
            }
        };
        self.stopping.run_until_cancelled(work).await;
    }

    pub(super) fn ledger_answered(&self) {
        if !self.ledger_answers.swap(true, Ordering::Relaxed) {
            tracing::info!("the ledger answers again");
        }
    }

    /// The ledger did not do what it was asked: one line per verb and interval.
    pub(super) fn ledger_failed(&self, verb: &'static str, error: &LedgerError) {
        self.ledger_answers
            .store(!error.is_transient(), Ordering::Relaxed);
        if let Some(held_back) = self.complaints.admit(verb) {
            tracing::error!(%error, held_back, "could not {verb}; trying again");
        }
    }

    /// Nothing here can run it: said once for each class and method.
    pub(super) fn unroutable(&self, key: &TaskKey) {
        const REMEMBERED_MAX: usize = 1_000;
        self.parts.metrics.dropped("unroutable", 1);
        let mut known = self
            .unroutable
            .lock()
            .expect("nothing panics while holding it");
        if known.len() < REMEMBERED_MAX && known.insert(key.class_method().to_owned()) {
            tracing::warn!(
                task.class_method = key.class_method(),
                "no handler and no route: its tasks stay pending"
            );
        }
    }
}

fn alarm(row: Upcoming) -> Alarm {
    let Upcoming {
        key,
        arming,
        due_at,
    } = row;
    Alarm {
        key,
        due: due_at,
        arming: Some(arming),
    }
}

//! The audit: goes through every future task, arms what the timer has lost, and brings back what a legacy
//! program deleted and created again. Beside the sweep, not before it: a million keys take a while.

use std::sync::Arc;
use std::time::Duration;

use tokio::time::Instant;

use super::Shared;
use super::look_ahead::alarm;
use super::reconcile::{PAGE, PAGES_MAX};
use crate::fleet::Turn;
use crate::ledger::{Arming, DueScan, LedgerError, Upcoming, Window};
use crate::task::{DELAY_MAX, TaskKey, UnixMs};
use crate::timer::{Alarm, ArmMode, Cause, Remaining};

/// Audits are at least so far apart, unless Redis is another one.
const AUDIT_EVERY: Duration = Duration::from_secs(60);

/// How long the first audit waits for a subscription.
const SUBSCRIBED_WITHIN: Duration = Duration::from_secs(3);

/// Daemons that ask for an audit within so long are served by one.
const TOGETHER: Duration = Duration::from_millis(500);

/// How long after it broke off an audit goes on from there.
const BROKEN_OFF_KEPT: Duration = Duration::from_secs(60);

/// When it goes on if nobody asks for it before.
const BROKEN_OFF_PAUSE: Duration = Duration::from_secs(10);

/// How long the roster may take to say whose turn it is.
const TURN_PATIENCE: Duration = Duration::from_secs(1);

/// When to ask first whether another daemon is through with its audit.
const TURN_ASKED_AGAIN: Duration = Duration::from_millis(500);

/// How often a long audit says that it still goes on.
const TURN_PROLONGED: Duration = Duration::from_secs(20);

/// Longest rest after a page. It rests for as long as the page took, so that what falls due meanwhile finds the ledger,
/// Redis and this process at leisure half of the time.
const REST_MAX: Duration = Duration::from_millis(500);

/// How long to wait when the ledger did not answer.
const OUTAGE_PAUSE: Duration = Duration::from_secs(1);

/// How exactly a key's remaining time must fit its row's due time to speak for it: a second for programs that
/// count in seconds, and some for the way.
const FITS: Duration = Duration::from_secs(2);

/// How long the evidence for a new creation has to stand.
const DELETION_TAKES: Duration = Duration::from_millis(100);

/// How long Redis may take to give it: the sweep waits behind this.
const EVIDENCE_PATIENCE: Duration = Duration::from_millis(250);

/// Rest between two pages of keys, of a thousand each.
const SCAN_PAUSE: Duration = Duration::from_millis(10);

/// What one audit found and did.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, serde::Serialize)]
pub struct AuditReport {
    /// Future tasks that were looked at.
    pub pending: usize,
    /// Keys armed again.
    pub rearmed: usize,
    /// Rows that a legacy program had deleted and armed again.
    pub revived: usize,
    /// Rows written for keys that other programs had armed.
    pub adopted: usize,
    /// Whether it came to its end: it breaks off when the timer does not answer.
    pub complete: bool,
}

/// How far an audit has come.
#[derive(Debug, Default)]
pub(super) struct Progress {
    report: AuditReport,
    /// The row after which it goes on.
    after: Option<(UnixMs, u64)>,
    /// When it began, on the ledger's clock.
    began: Option<UnixMs>,
    /// When it broke off.
    broke_off: Option<Instant>,
}

impl Progress {
    /// What is left to do after `self` broke off. All, if that was long ago, or the timer has lost its data since.
    fn go_on(self, cause: Cause) -> Self {
        let lately = |at: Instant| at.elapsed() < BROKEN_OFF_KEPT;
        match self.broke_off {
            Some(at) if lately(at) && cause != Cause::RedisChanged => Self {
                broke_off: None,
                ..self
            },
            _ => Self::default(),
        }
    }
}

impl Shared {
    /// Audits when asked to, until the engine stops: at once when Redis is another one, else at most once a minute.
    pub(super) async fn audit_until_stopped(self: Arc<Self>) {
        let work = async {
            let mut last: Option<Instant> = None;
            let mut progress = Progress::default();
            loop {
                let cause = self.intake.audit_wanted().await;
                let since = self.serves_since(cause);
                let cause = match last {
                    Some(last) if cause != Cause::RedisChanged => {
                        self.wait_turn(last + AUDIT_EVERY, cause).await
                    }
                    // What is armed before there is a subscription would need another one.
                    None if self.parts.timer.is_listening() == Some(false) => {
                        self.wait_turn(Instant::now() + SUBSCRIBED_WITHIN, cause)
                            .await
                    }
                    _ => cause,
                };
                if !self.our_turn(since).await {
                    self.parts.metrics.audit_skipped();
                    tracing::debug!(cause = cause.as_str(), "another daemon has audited");
                    continue;
                }
                let began = Instant::now();
                progress = progress.go_on(cause);
                let began_at = *progress
                    .began
                    .get_or_insert(self.parts.ledger.clock().now());
                match self.audit(cause, &mut progress).await {
                    Ok(()) if progress.broke_off.is_some() => {
                        let wanted = self.intake.audit_wanted();
                        let wanted = tokio::time::timeout(BROKEN_OFF_PAUSE, wanted).await;
                        self.sink().audit(wanted.unwrap_or(cause));
                    }
                    Ok(()) => {
                        last = Some(began);
                        self.turn_over(began_at).await;
                        let AuditReport {
                            pending,
                            rearmed,
                            revived,
                            adopted,
                            complete: _,
                        } = progress.report;
                        tracing::info!(
                            cause = cause.as_str(),
                            pending,
                            rearmed,
                            revived,
                            adopted,
                            "audited"
                        );
                    }
                    Err(error) => {
                        progress.broke_off = Some(Instant::now());
                        self.ledger_failed("audit", &error);
                        self.sink().audit(cause);
                        tokio::time::sleep(OUTAGE_PAUSE).await;
                    }
                }
            }
        };
        self.stopping.run_until_cancelled(work).await;
    }

    /// Until then, or until something happens that does not wait.
    async fn wait_turn(&self, turn: Instant, mut cause: Cause) -> Cause {
        let is_first = cause == Cause::Start;
        while cause != Cause::RedisChanged {
            match tokio::time::timeout_at(turn, self.intake.audit_wanted()).await {
                Ok(Cause::Subscribed) if is_first => return Cause::Subscribed,
                Ok(stronger) => cause = stronger,
                Err(_) => break,
            }
        }
        cause
    }

    /// Since when an audit by another daemon serves. All hear the same sentinels; what has passed this daemon by, an audit
    /// that began before says nothing of.
    fn serves_since(&self, cause: Cause) -> UnixMs {
        let back = match cause {
            Cause::Sentinel => AUDIT_EVERY,
            // What is armed since it lost its data may be little of what there was.
            Cause::RedisChanged => Duration::ZERO,
            _ => TOGETHER,
        };
        let now = self.parts.ledger.clock().now();
        UnixMs(now.0.saturating_sub(back.as_millis() as i64))
    }

    /// Waits until it is our turn to audit; false when an audit by another daemon serves.
    async fn our_turn(&self, since: UnixMs) -> bool {
        let mut pause = TURN_ASKED_AGAIN;
        loop {
            match self.turn(since).await {
                Turn::Ours => return true,
                Turn::Over => return false,
                // It may die at it.
                Turn::Others => tokio::time::sleep(pause).await,
            }
            pause = (2 * pause).min(TURN_PROLONGED);
        }
    }

    /// Takes or prolongs the turn. Where that cannot be asked, each daemon audits.
    async fn turn(&self, since: UnixMs) -> Turn {
        let taken = self.parts.roster.take_audit(self.share.me(), since);
        match tokio::time::timeout(TURN_PATIENCE, taken).await {
            Ok(Ok(turn)) => turn,
            Ok(Err(error)) => {
                tracing::debug!(%error, "not known whose turn it is to audit");
                Turn::Ours
            }
            Err(_) => Turn::Ours,
        }
    }

    async fn turn_over(&self, began: UnixMs) {
        let told = self.parts.roster.audited(self.share.me(), began);
        if !matches!(tokio::time::timeout(TURN_PATIENCE, told).await, Ok(Ok(()))) {
            tracing::debug!("could not tell the other daemons of this audit: they audit too");
        }
    }

    /// One audit for somebody who waits for it.
    pub(super) async fn audit_now(&self) -> Result<AuditReport, LedgerError> {
        let mut progress = Progress::default();
        self.audit(Cause::Asked, &mut progress).await?;
        Ok(progress.report)
    }

    /// Goes through every future task that the timer arms by now, the soonest first, and arms what it has lost. On a failure, of the ledger or
    /// (without an error) of the timer, `progress` tells where to go on.
    async fn audit(&self, cause: Cause, progress: &mut Progress) -> Result<(), LedgerError> {
        progress.report.revived += self.revive_deleted(DELAY_MAX).await?;
        let mut prolonged = Instant::now();
        // What lies beyond is armed as it comes near.
        let horizon = self.parts.timer.horizon();
        let span = horizon.map_or(DELAY_MAX, |horizon| horizon.min(DELAY_MAX));
        loop {
            let began = Instant::now();
            let page = self
                .parts
                .ledger
                .scan(DueScan {
                    window: Window::Ahead(span),
                    after: progress.after,
                    limit: PAGE,
                })
                .await?;
            let (next, pending) = (page.next, page.rows.len());
            let alarms: Vec<Alarm> = page.rows.into_iter().map(alarm).collect();
            match self.parts.timer.arm(&alarms, ArmMode::IfMissing).await {
                Ok(armed) => progress.report.rearmed += armed.written,
                Err(error) => {
                    tracing::warn!(%error, "audit stopped: the timer does not answer; the next connection has it go on");
                    progress.broke_off = Some(Instant::now());
                    return Ok(());
                }
            }
            progress.report.pending += pending;
            progress.after = next;
            if next.is_none() {
                break;
            }
            // What falls due meanwhile comes first.
            if cause == Cause::Asked {
                tokio::task::yield_now().await;
            } else {
                tokio::time::sleep(began.elapsed().min(REST_MAX)).await;
                self.keep_turn(&mut prolonged).await;
            }
        }
        if self.parts.router.adopts_any() {
            let (adopted, complete) = self.adopt_armed(cause, &mut prolonged).await?;
            progress.report.adopted += adopted;
            if !complete {
                progress.broke_off = Some(Instant::now());
                return Ok(());
            }
        }
        progress.report.complete = true;
        self.parts
            .metrics
            .audited(cause.as_str(), progress.report.rearmed as u64);
        Ok(())
    }

    /// A long audit says now and then that it still goes on.
    async fn keep_turn(&self, prolonged: &mut Instant) {
        if prolonged.elapsed() >= TURN_PROLONGED {
            *prolonged = Instant::now();
            self.turn(UnixMs(0)).await;
        }
    }

    /// Goes through the keys, and adopts those that the ledger lacks: armed while nobody listened. Slowly, since
    /// what falls due meanwhile comes first; whoever waits for an urgent audit does not wait for the end of this.
    /// Tells how many rows were written, and whether all keys were seen.
    async fn adopt_armed(
        &self,
        cause: Cause,
        prolonged: &mut Instant,
    ) -> Result<(usize, bool), LedgerError> {
        let (mut cursor, mut adopted) = (None, 0);
        loop {
            let wants = |key: &TaskKey| self.parts.router.adopts(key);
            let page = match self.parts.timer.armed_elsewhere(cursor, &wants).await {
                Ok(page) => page,
                Err(error) => {
                    if let Some(held_back) = self.complaints.admit("go through the keys") {
                        tracing::warn!(%error, held_back, "keys that were armed without a row may be left; the next audit goes through them again");
                    }
                    // What is refused is refused the next time, too.
                    return Ok((adopted, !error.is_transient()));
                }
            };
            adopted += self.adopt(page.foreign).await?;
            cursor = page.next;
            if cursor.is_none() {
                return Ok((adopted, true));
            }
            if self.intake.audit_is_urgent() {
                return Ok((adopted, false));
            }
            tokio::time::sleep(SCAN_PAUSE).await;
            if cause != Cause::Asked {
                self.keep_turn(prolonged).await;
            }
        }
    }

    /// A program that knows only the first six columns deletes with `sts = 1` and never takes that back when it
    /// creates the task again. Which of the two a row means, only Redis can tell: a key that is armed for this
    /// row's due time speaks for a new creation.
    pub(super) async fn revive_deleted(&self, span: Duration) -> Result<usize, LedgerError> {
        let (mut after, mut revived) = (None, 0);
        for _ in 0..PAGES_MAX {
            let page = self
                .parts
                .ledger
                .scan(DueScan {
                    window: Window::Deleted {
                        back: FITS,
                        ahead: span,
                    },
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
        let mut armed = self.armed_for_their_rows(rows).await;
        if !armed.is_empty() {
            // Its deletion writes the row first and the key after that: what is seen between the two is no evidence.
            tokio::time::sleep(DELETION_TAKES).await;
            armed = self.armed_for_their_rows(armed).await;
        }
        let mut revived = Vec::new();
        for row in armed {
            if self.parts.ledger.revive(row.arming).await? {
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

    /// A deleted row whose key expired at its due time had been created again, too shortly before to be seen armed:
    /// a key that was deleted with its row does not expire.
    pub(super) async fn revive_expired(&self, arming: Arming) -> Result<bool, LedgerError> {
        let now = self.parts.ledger.clock().now();
        let fits = arming.due <= now.plus(FITS) && now <= arming.due.plus(FITS);
        Ok(fits && self.parts.ledger.revive(arming).await?)
    }

    /// Those whose keys are armed for their due times. Without Redis there is no evidence, and a deletion is a
    /// deletion.
    async fn armed_for_their_rows(&self, rows: Vec<Upcoming>) -> Vec<Upcoming> {
        let keys: Vec<TaskKey> = rows.iter().map(|row| row.key.clone()).collect();
        let asked = tokio::time::timeout(EVIDENCE_PATIENCE, self.parts.timer.remaining(&keys));
        let Ok(Ok(remaining)) = asked.await else {
            return Vec::new();
        };
        let now = self.parts.ledger.clock().now();
        let fits = |row: &Upcoming, remaining| match remaining {
            Remaining::Ms(remaining_ms) => {
                let due_in_ms = row.arming.due.since(now).as_millis() as u64;
                Duration::from_millis(remaining_ms.abs_diff(due_in_ms)) <= FITS
            }
            Remaining::Missing | Remaining::Forever => false,
        };
        let rows = rows.into_iter().zip(remaining);
        rows.filter(|(row, remaining)| fits(row, *remaining))
            .map(|(row, _)| row)
            .collect()
    }
}

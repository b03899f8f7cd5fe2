//! The audit: goes through every future task, arms what the timer has lost, and brings back what a legacy
//! program deleted and created again. Beside the sweep, not before it: a million keys take a while.

use std::sync::Arc;
use std::time::Duration;

use tokio::time::Instant;

use super::Shared;
use super::look_ahead::alarm;
use super::reconcile::PAGE;
use crate::ledger::{DueScan, LedgerError, Window};
use crate::task::{DELAY_MAX, TaskKey, UnixMs};
use crate::timer::{Alarm, ArmMode, Cause};

/// Audits are at least so far apart, unless Redis is another one.
pub(super) const AUDIT_EVERY: Duration = Duration::from_secs(60);

/// How long the first audit waits for a subscription.
const SUBSCRIBED_WITHIN: Duration = Duration::from_secs(3);

/// How long after it broke off an audit goes on from there.
const BROKEN_OFF_KEPT: Duration = Duration::from_secs(60);

/// When it goes on if nobody asks for it before.
const BROKEN_OFF_PAUSE: Duration = Duration::from_secs(10);

/// Longest rest after a page. It rests for as long as the page took, so that what falls due meanwhile finds the ledger,
/// Redis and this process at leisure half of the time.
const REST_MAX: Duration = Duration::from_millis(500);

/// How long to wait when the ledger did not answer.
const OUTAGE_PAUSE: Duration = Duration::from_secs(1);

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

impl AuditReport {
    fn tell(self, cause: Cause) {
        let Self {
            pending,
            rearmed,
            revived,
            adopted,
            complete: _,
        } = self;
        tracing::info!(
            cause = cause.as_str(),
            pending,
            rearmed,
            revived,
            adopted,
            "audited"
        );
    }
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
                let cause = self.rest_after(last, cause).await;
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
                        self.intake.audit(wanted.unwrap_or(cause));
                    }
                    Ok(()) => {
                        last = Some(began);
                        self.turn_over(began_at).await;
                        progress.report.tell(cause);
                    }
                    Err(error) => {
                        progress.broke_off = Some(Instant::now());
                        self.ledger_failed("audit", &error);
                        self.intake.audit(cause);
                        tokio::time::sleep(OUTAGE_PAUSE).await;
                    }
                }
            }
        };
        self.stopping.run_until_cancelled(work).await;
    }

    /// Waits until it is time for another audit. Answers what it is for by then.
    async fn rest_after(&self, last: Option<Instant>, cause: Cause) -> Cause {
        match last {
            Some(last) if cause != Cause::RedisChanged => {
                self.wait_turn(last + AUDIT_EVERY, cause).await
            }
            // What is armed before there is a subscription would need another one.
            None if self.parts.timer.is_listening() == Some(false) => {
                self.wait_turn(Instant::now() + SUBSCRIBED_WITHIN, cause)
                    .await
            }
            _ => cause,
        }
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

    /// One audit for somebody who waits for it.
    pub(super) async fn audit_now(&self) -> Result<AuditReport, LedgerError> {
        let mut progress = Progress::default();
        self.audit(Cause::Asked, &mut progress).await?;
        Ok(progress.report)
    }

    /// Goes through every future task that the timer arms by now, the soonest first, and arms what it has lost. On a
    /// failure, of the ledger or (without an error) of the timer, `progress` tells where to go on.
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
}

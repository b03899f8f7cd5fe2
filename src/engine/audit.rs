//! The audit: goes through every future task, arms what the timer has lost, and brings back what a legacy
//! program deleted and created again. Beside the sweep, not before it: a million keys take a while.

use std::sync::Arc;
use std::time::Duration;

use tokio::time::Instant;

use super::Shared;
use super::reconcile::{PAGE, PAGES_MAX, alarm};
use crate::ledger::{Arming, DueScan, LedgerError, Upcoming, Window};
use crate::task::{DELAY_MAX, TaskKey};
use crate::timer::{Alarm, ArmMode, Cause, Remaining};

/// Audits are at least so far apart, unless Redis is another one.
const AUDIT_EVERY: Duration = Duration::from_secs(60);

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
}

impl Shared {
    /// Audits when asked to, until the engine stops: at once when Redis is another one, else at most once a minute.
    pub(super) async fn audit_until_stopped(self: Arc<Self>) {
        let work = async {
            let mut last: Option<Instant> = None;
            loop {
                let cause = self.intake.audit_wanted().await;
                let cause = match last {
                    Some(last) if cause != Cause::RedisChanged => {
                        self.wait_turn(last + AUDIT_EVERY, cause).await
                    }
                    _ => cause,
                };
                last = Some(Instant::now());
                match self.audit(cause).await {
                    Ok(AuditReport {
                        pending,
                        rearmed,
                        revived,
                        adopted,
                    }) => {
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
                        self.ledger_failed("audit", &error);
                        self.sink().audit(cause);
                        tokio::time::sleep(OUTAGE_PAUSE).await;
                    }
                }
            }
        };
        self.stopping.run_until_cancelled(work).await;
    }

    /// Until the minute is over, or something happens that does not wait for it.
    async fn wait_turn(&self, turn: Instant, mut cause: Cause) -> Cause {
        while cause != Cause::RedisChanged {
            match tokio::time::timeout_at(turn, self.intake.audit_wanted()).await {
                Ok(stronger) => cause = stronger,
                Err(_) => break,
            }
        }
        cause
    }

    /// Goes through every future task, the soonest first, and arms what the timer has lost.
    pub(super) async fn audit(&self, cause: Cause) -> Result<AuditReport, LedgerError> {
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
        if self.parts.router.adopts_any() {
            report.adopted = self.adopt_armed().await?;
        }
        Ok(report)
    }

    /// Goes through the keys, and adopts those that the ledger lacks: armed while nobody listened. Slowly, since
    /// what falls due meanwhile comes first; whoever waits for an urgent audit does not wait for the end of this.
    async fn adopt_armed(&self) -> Result<usize, LedgerError> {
        let (mut cursor, mut adopted) = (None, 0);
        loop {
            let wants = |key: &TaskKey| self.parts.router.adopts(key);
            let page = match self.parts.timer.armed_elsewhere(cursor, &wants).await {
                Ok(page) => page,
                Err(error) => {
                    if let Some(held_back) = self.complaints.admit("go through the keys") {
                        tracing::warn!(%error, held_back, "keys that were armed without a row may be left; the next audit goes through them again");
                    }
                    return Ok(adopted);
                }
            };
            adopted += self.adopt(page.foreign).await?;
            cursor = page.next;
            if cursor.is_none() || self.intake.audit_is_urgent() {
                return Ok(adopted);
            }
            tokio::time::sleep(SCAN_PAUSE).await;
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

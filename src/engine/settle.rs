//! From outcomes to the ledger: judge, write in batches, and do what follows.

use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use tokio::sync::mpsc;

use super::Shared;
use super::run::Ended;
use crate::ledger::{LedgerError, Ruling, Settled, Settlement};
use crate::task::{Outcome, Verdict, judge};
use crate::timer::{Alarm, Signal, Source};

/// Most settlements of one statement.
const BATCH_MAX: usize = 512;

/// How long to wait before trying again when the ledger did not answer, or a row was locked.
const PAUSE: Duration = Duration::from_millis(500);

impl Shared {
    /// Settles runs as they end, until every sender is gone and everything is written.
    pub(super) async fn settle_all(
        self: Arc<Self>,
        mut unsettled: mpsc::Receiver<Ended>,
        again: mpsc::WeakSender<Ended>,
    ) {
        let mut batch = Vec::with_capacity(BATCH_MAX);
        let mut locked = Vec::new();
        while unsettled.recv_many(&mut batch, BATCH_MAX).await > 0 {
            let batch = std::mem::take(&mut batch);
            locked.extend(self.settle_batch(batch, &again).await);
        }
        while !locked.is_empty() {
            tokio::time::sleep(PAUSE).await;
            locked = self.settle_batch(locked, &again).await;
        }
    }

    /// Answers those whose rows are locked, if nobody is left to hand them in again.
    pub(super) async fn settle_batch(
        &self,
        batch: Vec<Ended>,
        again: &mpsc::WeakSender<Ended>,
    ) -> Vec<Ended> {
        let now = self.parts.ledger.clock().now();
        let judged: Vec<(Ended, Verdict)> = batch
            .into_iter()
            .map(|ended| {
                let verdict = judge(
                    ended.outcome.clone(),
                    ended.claim.attempt,
                    &ended.route.retry,
                    now,
                    rand::random(),
                );
                (ended, verdict)
            })
            .collect();
        let settlements: Vec<Settlement> = judged
            .iter()
            .filter_map(|(ended, verdict)| {
                Some(Settlement {
                    lease: ended.claim.lease,
                    ruling: ruling(verdict)?,
                })
            })
            .collect();
        // Where the handler's own transaction has settled, nothing is looked at: what was signalled since stands.
        let written = judged
            .iter()
            .filter(|(_, verdict)| ruling(verdict).is_some());
        self.intake
            .settling(written.map(|(ended, _)| &ended.claim.key));
        let mut settled = self.write(&settlements).await.into_iter();

        let (mut landed, mut alarms) = (Vec::with_capacity(judged.len()), Vec::new());
        let mut locked = Vec::new();
        for (ended, verdict) in judged {
            let wrote = if ruling(&verdict).is_some() {
                settled.next().flatten()
            } else {
                Some(Settled::Applied)
            };
            if wrote == Some(Settled::Locked) {
                locked.extend(self.settle_later(ended, again));
                continue;
            }
            self.tell(&ended, &verdict, wrote);
            alarms.extend(self.follow_up(&ended, &verdict, wrote));
            landed.push(ended);
        }
        self.leases
            .forget(landed.iter().map(|ended| &ended.claim.lease));
        // A handler that armed its key again has made another arming: its signals are no echoes.
        let (done, open): (Vec<&Ended>, Vec<&Ended>) = landed
            .iter()
            .partition(|ended| matches!(ended.outcome, Outcome::Succeeded | Outcome::Completed));
        self.intake.land_settled(
            done.iter()
                .map(|ended| (&ended.claim.key, ended.claim.lease.arming)),
        );
        self.intake.land(open.iter().map(|ended| &ended.claim.key));
        self.hold(alarms);
        locked
    }

    /// Writes, for as long as it takes. `None`: refused for good, the lease will run out.
    async fn write(&self, settlements: &[Settlement]) -> Vec<Option<Settled>> {
        if settlements.is_empty() {
            return Vec::new();
        }
        match self.write_patiently(settlements).await {
            Ok(settled) => settled.into_iter().map(Some).collect(),
            Err(error) => self.write_singly(settlements, &error).await,
        }
    }

    /// Waits an outage out; an error is a refusal.
    async fn write_patiently(
        &self,
        settlements: &[Settlement],
    ) -> Result<Vec<Settled>, LedgerError> {
        loop {
            match self.parts.ledger.settle(settlements).await {
                Err(error) if error.is_transient() => {
                    self.settlements_held_up.store(true, Ordering::Relaxed);
                    self.ledger_failed("settle runs", &error);
                    tokio::time::sleep(PAUSE).await;
                }
                answer => {
                    self.settlements_held_up.store(false, Ordering::Relaxed);
                    return answer;
                }
            }
        }
    }

    /// One row may be to blame: the others must not suffer.
    async fn write_singly(
        &self,
        settlements: &[Settlement],
        error: &LedgerError,
    ) -> Vec<Option<Settled>> {
        tracing::error!(%error, runs = settlements.len(), "the ledger refused a batch of settlements: writing them one by one");
        let mut settled = Vec::with_capacity(settlements.len());
        for settlement in settlements {
            settled.push(match self.write_patiently(std::slice::from_ref(settlement)).await {
                Ok(settled) => settled.first().copied(),
                Err(error) => {
                    tracing::error!(%error, task.id = %settlement.lease.arming, "the ledger refused a settlement: the task runs again when its lease runs out");
                    None
                }
            });
        }
        settled
    }

    /// Somebody's transaction holds the row; the lease is renewed (or not) meanwhile, the others go on.
    /// Answers it back when the engine is stopping and nobody can hand it in again.
    fn settle_later(&self, ended: Ended, again: &mpsc::WeakSender<Ended>) -> Option<Ended> {
        let Some(again) = again.upgrade() else {
            return Some(ended);
        };
        tracing::debug!(task.key = %ended.claim.key, "row is locked by another session: settled later");
        self.runs.spawn(async move {
            tokio::time::sleep(PAUSE).await;
            // Refused only when the engine has stopped; the lease runs out then.
            let _ = again.send(ended).await;
        });
        None
    }

    /// What has to happen now that it is written.
    fn follow_up(&self, ended: &Ended, verdict: &Verdict, wrote: Option<Settled>) -> Option<Alarm> {
        let claim = &ended.claim;
        match (wrote?, verdict) {
            (Settled::Superseded, _) => {
                self.sink().raise(Signal {
                    key: claim.key.clone(),
                    source: Source::Direct,
                    arming: None,
                });
                None
            }
            (Settled::Applied, Verdict::RetryAt { at, error: _ }) => Some(Alarm {
                key: claim.key.clone(),
                due: *at,
                arming: Some(claim.lease.arming),
            }),
            (Settled::Applied, Verdict::Settled(Some(due))) => Some(Alarm {
                key: claim.key.clone(),
                due: *due,
                arming: None,
            }),
            _ => None,
        }
    }

    /// One line and the counters for how a run ended.
    fn tell(&self, ended: &Ended, verdict: &Verdict, wrote: Option<Settled>) {
        let (claim, route) = (&ended.claim, &*ended.route.name);
        let attempt = claim.attempt.number;
        match (wrote, verdict) {
            (None, _) => {}
            (Some(Settled::Fenced | Settled::Superseded), _) => {
                self.parts.metrics.fenced();
                tracing::warn!(task.class_method = claim.key.class_method(), task.id = %claim.lease.arming, wrote = ?wrote, "result discarded: the claim was no longer ours");
            }
            (Some(Settled::Cancelled), _) => {
                tracing::info!(task.class_method = claim.key.class_method(), task.id = %claim.lease.arming, "cancelled while it ran");
            }
            (_, Verdict::RetryAt { at, error }) if wrote == Some(Settled::Applied) => {
                tracing::warn!(task.class_method = claim.key.class_method(), task.id = %claim.lease.arming, task.attempt = attempt, retry_at = %at, %error, route, "run failed: to be tried again");
            }
            (_, Verdict::Bury { error }) if wrote == Some(Settled::Applied) => {
                self.parts.metrics.buried(route);
                tracing::error!(task.class_method = claim.key.class_method(), task.id = %claim.lease.arming, task.attempt = attempt, %error, route, "task is dead: redrive it when the cause is mended");
            }
            _ => tracing::debug!(task.key = %claim.key, task.attempt = attempt, route, "settled"),
        }
    }
}

/// What the ledger has to write; nothing if the handler's own transaction has.
fn ruling(verdict: &Verdict) -> Option<Ruling> {
    match verdict {
        Verdict::Complete => Some(Ruling::Complete),
        Verdict::Settled(_) => None,
        Verdict::RetryAt { at, error } => Some(Ruling::RetryAt {
            at: *at,
            error: error.clone(),
        }),
        Verdict::Bury { error } => Some(Ruling::Bury {
            error: error.clone(),
        }),
        Verdict::Release => Some(Ruling::Release),
    }
}

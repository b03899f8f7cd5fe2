//! From outcomes to the ledger: judge, write in batches, and do what follows.

use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use tokio::sync::mpsc;

use super::Shared;
use super::run::Ended;
use crate::ledger::{Arming, LedgerError, Ruling, Settled, Settlement};
use crate::task::{How, Mishap, Outcome, Reason, UnixMs, Verdict, judge};
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

    /// What is done about a run; where it is one of a series, about that.
    fn judge(&self, ended: &Ended, now: UnixMs) -> Verdict {
        let Ended {
            claim,
            route,
            outcome,
            result: _,
        } = ended;
        let verdict = judge(
            outcome.clone(),
            claim.attempt,
            &route.retry,
            now,
            rand::random(),
        );
        match claim.occurrence(now) {
            Some(occurrence) => {
                occurrence.go_on(verdict, matches!(outcome, Outcome::Poisoned), now)
            }
            None => verdict,
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
                let verdict = self.judge(&ended, now);
                (ended, verdict)
            })
            .collect();
        let settlements: Vec<Settlement> = judged
            .iter()
            .filter_map(|(ended, verdict)| {
                Some(Settlement {
                    lease: ended.claim.lease,
                    ruling: self.ruling(ended, verdict, now)?,
                })
            })
            .collect();
        // Where the handler's own transaction has settled, nothing is looked at: what was signalled since stands.
        let written = judged.iter().filter(|(_, verdict)| is_written(verdict));
        self.intake
            .settling(written.map(|(ended, _)| &ended.claim.key));
        let mut settled = self.write(&settlements).await.into_iter();

        let (mut landed, mut alarms) = (Vec::with_capacity(judged.len()), Vec::new());
        let (mut locked, mut marked) = (Vec::new(), Vec::new());
        for (ended, verdict) in judged {
            let wrote = if is_written(&verdict) {
                settled.next().flatten()
            } else {
                Some(Settled::Applied)
            };
            if wrote == Some(Settled::Locked) {
                locked.extend(self.settle_later(ended, again));
                continue;
            }
            if wrote == Some(Settled::ByHandler) && has_failed_in_a_series(&ended, &verdict) {
                // Its row says that it has succeeded, so its series goes on.
                marked.push(Ended {
                    outcome: Outcome::Succeeded,
                    result: None,
                    ..ended
                });
                continue;
            }
            self.tell(&ended, &verdict, wrote);
            alarms.extend(self.follow_up(&ended, &verdict, wrote));
            landed.push((ended, verdict));
        }
        self.land(landed);
        self.hold(alarms);
        if !marked.is_empty() {
            // Once: none of these has failed.
            locked.extend(Box::pin(self.settle_batch(marked, again)).await);
        }
        locked
    }

    /// These are no longer in flight.
    fn land(&self, landed: Vec<(Ended, Verdict)>) {
        let leases = landed.iter().map(|(ended, _)| &ended.claim.lease);
        self.leases.forget(leases);
        // A key that was armed again, by its handler or as a series, has another arming: its signals are no echoes.
        let (done, open): (Vec<_>, Vec<_>) = landed.into_iter().partition(|(ended, verdict)| {
            matches!(ended.outcome, Outcome::Succeeded | Outcome::Completed)
                && !matches!(verdict, Verdict::GoOn { .. })
        });
        self.intake.land_settled(
            done.iter()
                .map(|(ended, _)| (&ended.claim.key, ended.claim.lease.arming)),
        );
        self.intake
            .land(open.iter().map(|(ended, _)| &ended.claim.key));
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
                self.intake.raise(Signal {
                    key: claim.key.clone(),
                    source: Source::Direct,
                    arming: None,
                });
                None
            }
            (Settled::Applied, Verdict::RetryAt { at, error: _ } | Verdict::SnoozeUntil(at)) => {
                Some(Alarm {
                    key: claim.key.clone(),
                    due: *at,
                    arming: Some(claim.lease.arming),
                })
            }
            (Settled::Applied, Verdict::GoOn { next, died: _ }) => Some(Alarm {
                key: claim.key.clone(),
                due: *next,
                arming: Some(Arming {
                    row: claim.lease.arming.row,
                    due: *next,
                }),
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
        let attempt = runs_started(ended);
        match (wrote, verdict) {
            (None, _) => {}
            (Some(settled @ (Settled::Fenced | Settled::Superseded)), _) => {
                self.parts.metrics.fenced();
                tracing::warn!(task.class_method = claim.key.class_method(), task.id = %claim.lease.arming, why = %settled, "result discarded: the claim was no longer ours");
            }
            (Some(Settled::Cancelled | Settled::Ended), _) => {
                tracing::info!(task.class_method = claim.key.class_method(), task.id = %claim.lease.arming, "cancelled while it ran");
            }
            (_, Verdict::RetryAt { at, error }) if wrote == Some(Settled::Applied) => {
                tracing::warn!(task.class_method = claim.key.class_method(), task.id = %claim.lease.arming, task.attempt = attempt, retry_at = %at, %error, route, "run failed: to be tried again");
            }
            (_, Verdict::Bury { reason, error }) if wrote == Some(Settled::Applied) => {
                self.parts.metrics.buried(route, *reason);
                if *reason == Reason::Expired {
                    tracing::warn!(task.class_method = claim.key.class_method(), task.id = %claim.lease.arming, %error, route, "task came too late: not run, and dead");
                    return;
                }
                tracing::error!(task.class_method = claim.key.class_method(), task.id = %claim.lease.arming, task.attempt = attempt, %reason, %error, route, "task is dead: redrive it when the cause is mended");
            }
            (_, Verdict::SnoozeUntil(at)) if wrote == Some(Settled::Applied) => {
                tracing::debug!(task.key = %claim.key, retry_at = %at, route, "snoozed");
            }
            (Some(Settled::Applied), Verdict::GoOn { next, died }) => {
                self.tell_going_on(ended, *next, died.as_ref());
            }
            _ => tracing::debug!(task.key = %claim.key, task.attempt = attempt, route, "settled"),
        }
    }
}

impl Shared {
    /// What the ledger has to write, if [`is_written`] says so.
    fn ruling(&self, ended: &Ended, verdict: &Verdict, now: UnixMs) -> Option<Ruling> {
        let Ended {
            claim,
            route: _,
            outcome,
            result,
        } = ended;
        let mishap = |how, error: String| Mishap {
            how,
            attempt: runs_started(ended),
            at: now,
            error,
            daemon: self.claimant.daemon.clone(),
            crashes: claim.attempt.crashes,
            snoozes: 0,
        };
        let failed = |error: &String| match outcome.how() {
            Some(How::Poisoned) => mishap(How::Poisoned, error.clone()),
            // Snoozed once too often, or too long: the verdict has the words for it.
            Some(How::Snoozed) | None => mishap(How::Failed, error.clone()),
            Some(how) => mishap(how, outcome.error()),
        };
        Some(match verdict {
            Verdict::Complete => match result {
                Some(result) => Ruling::CompleteWith(result.clone()),
                None => Ruling::Complete,
            },
            Verdict::Settled(_) => return None,
            Verdict::RetryAt { at, error } => Ruling::RetryAt {
                at: *at,
                error: error.clone(),
                mishap: failed(error),
            },
            Verdict::SnoozeUntil(at) => Ruling::Snooze {
                at: *at,
                mishap: Mishap {
                    snoozes: claim.attempt.snoozes.saturating_add(1),
                    ..mishap(How::Snoozed, String::new())
                },
            },
            Verdict::Bury { reason, error } => Ruling::Bury {
                reason: *reason,
                error: error.clone(),
                mishap: failed(error),
            },
            Verdict::Release => Ruling::Release,
            Verdict::GoOn { next, died } => Ruling::GoOn {
                next: *next,
                // Missed, handed on, or snoozed for so long that the next one comes first.
                ran: died.is_some() || *outcome == Outcome::Succeeded,
                error: died.as_ref().map(|(_, error)| error.clone()),
                mishap: died.as_ref().map(|(_, error)| failed(error)),
                result: match outcome {
                    Outcome::Succeeded => result.clone(),
                    _ => None,
                },
            },
        })
    }
}

/// Runs of this arming, this one included if it was one.
fn runs_started(ended: &Ended) -> u16 {
    let claims = ended.claim.attempt.number;
    match ended.outcome.was_run() {
        true => claims,
        false => claims.saturating_sub(1),
    }
}

fn has_failed_in_a_series(ended: &Ended, verdict: &Verdict) -> bool {
    let succeeded = matches!(
        verdict,
        Verdict::Complete | Verdict::GoOn { died: None, .. }
    );
    ended.claim.recurrence.is_some() && !succeeded
}

/// Whether the ledger has something to write; nothing if the handler's own transaction has.
fn is_written(verdict: &Verdict) -> bool {
    !matches!(verdict, Verdict::Settled(_))
}

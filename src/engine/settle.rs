//! Settle stage: judges outcomes, writes them in batches, and follows up.

mod follow_up;
mod writing;

use std::sync::Arc;
use std::time::Duration;

use tokio::sync::mpsc;
use tokio::time::Instant;

use super::execute::{Ended, Reported};
use super::health::LedgerHealth;
use super::lease::Leases;
use super::lifecycle::Lifecycle;
use super::queue::SignalQueue;
use super::rearm::Rearmer;
use super::reports::Reporter;
use super::spans;
use crate::clock::LedgerClock;
use crate::ledger::{Claim, Claims, Settled, Settlement};
use crate::task::{EndedRun, Outcome, UnixMs, Verdict, judge};
use crate::timer::Alarm;

/// Maximum number of settlements in one statement, and of settlements that wait because their row is locked or the
/// ledger refuses them. At this number the stage takes no more: ended runs keep their slots, so that no new ones start.
const BATCH_MAX: usize = 512;

/// Pause before a retry when the ledger does not answer, refuses a statement, or a row is locked.
const PAUSE: Duration = Duration::from_millis(500);

/// The settle stage: judges how runs ended, and writes the verdicts.
pub struct Settler {
    pub claims: Arc<dyn Claims>,
    pub clock: LedgerClock,
    pub health: Arc<LedgerHealth>,
    /// The name of this daemon, for the history of the tasks that it runs.
    pub daemon: String,
    pub rearmer: Arc<Rearmer>,
    pub queue: Arc<SignalQueue>,
    pub leases: Arc<Leases>,
    pub lifecycle: Lifecycle,
    pub reporter: Arc<Reporter>,
}

impl Settler {
    /// Settles runs as they end, until every sender is dropped and everything is written.
    pub async fn run(self: Arc<Self>, mut unsettled: mpsc::Receiver<Ended>) {
        let mut batch = Vec::with_capacity(BATCH_MAX);
        let mut waiting: Vec<Ended> = Vec::new();
        let mut retry_at = Instant::now();
        loop {
            let room = BATCH_MAX - waiting.len();
            tokio::select! {
                biased;
                () = tokio::time::sleep_until(retry_at), if !waiting.is_empty() => {
                    waiting = self.settle_batch(waiting).await;
                    retry_at = Instant::now() + PAUSE;
                }
                count = unsettled.recv_many(&mut batch, room), if room > 0 => {
                    if count == 0 {
                        break;
                    }
                    if waiting.is_empty() {
                        retry_at = Instant::now() + PAUSE;
                    }
                    waiting.extend(self.settle_batch(std::mem::take(&mut batch)).await);
                }
            }
        }
        while !waiting.is_empty() {
            tokio::time::sleep(PAUSE).await;
            waiting = self.settle_batch(waiting).await;
        }
    }

    /// Returns the verdict on a run, `None` if the handler's own transaction has settled its task. For a recurring task,
    /// the verdict includes its next occurrence.
    fn judge(&self, ended: &Ended, now: UnixMs) -> Option<Verdict> {
        let Ended {
            claim,
            route,
            outcome,
            result,
            reported,
            span: _,
        } = ended;
        let worker = reported.as_ref().map(|reported| reported.worker.as_str());
        let run = EndedRun {
            outcome: outcome.clone(),
            result: result.clone(),
            attempt: claim.attempt,
            started: claim.started(now),
            daemon: worker.unwrap_or(&self.daemon),
        };
        let verdict = judge(run, &route.retry, now, rand::random())?;
        Some(match claim.occurrence(now) {
            Some(occurrence) => occurrence.series_verdict(verdict, outcome, now),
            None => verdict,
        })
    }

    /// Settles a batch of runs. Returns those to be settled again later: their rows are locked, or the ledger refuses
    /// the statement for now.
    pub async fn settle_batch(&self, batch: Vec<Ended>) -> Vec<Ended> {
        let batch = self.drop_locked_out(batch);
        let now = self.clock.now();
        let judged: Vec<(Ended, Option<Verdict>)> = batch
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
                    verdict: verdict.clone()?,
                })
            })
            .collect();
        // If the handler's own transaction has settled the task, the arming is not checked here: newer signals count.
        let written = judged.iter().filter(|(_, verdict)| verdict.is_some());
        self.queue
            .settling(written.map(|(ended, _)| &ended.claim.key));
        let mut settled = self.write(&settlements).await.into_iter();

        let (mut finished, mut alarms) = (Vec::with_capacity(judged.len()), Vec::new());
        let (mut waiting, mut repeats, mut ended_tasks) = (Vec::new(), Vec::new(), Vec::new());
        for (mut ended, verdict) in judged {
            let wrote = match verdict {
                Some(_) => settled.next().flatten(),
                None => Some(Settled::Applied),
            };
            if wrote == Some(Settled::Locked) {
                tracing::debug!(task.key = %ended.claim.key, "row locked or refused: settled later");
                waiting.push(ended);
                continue;
            }
            if wrote.is_none() && ended.result.is_some() {
                // The ledger cannot store the handler's result. The run has succeeded without it.
                repeats.push(Ended {
                    result: None,
                    ..ended
                });
                continue;
            }
            if wrote == Some(Settled::ByHandler)
                && is_failure_of_recurring(&ended, verdict.as_ref())
            {
                // The row says that the run succeeded, so the recurring task continues.
                repeats.push(Ended {
                    outcome: Outcome::Succeeded,
                    result: None,
                    ..ended
                });
                continue;
            }
            spans::settled(ended.span.take(), wrote);
            self.report(&ended, verdict.as_ref(), wrote);
            let alarm = self.follow_up(&ended, verdict.as_ref(), wrote);
            if alarm.is_none() && has_ended(&ended.outcome, verdict.as_ref(), wrote) {
                ended_tasks.push(entry_of(&ended.claim));
            }
            alarms.extend(alarm);
            match ended.reported {
                Some(reported) => self.answer(reported, &ended.claim, verdict.as_ref(), wrote),
                None => finished.push((ended, verdict)),
            }
        }
        self.finish(finished);
        self.rearmer.rearm(alarms);
        self.rearmer.remove_entries(ended_tasks);
        if !repeats.is_empty() {
            // Recurses at most once: none of these runs has failed or has a result.
            waiting.extend(Box::pin(self.settle_batch(repeats)).await);
        }
        waiting
    }

    /// Tells the worker of a pulled task how its run was settled. The key is not in flight here: it was handed over,
    /// perhaps by another daemon.
    fn answer(
        &self,
        reported: Reported,
        claim: &Claim,
        verdict: Option<&Verdict>,
        wrote: Option<Settled>,
    ) {
        let is_over = matches!(
            verdict,
            Some(Verdict::Complete | Verdict::CompleteWith(_) | Verdict::Bury(_))
        );
        if !is_over || wrote != Some(Settled::Applied) {
            self.queue.forget_echoes([&claim.key]);
        }
        if let Some(settled) = wrote {
            // The worker may have gone away: its run is settled all the same.
            let _ = reported.answer.send(settled);
        }
    }

    /// Removes the runs that were ended because of a locked row twice in a row. Their leases expire, which counts as a
    /// crash, so that such a task is not run for ever.
    fn drop_locked_out(&self, batch: Vec<Ended>) -> Vec<Ended> {
        let is_out = |ended: &Ended| {
            let lease = &ended.claim.lease;
            self.leases.is_locked_out_again(lease) && ended.outcome == Outcome::Interrupted
        };
        let (out, rest): (Vec<Ended>, Vec<Ended>) = batch.into_iter().partition(is_out);
        for Ended { claim, .. } in &out {
            tracing::warn!(task.class_method = claim.key.class_method(), task.id = %claim.lease.arming, "run ended because its row was locked, as the run before it: counted as a crash");
        }
        self.leases
            .forget(out.iter().map(|ended| &ended.claim.lease));
        self.queue.finish(out.iter().map(|ended| &ended.claim.key));
        rest
    }

    /// Forgets the leases of settled runs, and marks their keys as no longer in flight.
    fn finish(&self, finished: Vec<(Ended, Option<Verdict>)>) {
        let leases = finished.iter().map(|(ended, _)| &ended.claim.lease);
        self.leases.forget(leases);
        // A key that was armed again, by its handler or as a recurring task, has another arming: its signals are no
        // echoes.
        let (done, open): (Vec<_>, Vec<_>) = finished.into_iter().partition(|(ended, verdict)| {
            matches!(ended.outcome, Outcome::Succeeded | Outcome::Completed)
                && !matches!(verdict, Some(Verdict::NextOccurrence { .. }))
        });
        self.queue.finish_settled(
            done.iter()
                .map(|(ended, _)| (&ended.claim.key, ended.claim.lease.arming)),
        );
        self.queue
            .finish(open.iter().map(|(ended, _)| &ended.claim.key));
    }
}

/// True if the task of a settled run has ended.
fn has_ended(outcome: &Outcome, verdict: Option<&Verdict>, wrote: Option<Settled>) -> bool {
    match wrote {
        Some(Settled::Cancelled | Settled::Ended | Settled::ByHandler) => true,
        Some(Settled::Applied) => match verdict {
            Some(verdict) => matches!(
                verdict,
                Verdict::Complete | Verdict::CompleteWith(_) | Verdict::Bury(_)
            ),
            None => !matches!(outcome, Outcome::Again(_)),
        },
        _ => false,
    }
}

/// The entry in the timer for the arming of a claim.
fn entry_of(claim: &Claim) -> Alarm {
    Alarm {
        key: claim.key.clone(),
        due: claim.due_at,
        arming: Some(claim.lease.arming),
    }
}

fn is_failure_of_recurring(ended: &Ended, verdict: Option<&Verdict>) -> bool {
    let failed = verdict.is_some_and(|verdict| !verdict.is_success());
    ended.claim.recurrence.is_some() && failed
}

//! Settle stage: judges outcomes, writes them in batches, and follows up.

use std::sync::Arc;
use std::time::Duration;

use tokio::sync::mpsc;
use tokio::time::Instant;

use super::deps::Deps;
use super::execute::{Ended, Reported};
use super::lease::Leases;
use super::queue::SignalQueue;
use super::reports::{OccurrenceDied, OccurrencesSkipped, ResultDiscarded, TaskDied};
use crate::ledger::{Claim, LedgerError, Settled, Settlement};
use crate::task::{Arming, Death, EndedRun, Outcome, UnixMs, Verdict, judge};
use crate::timer::{Alarm, Signal, Source};

/// Maximum number of settlements in one statement, and of settlements that wait because their row is locked or the
/// ledger refuses them. At this number the stage takes no more: ended runs keep their slots, so that no new ones start.
const BATCH_MAX: usize = 512;

/// Pause before a retry when the ledger does not answer, refuses a statement, or a row is locked.
const PAUSE: Duration = Duration::from_millis(500);

/// Maximum number of refused statements in one batch before the rest of it waits.
const REFUSALS_MAX: usize = 16;

/// The settle stage: judges how runs ended, and writes the verdicts.
pub struct Settler {
    deps: Arc<Deps>,
    queue: Arc<SignalQueue>,
    leases: Arc<Leases>,
}

impl Settler {
    /// Creates a settle stage for runs with these leases.
    pub fn new(deps: Arc<Deps>, queue: Arc<SignalQueue>, leases: Arc<Leases>) -> Self {
        Self {
            deps,
            queue,
            leases,
        }
    }

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
        } = ended;
        let worker = reported.as_ref().map(|reported| reported.worker.as_str());
        let run = EndedRun {
            outcome: outcome.clone(),
            result: result.clone(),
            attempt: claim.attempt,
            daemon: worker.unwrap_or(&self.deps.claimant.daemon),
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
        let now = self.deps.ledger.clock().now();
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
        for (ended, verdict) in judged {
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
        self.deps.rearm(alarms);
        self.deps.remove_entries(ended_tasks);
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

    /// Writes settlements, and waits out an outage. A row that cannot be written now yields [`Settled::Locked`],
    /// whether another session has locked it or the ledger refuses the statement. `None` means that the ledger refuses
    /// the data for good; the lease will expire.
    ///
    /// A refused batch is halved: one row may be the cause, and the others must not wait for it.
    async fn write(&self, settlements: &[Settlement]) -> Vec<Option<Settled>> {
        let mut results = vec![Some(Settled::Locked); settlements.len()];
        let (mut refusals, mut parts) = (0, Vec::new());
        if !settlements.is_empty() {
            parts.push(0..settlements.len());
        }
        while let Some(part) = parts.pop() {
            let error = match self.write_through_outages(&settlements[part.clone()]).await {
                Ok(settled) => {
                    for (result, settled) in results[part].iter_mut().zip(settled) {
                        *result = Some(settled);
                    }
                    continue;
                }
                Err(error) => error,
            };
            if !error.is_about_data() {
                self.deps.ledger_failed("settle runs", &error);
                refusals += 1;
                if refusals == REFUSALS_MAX {
                    break;
                }
            }
            if part.len() > 1 {
                let middle = part.start + part.len() / 2;
                let mut halves = [part.start..middle, middle..part.end];
                // In random order, so that no row waits behind the same refused ones for ever.
                if rand::random() {
                    halves.reverse();
                }
                parts.extend(halves);
                continue;
            }
            let one = &settlements[part.start];
            if error.is_about_data() && has_data(&one.verdict) {
                tracing::error!(%error, task.id = %one.lease.arming, "the ledger refuses the data of a settlement: unless it can be written without its result, the task runs again when its lease expires");
                results[part.start] = None;
            }
        }
        self.deps.health.set_settlements_refused(refusals > 0);
        results
    }

    /// Writes settlements, and waits out an outage. An error means that the ledger refuses the statement.
    async fn write_through_outages(
        &self,
        settlements: &[Settlement],
    ) -> Result<Vec<Settled>, LedgerError> {
        loop {
            match self.deps.ledger.settle(settlements).await {
                Err(error) if error.is_transient() => {
                    self.deps.health.set_settlements_wait(true);
                    self.deps.ledger_failed("settle runs", &error);
                    tokio::time::sleep(PAUSE).await;
                }
                answer => {
                    self.deps.health.set_settlements_wait(false);
                    return answer;
                }
            }
        }
    }

    /// Follows up on a settled run. Returns the alarm to be armed, if any.
    fn follow_up(
        &self,
        ended: &Ended,
        verdict: Option<&Verdict>,
        wrote: Option<Settled>,
    ) -> Option<Alarm> {
        let claim = &ended.claim;
        let alarm = |due, arming| {
            Some(Alarm {
                key: claim.key.clone(),
                due,
                arming,
            })
        };
        let same = Some(claim.lease.arming);
        match (wrote?, verdict) {
            (Settled::Superseded, _) => {
                self.queue.push(Signal {
                    key: claim.key.clone(),
                    source: Source::Direct,
                    arming: None,
                });
                None
            }
            (Settled::Applied, Some(verdict)) => match verdict {
                Verdict::RetryAt { at, .. } | Verdict::Snooze { at, .. } => alarm(*at, same),
                Verdict::NextOccurrence { next, .. } => {
                    let row = claim.lease.arming.row;
                    alarm(*next, Some(Arming { row, due: *next }))
                }
                Verdict::Release if ended.reported.is_some() => {
                    self.queue.forget_echoes([&claim.key]);
                    self.queue.push(Signal {
                        key: claim.key.clone(),
                        source: Source::Direct,
                        arming: same,
                    });
                    None
                }
                // The other daemons hear of the task by its event, without waiting for their sweeps.
                Verdict::Release if self.deps.lifecycle.stopping.is_cancelled() => {
                    alarm(self.deps.ledger.clock().now(), same)
                }
                _ => None,
            },
            (Settled::Applied, None) => match ended.outcome {
                Outcome::Again(due) => alarm(due, None),
                _ => None,
            },
            _ => None,
        }
    }

    /// Logs and counts how a run ended.
    fn report(&self, ended: &Ended, verdict: Option<&Verdict>, wrote: Option<Settled>) {
        let (claim, route) = (&ended.claim, &*ended.route.name);
        let attempt = claim.attempt.runs_started(&ended.outcome);
        match (wrote, verdict) {
            (None, _) => {}
            (Some(why @ (Settled::Fenced | Settled::Superseded)), _) => {
                ResultDiscarded { claim, why }.emit(&self.deps);
            }
            (Some(Settled::Cancelled | Settled::Ended), _) => {
                tracing::info!(task.class_method = claim.key.class_method(), task.id = %claim.lease.arming, "cancelled while it ran");
            }
            (Some(Settled::Applied), Some(Verdict::RetryAt { at, error, .. })) => {
                tracing::warn!(task.class_method = claim.key.class_method(), task.id = %claim.lease.arming, task.attempt = attempt, retry_at = %at, %error, route, "run failed: to be tried again");
            }
            (Some(Settled::Applied), Some(Verdict::Bury(death))) => TaskDied {
                claim,
                route,
                attempt,
                death,
            }
            .emit(&self.deps),
            (Some(Settled::Applied), Some(Verdict::Snooze { at, .. })) => {
                tracing::debug!(task.key = %claim.key, retry_at = %at, route, "snoozed");
            }
            (Some(Settled::Applied), Some(Verdict::NextOccurrence { next, died, .. })) => {
                self.report_next_occurrence(ended, *next, died.as_ref());
            }
            _ => tracing::debug!(task.key = %claim.key, task.attempt = attempt, route, "settled"),
        }
    }

    /// Logs and counts that a recurring task continues.
    fn report_next_occurrence(&self, ended: &Ended, next: UnixMs, died: Option<&Death>) {
        let (claim, route) = (&ended.claim, &*ended.route.name);
        let skipped = match claim.recurrence.as_deref() {
            Some(Ok(recurrence)) => recurrence.between(claim.lease.arming.due, next),
            _ => 0,
        };
        let count = u64::from(skipped) + u64::from(ended.outcome == Outcome::Missed);
        if count > 0 {
            OccurrencesSkipped { claim, count, next }.emit(&self.deps);
        }
        match died {
            Some(death) => OccurrenceDied {
                claim,
                route,
                death,
                next,
            }
            .emit(&self.deps),
            None => {
                tracing::debug!(task.key = %claim.key, task.attempt = claim.attempt.number, %next, route, "recurring task continues");
            }
        }
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

/// True if the verdict has data that the ledger could refuse: text or JSON. A verdict without data is refused for a
/// reason that may pass, whatever the server says.
fn has_data(verdict: &Verdict) -> bool {
    match verdict {
        Verdict::Complete | Verdict::Release => false,
        Verdict::NextOccurrence { died, result, .. } => died.is_some() || result.is_some(),
        Verdict::CompleteWith(_)
        | Verdict::RetryAt { .. }
        | Verdict::Snooze { .. }
        | Verdict::Bury(_) => true,
    }
}

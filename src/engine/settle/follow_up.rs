//! What follows a settled run: the next alarm, and what is logged and counted.

use super::Settler;
use crate::engine::execute::Ended;
use crate::engine::reports::{OccurrenceDied, OccurrencesSkipped, ResultDiscarded, TaskDied};
use crate::ledger::Settled;
use crate::task::{Arming, Death, Outcome, UnixMs, Verdict};
use crate::timer::{Alarm, Signal, Source};

impl Settler {
    /// Follows up on a settled run. Returns the alarm to be armed, if any.
    pub(super) fn follow_up(
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
                self.queue
                    .push(Signal::new(claim.key.clone(), Source::Direct, None));
                None
            }
            (Settled::Applied, Some(verdict)) => match verdict {
                Verdict::RetryAt { at, .. } | Verdict::Snooze { at, .. } => alarm(*at, same),
                Verdict::NextOccurrence { next, .. } => {
                    let row = claim.lease.arming.row;
                    alarm(*next, Some(Arming { row, due: *next }))
                }
                Verdict::Release | Verdict::GiveBack if ended.reported.is_some() => {
                    self.queue.forget_echoes([&claim.key]);
                    self.queue
                        .push(Signal::new(claim.key.clone(), Source::Direct, same));
                    None
                }
                // The other daemons hear of the task by its event, without waiting for their sweeps.
                Verdict::Release | Verdict::GiveBack if self.lifecycle.stopping.is_cancelled() => {
                    alarm(self.clock.now(), same)
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
    pub(super) fn report(&self, ended: &Ended, verdict: Option<&Verdict>, wrote: Option<Settled>) {
        let (claim, route) = (&ended.claim, &*ended.route.name);
        let attempt = claim.attempt.runs_started(&ended.outcome);
        match (wrote, verdict) {
            (None, _) => {}
            (Some(why @ (Settled::Fenced | Settled::Superseded)), _) => {
                ResultDiscarded { claim, why }.emit(&self.reporter);
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
            .emit(&self.reporter),
            (Some(Settled::Applied), Some(Verdict::Snooze { at, .. })) => {
                tracing::debug!(task.key = %claim.key, retry_at = %at, route, "snoozed");
            }
            (Some(Settled::Applied), Some(Verdict::NextOccurrence { next, end, .. })) => {
                self.report_next_occurrence(ended, *next, end.death());
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
            OccurrencesSkipped { claim, count, next }.emit(&self.reporter);
        }
        match died {
            Some(death) => OccurrenceDied {
                claim,
                route,
                death,
                next,
            }
            .emit(&self.reporter),
            None => {
                tracing::debug!(task.key = %claim.key, task.attempt = claim.attempt.number, %next, route, "recurring task continues");
            }
        }
    }
}

//! Occurrences of recurring tasks that are not run: missed ones, and those that become tasks of their own.

use std::sync::Arc;

use super::health::LedgerHealth;
use super::rearm::Rearmer;
use crate::clock::LedgerClock;
use crate::handler::Router;
use crate::ledger::{Claim, NewTask, Producer};
use crate::task::{Failure, Outcome, Recurrence, RecurrenceError, RetryAdvice, instance_key};
use crate::timer::Alarm;

/// Decides what happens to occurrences instead of a run.
pub struct Occurrences {
    pub producer: Arc<dyn Producer>,
    pub clock: LedgerClock,
    pub router: Arc<Router>,
    pub health: Arc<LedgerHealth>,
    pub rearmer: Arc<Rearmer>,
}

impl Occurrences {
    /// Outcome of an occurrence that is not run: it was missed, or becomes a task of its own. `None` if it is to be run.
    pub async fn instead_of_running(
        &self,
        claim: &Claim,
        recurrence: &Result<Recurrence, RecurrenceError>,
    ) -> Option<Outcome> {
        let recurrence = match recurrence {
            Ok(recurrence) => recurrence,
            Err(error) => return Some(never(error.to_string())),
        };
        let now = self.clock.now();
        let is_missed = claim
            .occurrence(now)
            .is_some_and(|occurrence| occurrence.is_missed());
        if is_missed && !claim.has_started_before() {
            return Some(Outcome::Missed);
        }
        match recurrence.may_overlap() {
            true => Some(self.create_task(claim).await),
            false => None,
        }
    }

    /// Creates the task of an occurrence. Key and due time are deterministic: after a crash, another daemon that repeats
    /// this finds the task, run or not.
    async fn create_task(&self, claim: &Claim) -> Outcome {
        let due = claim.lease.arming.due;
        let Some(key) = instance_key(&claim.key, due) else {
            return never("key leaves no room for the suffix of its occurrences".to_owned());
        };
        if self.router.find(&key).is_none() {
            let name = key.class_method();
            return never(format!(
                "occurrences of `{name}` may overlap, but no route or handler takes the key of one, which ends in `@{}`",
                key.suffix().unwrap_or_default()
            ));
        }
        let task = NewTask {
            contents: claim.contents(),
            ..NewTask::new(key.clone(), due)
        };
        // Only if the task does not exist: an existing one was created before, and may have been cancelled since.
        match self.producer.write_series(&task, None).await {
            Ok(created) => {
                let alarm = |arming| Alarm {
                    key,
                    due,
                    arming: Some(arming),
                };
                self.rearmer.rearm(created.map(alarm).into_iter().collect());
                Outcome::HandedOn
            }
            Err(error) if error.is_about_data() => never(error.to_string()),
            Err(error) => {
                self.health
                    .log_failure("create the task of an occurrence", &error);
                Outcome::NotStarted
            }
        }
    }
}

fn never(message: String) -> Outcome {
    Outcome::Failed(Failure {
        message,
        advice: RetryAdvice::Never,
    })
}

//! Series: what is done with an occurrence instead of running it, and that those of the configuration are there.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::Duration;

use crate::config::RecurringConfig;
use crate::engine::Shared;
use crate::engine::execute::Ended;
use crate::ledger::recurring::{Established, Insistence, establish};
use crate::ledger::{Claim, NewTask};
use crate::task::{Failure, Outcome, Reason, RetryAdvice, TaskKey, UnixMs, instance_key};
use crate::timer::Alarm;

/// When a series is asked for again that is being run just now, or that the ledger could not take.
const AGAIN_AFTER: Duration = Duration::from_secs(2);

impl Shared {
    /// What becomes of an occurrence that is not to be run: it was missed, or becomes a task of its own.
    pub(crate) async fn instead_of_occurrence(&self, claim: &Claim) -> Option<Outcome> {
        let recurrence = match claim.recurrence.as_deref()? {
            Ok(recurrence) => recurrence,
            Err(error) => return Some(never(error.to_string())),
        };
        let now = self.parts.ledger.clock().now();
        let is_missed = claim
            .occurrence(now)
            .is_some_and(|occurrence| occurrence.is_missed());
        if is_missed && claim.attempt.number == 1 {
            return Some(Outcome::Missed);
        }
        match recurrence.may_overlap() {
            true => Some(self.hand_on(claim).await),
            false => None,
        }
    }

    /// The occurrence becomes a task of its own. Key and due time are determined: whoever does it again after a crash
    /// finds it there, run or not.
    async fn hand_on(&self, claim: &Claim) -> Outcome {
        let due = claim.lease.arming.due;
        let Some(key) = instance_key(&claim.key, due) else {
            return never("key leaves no room for the suffix of its occurrences".to_owned());
        };
        if self.parts.router.find(&key).is_none() {
            let name = key.class_method();
            return never(format!(
                "occurrences of `{name}` may overlap, but no route or handler takes the key of one, which ends in `@{}`",
                key.suffix().unwrap_or_default()
            ));
        }
        let task = NewTask {
            payload: claim.payload.clone(),
            tag: claim.tag.clone(),
            max_attempts: claim.attempt.max_attempts,
            ..NewTask::new(key.clone(), due)
        };
        // Only where there is none: one that is there has been made before, and may have been called off since.
        match self.parts.ledger.recur(&task, None).await {
            Ok(made) => {
                let alarm = |arming| Alarm {
                    key,
                    due,
                    arming: Some(arming),
                };
                self.hold(made.map(alarm).into_iter().collect());
                Outcome::HandedOn
            }
            Err(error) if error.is_about_data() => never(error.to_string()),
            Err(error) => {
                self.complain("create the task of an occurrence", &error);
                Outcome::Interrupted
            }
        }
    }

    /// One line and the counters for a series that has gone on.
    pub(crate) fn tell_going_on(
        &self,
        ended: &Ended,
        next: UnixMs,
        died: Option<&(Reason, String)>,
    ) {
        let (claim, route) = (&ended.claim, &*ended.route.name);
        let attempt = claim.attempt.number;
        let skipped = match claim.recurrence.as_deref() {
            Some(Ok(recurrence)) => recurrence.between(claim.lease.arming.due, next),
            _ => 0,
        };
        let missed = u32::from(ended.outcome == Outcome::Missed);
        if skipped + missed > 0 {
            let count = u64::from(skipped + missed);
            self.parts.metrics.occurrences_skipped(count);
            tracing::warn!(task.class_method = claim.key.class_method(), task.id = %claim.lease.arming, occurrences = count, %next, "occurrences were missed and are left out");
        }
        match died {
            Some((reason, error)) => {
                self.parts.metrics.buried(route, *reason);
                tracing::error!(task.class_method = claim.key.class_method(), task.id = %claim.lease.arming, task.attempt = attempt, %reason, %error, %next, route, "occurrence is dead: its series goes on");
            }
            None => {
                tracing::debug!(task.key = %claim.key, task.attempt = attempt, %next, route, "series goes on")
            }
        }
    }

    /// Sees to it that the series of the configuration are there, at the start and whenever it was read again.
    pub(crate) async fn keep_series_until_stopped(self: Arc<Self>) {
        let mut wanted = self.recurring.subscribe();
        let work = async {
            let mut before: Option<BTreeSet<TaskKey>> = None;
            loop {
                let series = wanted.borrow_and_update().clone();
                let keys: BTreeSet<TaskKey> = series.iter().map(|one| one.key.clone()).collect();
                if let Some(before) = before.replace(keys.clone()) {
                    tell_removed(before.difference(&keys));
                }
                for one in series.iter() {
                    self.tell_if_nothing_runs(&one.key);
                }
                let mut open: Vec<&RecurringConfig> = series.iter().collect();
                while !open.is_empty() {
                    let mut later = Vec::new();
                    for one in open {
                        if !self.is_established(one).await {
                            later.push(one);
                        }
                    }
                    open = later;
                    let again = !open.is_empty();
                    tokio::select! {
                        () = tokio::time::sleep(AGAIN_AFTER), if again => {}
                        changed = wanted.changed(), if again => {
                            if changed.is_ok() {
                                wanted.mark_changed();
                            }
                            break;
                        }
                        else => {}
                    }
                }
                if wanted.changed().await.is_err() {
                    return;
                }
                wanted.mark_changed();
            }
        };
        self.stopping.run_until_cancelled(work).await;
    }

    /// Whether nothing is left to be done about it.
    async fn is_established(&self, wanted: &RecurringConfig) -> bool {
        let key = &wanted.key;
        let ledger = &*self.parts.ledger;
        let task = wanted.task();
        match establish(ledger, &task, Insistence::Standing).await {
            Ok(Established::Begun(arming)) => self.tell_series(key, "begun", arming.due),
            Ok(Established::Changed { arming, .. }) => self.tell_series(key, "changed", arming.due),
            Ok(Established::Unchanged(arming, _)) => {
                tracing::debug!(task.class_method = key.class_method(), due = %arming.due, "recurring task is as configured");
                return true;
            }
            Ok(Established::Ended(_, state)) => {
                tracing::warn!(task.class_method = key.class_method(), %state, "recurring task has ended and stays so: redrive or schedule it, or change its configuration");
                return true;
            }
            Ok(Established::Running(_)) => return false,
            Err(error) if error.is_about_data() => {
                tracing::error!(task.class_method = key.class_method(), %error, "recurring task cannot be scheduled");
                return true;
            }
            Err(error) => {
                self.complain("schedule a recurring task", &error);
                return false;
            }
        }
        true
    }

    fn tell_if_nothing_runs(&self, key: &TaskKey) {
        if self.parts.router.find(key).is_none() {
            tracing::warn!(
                task.class_method = key.class_method(),
                "nothing here runs this recurring task"
            );
        }
    }

    fn tell_series(&self, key: &TaskKey, what: &'static str, due: UnixMs) {
        tracing::info!(task.class_method = key.class_method(), next = %due, "recurring task {what}");
        self.hold(vec![Alarm {
            key: key.clone(),
            due,
            arming: None,
        }]);
    }
}

/// It is somebody's work, and may be scheduled elsewhere too: nobody but a person ends it.
fn tell_removed<'a>(keys: impl Iterator<Item = &'a TaskKey>) {
    for key in keys {
        tracing::warn!(
            task.class_method = key.class_method(),
            "recurring task is no longer configured but goes on: `lapsed cancel` ends it"
        );
    }
}

fn never(message: String) -> Outcome {
    Outcome::Failed(Failure {
        message,
        advice: RetryAdvice::Never,
    })
}

impl RecurringConfig {
    fn task(&self) -> NewTask {
        let Self {
            key,
            recurrence,
            payload,
            tag,
            max_attempts,
        } = self.clone();
        NewTask {
            payload,
            tag,
            max_attempts,
            recurrence: Some(recurrence),
            // Decided when it is written.
            ..NewTask::new(key, UnixMs(0))
        }
    }
}

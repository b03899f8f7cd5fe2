//! Configured recurring tasks: scheduled at start, and whenever the configuration is reloaded.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::Duration;

use tokio::sync::watch;

use crate::config::RecurringConfig;
use crate::engine::deps::Deps;
use crate::ledger::NewTask;
use crate::ledger::recurring::{Established, Insistence, establish};
use crate::task::{TaskKey, UnixMs};
use crate::timer::Alarm;

/// Delay before a recurring task is scheduled again that is running, or that the ledger could not write.
const RETRY_AFTER: Duration = Duration::from_secs(2);

/// Keeps the recurring tasks of the configuration scheduled.
pub struct Recurring {
    deps: Arc<Deps>,
    wanted: watch::Receiver<Vec<RecurringConfig>>,
}

impl Recurring {
    /// Creates the task that keeps the recurring tasks in `wanted` scheduled.
    pub fn new(deps: Arc<Deps>, wanted: watch::Receiver<Vec<RecurringConfig>>) -> Self {
        Self { deps, wanted }
    }

    /// Schedules the configured recurring tasks, at start and whenever the configuration is reloaded.
    pub async fn run(self) {
        let mut wanted = self.wanted.clone();
        let work = async {
            let mut before: Option<BTreeSet<TaskKey>> = None;
            loop {
                let configured = wanted.borrow_and_update().clone();
                let keys: BTreeSet<TaskKey> =
                    configured.iter().map(|task| task.key.clone()).collect();
                if let Some(before) = before.replace(keys.clone()) {
                    warn_removed(before.difference(&keys));
                }
                for task in configured.iter() {
                    self.warn_if_unrouted(&task.key);
                }
                let mut open: Vec<&RecurringConfig> = configured.iter().collect();
                while !open.is_empty() {
                    let mut retries = Vec::new();
                    for task in open {
                        if !self.establish_task(task).await {
                            retries.push(task);
                        }
                    }
                    open = retries;
                    let retry = !open.is_empty();
                    tokio::select! {
                        () = tokio::time::sleep(RETRY_AFTER), if retry => {}
                        changed = wanted.changed(), if retry => {
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
        self.deps.lifecycle.until_stopped(work).await;
    }

    /// Schedules a recurring task. Returns false if that is to be tried again.
    async fn establish_task(&self, wanted: &RecurringConfig) -> bool {
        let key = &wanted.key;
        let ledger = &*self.deps.ledger;
        let task = task_of(wanted);
        match establish(ledger, &task, Insistence::Configured).await {
            Ok(Established::Begun(arming)) => self.rearm_changed(key, "begun", arming.due),
            Ok(Established::Changed { arming, .. }) => {
                self.rearm_changed(key, "changed", arming.due)
            }
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
                self.deps.log_failure("schedule a recurring task", &error);
                return false;
            }
        }
        true
    }

    fn warn_if_unrouted(&self, key: &TaskKey) {
        if self.deps.router.find(key).is_none() {
            tracing::warn!(
                task.class_method = key.class_method(),
                "no handler and no route here runs this recurring task"
            );
        }
    }

    fn rearm_changed(&self, key: &TaskKey, what: &'static str, due: UnixMs) {
        tracing::info!(task.class_method = key.class_method(), next = %due, "recurring task {what}");
        self.deps.rearm(vec![Alarm {
            key: key.clone(),
            due,
            arming: None,
        }]);
    }
}

/// Warns about recurring tasks that are no longer configured. They may be scheduled elsewhere too, so only a person
/// ends them.
fn warn_removed<'a>(keys: impl Iterator<Item = &'a TaskKey>) {
    for key in keys {
        tracing::warn!(
            task.class_method = key.class_method(),
            "recurring task is no longer configured but goes on: `lapsed cancel` ends it"
        );
    }
}

/// The task of a configured recurring task. Its due time is decided when it is written.
fn task_of(configured: &RecurringConfig) -> NewTask {
    let RecurringConfig {
        key,
        recurrence,
        payload,
        tag,
        max_attempts,
    } = configured.clone();
    NewTask {
        payload,
        tag,
        max_attempts,
        recurrence: Some(recurrence),
        ..NewTask::new(key, UnixMs(0))
    }
}

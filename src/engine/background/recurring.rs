//! Configured recurring tasks: scheduled at start, and whenever the configuration is reloaded.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::Duration;

use tokio::sync::watch;

use crate::clock::LedgerClock;
use crate::config::RecurringConfig;
use crate::engine::activity::Activity;
use crate::engine::health::LedgerHealth;
use crate::engine::rearm::Rearmer;
use crate::handler::Router;
use crate::ledger::recurring::{DeclaredBy, Established, establish};
use crate::ledger::{LedgerError, NewTask, Producer};
use crate::task::{TaskKey, UnixMs};
use crate::timer::{Alarm, Cause};

/// Delay before a recurring task is scheduled again that is running, or that the ledger could not write.
const RETRY_AFTER: Duration = Duration::from_secs(2);

/// Keeps the recurring tasks of the configuration scheduled.
pub struct Recurring {
    pub ledger: Arc<dyn Producer>,
    pub clock: LedgerClock,
    pub health: Arc<LedgerHealth>,
    pub router: Arc<Router>,
    pub rearmer: Arc<Rearmer>,
    pub activity: Arc<Activity>,
    pub wanted: watch::Receiver<Vec<RecurringConfig>>,
}

impl Recurring {
    /// Schedules the configured recurring tasks, at start and whenever the configuration is reloaded.
    pub async fn run(self) {
        let mut wanted = self.wanted.clone();
        let mut before: Option<BTreeSet<TaskKey>> = None;
        let mut cause = Cause::Start;
        loop {
            let configured = wanted.borrow_and_update().clone();
            let keys: BTreeSet<TaskKey> = configured.iter().map(|task| task.key.clone()).collect();
            if let Some(before) = before.replace(keys.clone()) {
                warn_removed(before.difference(&keys));
            }
            for task in &configured {
                self.warn_if_unrouted(&task.key);
            }
            let mut open: Vec<(&RecurringConfig, DeclaredBy)> = configured
                .iter()
                .map(|task| (task, DeclaredBy::Configuration))
                .collect();
            loop {
                open = self.establish_tasks(open, cause).await;
                let retry = !open.is_empty();
                tokio::select! {
                    () = tokio::time::sleep(RETRY_AFTER), if retry => cause = Cause::Interval,
                    changed = wanted.changed() => match changed {
                        Ok(()) => {
                            cause = Cause::Configured;
                            break;
                        }
                        // The engine was dropped.
                        Err(_) => return,
                    },
                }
            }
        }
    }

    /// Schedules recurring tasks. Returns those to be tried again.
    async fn establish_tasks<'a>(
        &self,
        open: Vec<(&'a RecurringConfig, DeclaredBy)>,
        cause: Cause,
    ) -> Vec<(&'a RecurringConfig, DeclaredBy)> {
        let activity = &self.activity;
        let mut retries = Vec::new();
        for (task, declared_by) in open {
            let pass = activity.pass(cause, self.establish_task(task, declared_by));
            match pass.await {
                Ok(true) => {}
                Ok(false) => retries.push((task, DeclaredBy::ConfigurationAgain)),
                Err(error) if error.is_about_data() => {
                    tracing::error!(task.class_method = task.key.class_method(), %error, "recurring task cannot be scheduled");
                }
                Err(error) => {
                    self.health.log_failure("schedule a recurring task", &error);
                    retries.push((task, declared_by));
                }
            }
        }
        retries
    }

    /// Schedules a recurring task. Returns false while it is running: it is to be tried again.
    async fn establish_task(
        &self,
        wanted: &RecurringConfig,
        declared_by: DeclaredBy,
    ) -> Result<bool, LedgerError> {
        let key = &wanted.key;
        let task = task_of(wanted);
        match establish(&*self.ledger, &self.clock, &task, declared_by).await? {
            Established::Started(arming) => self.rearm_changed(key, "started", arming.due),
            Established::Changed { arming, .. } => self.rearm_changed(key, "changed", arming.due),
            Established::Unchanged(arming, _) => {
                tracing::debug!(task.class_method = key.class_method(), due = %arming.due, "recurring task is as configured");
            }
            Established::Ended(_, state) => {
                tracing::warn!(task.class_method = key.class_method(), %state, "recurring task has ended and stays so: redrive or schedule it, or change its configuration");
            }
            Established::Running(_) => return Ok(false),
        }
        Ok(true)
    }

    fn warn_if_unrouted(&self, key: &TaskKey) {
        if self.router.find(key).is_none() {
            tracing::warn!(
                task.class_method = key.class_method(),
                "no handler and no route here runs this recurring task"
            );
        }
    }

    fn rearm_changed(&self, key: &TaskKey, what: &'static str, due: UnixMs) {
        tracing::info!(task.class_method = key.class_method(), next = %due, "recurring task {what}");
        self.rearmer.rearm(vec![Alarm {
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
            "recurring task is no longer configured but continues: `lapsed cancel` ends it"
        );
    }
}

/// The task of a configured recurring task. Its due time is decided when it is written.
fn task_of(configured: &RecurringConfig) -> NewTask {
    let RecurringConfig {
        key,
        recurrence,
        contents,
    } = configured.clone();
    NewTask {
        contents,
        recurrence: Some(recurrence),
        ..NewTask::new(key, UnixMs(0))
    }
}

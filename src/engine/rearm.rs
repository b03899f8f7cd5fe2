//! Alarms of tasks that the engine has moved, armed again without waiting for Redis.

use std::sync::Arc;
use std::time::Duration;

use super::lifecycle::Lifecycle;
use crate::clock::LedgerClock;
use crate::timer::{Alarm, ArmMode, Entries, Timer};

/// Arms tasks again, and removes the entries of ended ones. Nothing waits for it; a stopping engine waits for a moment.
pub struct Rearmer {
    pub timer: Arc<dyn Timer>,
    pub entries: Option<Arc<dyn Entries>>,
    pub clock: LedgerClock,
    /// How far ahead the timer is to know tasks.
    pub horizon: Duration,
    pub lifecycle: Lifecycle,
}

impl Rearmer {
    /// Arms these tasks again, and has the timer expect those due soon. The look-ahead finds a lost arm.
    pub fn rearm(&self, alarms: Vec<Alarm>) {
        let horizon = self.clock.now().plus(self.horizon);
        let (near, far): (Vec<Alarm>, Vec<Alarm>) =
            alarms.into_iter().partition(|alarm| alarm.due <= horizon);
        if !near.is_empty() {
            self.timer.expect(near.clone());
        }
        let armed: Vec<Alarm> = near.into_iter().chain(far).collect();
        if armed.is_empty() {
            return;
        }
        let timer = Arc::clone(&self.timer);
        self.lifecycle.runs.spawn(async move {
            if let Err(error) = timer.arm(&armed, ArmMode::IfMissing).await {
                tracing::debug!(%error, keys = armed.len(), "could not arm again; the look-ahead finds them");
            }
        });
    }

    /// Removes the entries of ended tasks from a timer that keeps them. An audit finds an entry that was not removed.
    pub fn remove_entries(&self, ended: Vec<Alarm>) {
        let Some(entries) = self.entries.clone().filter(|_| !ended.is_empty()) else {
            return;
        };
        self.lifecycle.runs.spawn(async move {
            if let Err(error) = entries.settle(&ended).await {
                tracing::debug!(%error, entries = ended.len(), "could not remove entries of ended tasks; an audit does");
            }
        });
    }
}

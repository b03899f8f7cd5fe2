//! What a running engine can be asked and told.

use std::sync::Arc;
use std::time::Duration;

use tokio::sync::watch;

use super::deps::Deps;
use super::lease::Leases;
use crate::config::{RecurringConfig, RetentionConfig};

/// A handle to a running engine: for health checks, and to give it a changed configuration. Cheap to clone.
#[derive(Clone)]
pub struct Handle {
    pub(super) deps: Arc<Deps>,
    pub(super) leases: Arc<Leases>,
    pub(super) recurring: watch::Sender<Vec<RecurringConfig>>,
    pub(super) retention: watch::Sender<RetentionConfig>,
}

impl Handle {
    /// Whether the ledger did what it was last asked, at most some seconds ago.
    pub fn ledger_answers(&self) -> bool {
        self.deps.health.is_good()
    }

    /// What the ledger did not do, where it does not [answer](Self::ledger_answers); without names or data.
    pub fn ledger_trouble(&self) -> Option<String> {
        self.deps.health.trouble()
    }

    /// Whether expired events are heard: `None` for a timer without a server.
    pub fn is_listening(&self) -> Option<bool> {
        self.deps.timer.is_listening()
    }

    /// Waits until the daemon is as punctual as it can be: the ledger answers, and events are heard where there
    /// are any.
    pub async fn ready(&self) {
        const LOOK_EVERY: Duration = Duration::from_millis(5);
        while !self.ledger_answers() || self.is_listening() == Some(false) {
            tokio::time::sleep(LOOK_EVERY).await;
        }
    }

    /// How many daemons are known to share the ledger, this one included.
    pub fn members(&self) -> usize {
        self.deps.ownership.members()
    }

    /// Whether the engine is stopping.
    pub fn is_stopping(&self) -> bool {
        self.deps.lifecycle.leaving.is_cancelled() || self.deps.lifecycle.stopping.is_cancelled()
    }

    /// Ends every run at once, without waiting for what becomes of it: for a process that is about to exit, so that
    /// no program it started outlives it.
    pub async fn end_runs(&self) {
        const PATIENCE: Duration = Duration::from_millis(500);
        self.deps.lifecycle.stopping.cancel();
        self.deps.lifecycle.runs.close();
        self.leases.interrupt_all();
        let _ = tokio::time::timeout(PATIENCE, self.deps.lifecycle.runs.wait()).await;
    }

    /// Takes the series of a configuration that was read again: what is new or another one is written, what is gone
    /// goes on, with a warning.
    pub fn take_recurring(&self, series: Vec<RecurringConfig>) {
        self.recurring.send_replace(series);
    }

    /// Takes how long finished tasks are kept from a configuration that was read again. What is being pruned by the old
    /// one ends with the batch that is under way.
    pub fn take_retention(&self, retention: RetentionConfig) {
        self.retention.send_if_modified(|kept| {
            let changed = *kept != retention;
            *kept = retention;
            changed
        });
    }

    /// Runs that go on, or wait to be settled.
    pub fn running(&self) -> usize {
        self.leases.len()
    }
}

//! A look at a running engine.

use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use crate::config::{RecurringConfig, RetentionConfig};
use crate::engine::Shared;

/// A look at a running engine, for health checks.
#[derive(Clone)]
pub struct Handle(pub(crate) Arc<Shared>);

impl Handle {
    /// Whether the ledger did what it was last asked, at most some seconds ago.
    pub fn ledger_answers(&self) -> bool {
        self.0.ledger_answers.load(Ordering::Relaxed)
            && !self.0.settlements_refused.load(Ordering::Relaxed)
    }

    /// What the ledger did not do, where it does not [answer](Self::ledger_answers); without names or data.
    pub fn ledger_trouble(&self) -> Option<String> {
        let trouble = || self.0.ledger_health().trouble.clone();
        let trouble = (!self.ledger_answers()).then(trouble);
        trouble.filter(|trouble| !trouble.is_empty())
    }

    /// Whether expired events are heard: `None` for a timer without a server.
    pub fn is_listening(&self) -> Option<bool> {
        self.0.parts.timer.is_listening()
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
        self.0.share.members()
    }

    /// Whether the engine is stopping.
    pub fn is_stopping(&self) -> bool {
        self.0.leaving.is_cancelled() || self.0.stopping.is_cancelled()
    }

    /// Ends every run at once, without waiting for what becomes of it: for a process that is about to exit, so that
    /// no program it started outlives it.
    pub async fn end_runs(&self) {
        const PATIENCE: Duration = Duration::from_millis(500);
        self.0.stopping.cancel();
        self.0.runs.close();
        self.0.leases.interrupt_all();
        let _ = tokio::time::timeout(PATIENCE, self.0.runs.wait()).await;
    }

    /// Takes the series of a configuration that was read again: what is new or another one is written, what is gone
    /// goes on, with a warning.
    pub fn take_recurring(&self, series: Vec<RecurringConfig>) {
        self.0.recurring.send_replace(series);
    }

    /// Takes how long finished tasks are kept from a configuration that was read again. What is being pruned by the old
    /// one ends with the batch that is under way.
    pub fn take_retention(&self, retention: RetentionConfig) {
        self.0.retention.send_if_modified(|kept| {
            let changed = *kept != retention;
            *kept = retention;
            changed
        });
    }

    /// Runs that go on, or wait to be settled.
    pub fn running(&self) -> usize {
        self.0.leases.len()
    }
}

//! Handle to a running engine: status, and changed configuration.

use std::sync::Arc;
use std::time::Duration;

use tokio::sync::watch;

use super::activity::BackgroundStatus;
use super::deps::Deps;
use super::history::History;
use super::lease::Leases;
use super::pull::PullQueues;
use crate::config::{RecurringConfig, RetentionConfig};
use crate::membership::Member;
use crate::task::TaskKey;

/// Handle to a running engine, for health checks and changes of its configuration. Cheap to clone.
#[derive(Clone)]
pub struct Handle {
    pub(super) deps: Arc<Deps>,
    pub(super) leases: Arc<Leases>,
    pub(super) pull: PullQueues,
    pub(super) history: Arc<History>,
    pub(super) recurring: watch::Sender<Vec<RecurringConfig>>,
    pub(super) retention: watch::Sender<RetentionConfig>,
}

impl Handle {
    /// True if the ledger carried out the latest statements, at most some seconds ago.
    pub fn ledger_answers(&self) -> bool {
        self.deps.health.is_good()
    }

    /// Describes the latest failure if the ledger does not [answer](Self::ledger_answers). Contains no names or data.
    pub fn ledger_trouble(&self) -> Option<String> {
        self.deps.health.trouble()
    }

    /// How long the ledger has not answered; `None` if it answers, or has not failed yet.
    pub fn ledger_fails_for(&self) -> Option<Duration> {
        self.deps.health.failing_for()
    }

    /// True if the timer receives expired events; `None` for a timer without a server.
    pub fn is_listening(&self) -> Option<bool> {
        self.deps.timer.is_listening()
    }

    /// True if the daemon adopts keys that it hears being armed: without events, a bare `SETEX` may be lost.
    pub fn hears_keys(&self) -> bool {
        self.deps.hears_keys()
    }

    /// Waits until the daemon is ready: the ledger answers, and the timer receives events if it has a server.
    pub async fn ready(&self) {
        const LOOK_EVERY: Duration = Duration::from_millis(5);
        while !self.ledger_answers() || self.is_listening() == Some(false) {
            tokio::time::sleep(LOOK_EVERY).await;
        }
    }

    /// The pull queues, from which workers take tasks.
    pub fn pull(&self) -> PullQueues {
        self.pull.clone()
    }

    /// Name of the pull queue from which workers take the tasks of this key; `None` if this daemon runs them itself, or has
    /// no route for them.
    pub fn pull_queue_of(&self, key: &TaskKey) -> Option<Arc<str>> {
        let route = self.deps.router.find(key)?;
        route.pull.map(|pull| pull.queue)
    }

    /// True if this daemon has a handler or a route for the key.
    pub fn runs(&self, key: &TaskKey) -> bool {
        self.deps.router.runs(key)
    }

    /// Status of the engine's background tasks, by name.
    pub fn background(&self) -> Vec<BackgroundStatus> {
        self.deps.background.status()
    }

    /// What the daemons did in each minute of the last 24 h.
    pub fn history(&self) -> Arc<History> {
        Arc::clone(&self.history)
    }

    /// The name of this daemon, as claimed rows have it.
    pub fn daemon(&self) -> &str {
        &self.deps.claimant.daemon
    }

    /// True for one of the daemons that share the ledger: it does what need not be done by each.
    pub fn is_first(&self) -> bool {
        self.deps.ownership.is_first()
    }

    /// Number of daemons known to share the ledger, including this one.
    pub fn members(&self) -> usize {
        self.deps.ownership.members()
    }

    /// The daemons known to share the ledger, this one first. Empty until the first heartbeats were exchanged.
    pub fn daemons(&self) -> Vec<Member> {
        self.deps.ownership.fleet()
    }

    /// The names of the daemons that have ended without saying so, at most `span` ago, and whose place no other has taken
    /// since.
    pub fn gone(&self, span: Duration) -> Vec<String> {
        self.deps.ownership.gone(span)
    }

    /// True if the engine is stopping.
    pub fn is_stopping(&self) -> bool {
        self.deps.lifecycle.leaving.is_cancelled() || self.deps.lifecycle.stopping.is_cancelled()
    }

    /// Ends every run at once, without waiting for its settlement: for a process that is about to exit, so that no
    /// program it started outlives it.
    pub async fn end_runs(&self) {
        const PATIENCE: Duration = Duration::from_millis(500);
        self.deps.lifecycle.stopping.cancel();
        self.deps.lifecycle.runs.close();
        self.leases.interrupt_all();
        let _ = tokio::time::timeout(PATIENCE, self.deps.lifecycle.runs.wait()).await;
    }

    /// Replaces the recurring tasks of the configuration. New and changed ones are written; removed ones continue, with
    /// a warning.
    pub fn take_recurring(&self, tasks: Vec<RecurringConfig>) {
        self.recurring.send_replace(tasks);
    }

    /// Replaces the retention of finished tasks. Pruning by the old one ends with the current batch.
    pub fn take_retention(&self, retention: RetentionConfig) {
        self.retention.send_if_modified(|kept| {
            let changed = *kept != retention;
            *kept = retention;
            changed
        });
    }

    /// Number of runs that are running or wait to be settled.
    pub fn running(&self) -> usize {
        self.leases.len()
    }
}

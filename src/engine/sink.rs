//! Timer sink: passes signals to the signal queue, and keys that may lack a row to the adoption candidates.

use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;

use super::activity::Activity;
use super::candidates::Candidates;
use super::claim::Claimer;
use super::queue::SignalQueue;
use crate::handler::Router;
use crate::ledger::Claims;
use crate::membership::{HigherRankedListener, Ownership};
use crate::task::TaskKey;
use crate::telemetry::{DropReason, Metrics};
use crate::timer::{AdoptionCandidate, AdoptionSink, Cause, Peers, Signal, SignalSink};

/// The engine's side of the timer.
pub struct TimerSink {
    pub claims: Arc<dyn Claims>,
    pub router: Arc<Router>,
    pub ownership: Arc<Ownership>,
    pub sweep: Arc<Activity>,
    pub audit: Arc<Activity>,
    pub metrics: Arc<Metrics>,
    /// Receives the signals.
    pub queue: Arc<SignalQueue>,
    /// Receives the keys that may lack a row.
    pub candidates: Arc<Candidates>,
    /// Receives the expired keys that lack a row.
    pub claimer: Arc<Claimer>,
}

impl SignalSink for TimerSink {
    fn raise(&self, signal: Signal) {
        self.queue.push(signal);
    }

    fn sweep(&self, cause: Cause) {
        self.sweep.activate(cause);
    }

    fn audit(&self, cause: Cause) {
        self.audit.activate(cause);
    }

    fn wants(&self, key: &TaskKey) -> bool {
        self.router.runs(key)
    }

    fn owns(&self, key: &TaskKey) -> bool {
        self.ownership.owns(key)
    }
}

#[async_trait]
impl AdoptionSink for TimerSink {
    fn adopts(&self, key: &TaskKey) -> bool {
        self.router.adopts(key)
    }

    fn propose(&self, candidate: AdoptionCandidate) {
        let higher_ranked = self.ownership.highest_ranked_listener(&candidate.key);
        self.add(candidate, higher_ranked);
    }

    fn propose_alone(&self, candidate: AdoptionCandidate) {
        self.add(candidate, None);
    }

    fn expired_elsewhere(&self, key: &TaskKey, is_notified: bool) {
        let adopts = || self.router.adopts(key);
        let is_left = match is_notified {
            true => self.ownership.adopts_for_owner(key, adopts),
            false => adopts(),
        };
        if is_left {
            self.claimer.adopt_expired([key.clone()], Duration::ZERO);
        }
    }

    async fn are_known(&self, keys: &[TaskKey]) -> Option<Vec<bool>> {
        let found = self.claims.look_up(keys).await.ok()?;
        Some(found.iter().map(Option::is_some).collect())
    }
}

impl Peers for TimerSink {
    fn listener_rank(&self, key: &TaskKey) -> usize {
        let adopts = || self.router.adopts(key);
        self.ownership.listener_rank(key, adopts)
    }

    fn hint_recipient(&self, key: &TaskKey) -> Option<u64> {
        self.ownership.hint_recipient(key).map(|member| member.0)
    }

    fn member(&self) -> Option<u64> {
        Some(self.ownership.me().0)
    }

    fn may_stop_listening(&self, armings: bool) -> bool {
        self.ownership.may_stop_listening(armings)
    }
}

impl TimerSink {
    /// Adds a candidate that another daemon may act on first.
    fn add(&self, candidate: AdoptionCandidate, higher_ranked: Option<HigherRankedListener>) {
        if !self.router.adopts(&candidate.key) {
            return self.metrics.dropped(DropReason::NotAdopted, 1);
        }
        if !self.candidates.add_behind(candidate, higher_ranked) {
            self.metrics.dropped(DropReason::CandidateOverflow, 1);
            self.audit.activate(Cause::Overflow);
        }
    }
}

//! The interface of the engine for timers, by what a part of a timer does: raise signals, propose keys, or share events
//! with other daemons.

use async_trait::async_trait;

use super::{AdoptionCandidate, Cause, Signal};
use crate::task::TaskKey;

/// Receives signals. No method blocks.
pub trait SignalSink: Send + Sync + 'static {
    /// Accepts a signal. If a queue is full, drops and counts it, and requests a sweep.
    fn raise(&self, signal: Signal);

    /// Requests a sweep: an overdue task may have been missed.
    fn sweep(&self, cause: Cause);

    /// Requests an audit: keys may be missing.
    fn audit(&self, cause: Cause);

    /// True if this daemon can run tasks of this name. All other keys are ignored. Called for each arming event of the
    /// database, so it must be cheap.
    fn wants(&self, key: &TaskKey) -> bool;

    /// True if this daemon owns the task, among the daemons that can run it.
    fn owns(&self, key: &TaskKey) -> bool;
}

/// Receives keys that may lack a row. No method blocks.
#[async_trait]
pub trait AdoptionSink: SignalSink {
    /// True if this daemon adopts entries and keys of this name.
    fn adopts(&self, key: &TaskKey) -> bool {
        self.wants(key)
    }

    /// Proposes a key for adoption. If the queue is full, drops and counts the candidate, and requests an audit.
    fn propose(&self, candidate: AdoptionCandidate);

    /// As [`propose`](Self::propose), for evidence that no other daemon has: none is waited for.
    fn propose_alone(&self, candidate: AdoptionCandidate) {
        self.propose(candidate);
    }

    /// Receives the key of an expired event for a task that another daemon owns. This daemon looks it up and adopts the
    /// key if that daemon adopts none of this name, or cannot be told of it.
    fn expired_elsewhere(&self, _key: &TaskKey, _is_notified: bool) {}

    /// Returns for each key, in order, whether the ledger has a row of it; `None` if the ledger does not answer.
    async fn are_known(&self, keys: &[TaskKey]) -> Option<Vec<bool>> {
        Some(vec![false; keys.len()])
    }
}

/// What the other daemons receive, and which of them acts first.
pub trait Peers: Send + Sync + 'static {
    /// Number of daemons that come first and receive the arming of this key too. 0: this daemon acts on it. 1: it acts
    /// if the first one did not. Higher: it remembers the event. Daemons that adopt the key come first, then those of a
    /// higher rank.
    fn listener_rank(&self, _key: &TaskKey) -> usize {
        0
    }

    /// Returns the member to which this daemon forwards the expiry of `_key`: its owner, if the owner does not receive
    /// it.
    fn hint_recipient(&self, _key: &TaskKey) -> Option<u64> {
        None
    }

    /// The member id under which other daemons address this one.
    fn member(&self) -> Option<u64> {
        None
    }

    /// True if enough other daemons receive the expiry of all keys, and their armings if `_armings`, and forward this
    /// daemon's.
    fn may_stop_listening(&self, _armings: bool) -> bool {
        false
    }
}

/// The whole interface of the engine for a timer, of which each part of the timer gets what it needs.
pub trait EngineSink: AdoptionSink + Peers {}

impl<S: AdoptionSink + Peers + ?Sized> EngineSink for S {}

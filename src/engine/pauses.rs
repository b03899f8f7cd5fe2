//! What is paused, as this daemon knows it: read from the ledger about once a second, and never believed for long.
//!
//! A claim is made only by what was read at most [`FRESH_FOR`] ago, and what was claimed starts only by what was read at
//! most [`BELIEVED_FOR`] ago. So no run starts later than that after a pause was acknowledged, however slow the ledger is.

use std::sync::Arc;
use std::time::Duration;

use tokio::sync::watch;
use tokio::time::Instant;

use crate::ledger::Claim;
use crate::task::{Hindrance, Pause, Paused, UnixMs};
use crate::timer::Signal;

/// Claims wait for news when what is known is older.
const FRESH_FOR: Duration = Duration::from_millis(1_500);

/// What was claimed is given back when what is known is older.
const BELIEVED_FOR: Duration = Duration::from_millis(1_900);

/// What is known of the pauses.
#[derive(Debug)]
pub struct PauseWatch(watch::Sender<Known>);

#[derive(Debug, Clone, Default)]
pub struct Known {
    pub paused: Arc<Paused>,
    pub pauses: Arc<Vec<Pause>>,
    /// When the ledger was asked for this.
    asked: Option<Instant>,
}

impl Known {
    fn is_younger_than(&self, age: Duration) -> bool {
        self.asked.is_some_and(|asked| asked.elapsed() < age)
    }
}

impl Default for PauseWatch {
    fn default() -> Self {
        Self(watch::Sender::new(Known::default()))
    }
}

impl PauseWatch {
    /// What is paused, as far as it is known.
    pub fn paused(&self) -> Arc<Paused> {
        Arc::clone(&self.0.borrow().paused)
    }

    /// Waits until what is known is fresh enough to claim by.
    ///
    /// # Cancel safety
    /// Cancel safe.
    pub async fn fresh(&self) {
        let mut known = self.0.subscribe();
        let fresh = known.wait_for(|known| known.is_younger_than(FRESH_FOR));
        fresh.await.map(drop).expect("the sender is `self`");
    }

    /// What keeps a signal's task from starting; `None` for one whose arming is not known yet.
    pub fn hinders(&self, signal: &Signal) -> Option<Hindrance> {
        let arming = signal.arming?;
        self.0.borrow().paused.hinders(&signal.key, arming.due)
    }

    /// Whether something keeps a signal's task from starting, or may do so: of a task whose arming is not known yet, only
    /// the ledger can tell whether it is held.
    pub fn may_hinder(&self, signal: &Signal) -> bool {
        let due = signal.arming.map_or(UnixMs(i64::MIN), |arming| arming.due);
        self.0.borrow().paused.hinders(&signal.key, due).is_some()
    }

    /// Whether a task that has just been claimed may start: the claim may have taken a while.
    pub fn may_start(&self, claim: &Claim) -> bool {
        let known = self.0.borrow();
        let hindrance = known.paused.hinders(&claim.key, claim.lease.arming.due);
        known.is_younger_than(BELIEVED_FOR) && hindrance.is_none()
    }

    /// Takes in what was read; answers what it was before.
    pub fn learn(&self, pauses: Vec<Pause>, asked: Instant) -> (Known, Known) {
        let known = Known {
            paused: Arc::new(Paused::of(&pauses)),
            pauses: Arc::new(pauses),
            asked: Some(asked),
        };
        (self.0.send_replace(known.clone()), known)
    }
}

//! Pauses as this daemon knows them: read from the ledger about once a second, and trusted only for a short time.
//!
//! A claim requires pauses read at most [`FRESH_FOR`] ago, and a claimed task starts only by pauses read at most
//! [`BELIEVED_FOR`] ago. So no run starts later than that after a pause was acknowledged, however slow the ledger is.

use std::sync::Arc;
use std::time::Duration;

use tokio::sync::watch;

use crate::clock::Moment;
use crate::ledger::Claim;
use crate::task::{BlockedBy, Pause, Paused, UnixMs};
use crate::timer::Signal;

/// Claims wait for a new read when the known pauses are older than this.
const FRESH_FOR: Duration = Duration::from_millis(1_500);

/// Claims are released when the known pauses are older than this.
const BELIEVED_FOR: Duration = Duration::from_millis(1_900);

/// The known pauses, published to the stages.
#[derive(Debug)]
pub struct PauseWatch(watch::Sender<KnownPauses>);

#[derive(Debug, Clone, Default)]
pub struct KnownPauses {
    pub paused: Arc<Paused>,
    pub pauses: Arc<Vec<Pause>>,
    /// When the ledger was asked for these pauses.
    asked: Option<Moment>,
}

impl KnownPauses {
    fn is_younger_than(&self, age: Duration) -> bool {
        self.asked.is_some_and(|asked| asked.age() < age)
    }
}

impl Default for PauseWatch {
    fn default() -> Self {
        Self(watch::Sender::new(KnownPauses::default()))
    }
}

impl PauseWatch {
    /// The known pauses.
    pub fn paused(&self) -> Arc<Paused> {
        Arc::clone(&self.0.borrow().paused)
    }

    /// The known pauses and holds, one by one.
    pub fn pauses(&self) -> Arc<Vec<Pause>> {
        Arc::clone(&self.0.borrow().pauses)
    }

    /// Waits until the known pauses are fresh enough for a claim.
    ///
    /// # Cancel safety
    /// Cancel safe.
    pub async fn fresh(&self) {
        let mut known = self.0.subscribe();
        let fresh = known.wait_for(|known| known.is_younger_than(FRESH_FOR));
        fresh.await.map(drop).expect("the sender is `self`");
    }

    /// The pause or hold that keeps a signal's task from starting; `None` if there is none or the arming is not known
    /// yet.
    pub fn blocks(&self, signal: &Signal) -> Option<BlockedBy> {
        let arming = signal.arming?;
        self.0.borrow().paused.blocks(&signal.key, arming.due)
    }

    /// True if a pause or hold keeps a signal's task from starting, or may do so: while the arming is not known, only
    /// the ledger can tell whether the task is held.
    pub fn may_hinder(&self, signal: &Signal) -> bool {
        let due = signal.arming.map_or(UnixMs(i64::MIN), |arming| arming.due);
        self.0.borrow().paused.blocks(&signal.key, due).is_some()
    }

    /// True if a task that has just been claimed may start. Checked again because the claim may have taken a while.
    pub fn may_start(&self, claim: &Claim) -> bool {
        let known = self.0.borrow();
        let blocked_by = known.paused.blocks(&claim.key, claim.lease.arming.due);
        known.is_younger_than(BELIEVED_FOR) && blocked_by.is_none()
    }

    /// Replaces the known pauses. Returns the pauses before and after.
    pub fn replace(&self, pauses: Vec<Pause>, asked: Moment) -> (KnownPauses, KnownPauses) {
        let known = KnownPauses {
            paused: Arc::new(Paused::of(&pauses)),
            pauses: Arc::new(pauses),
            asked: Some(asked),
        };
        (self.0.send_replace(known.clone()), known)
    }
}

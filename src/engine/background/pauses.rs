//! What is paused, as this daemon knows it: read from the ledger about once a second, and never believed for long.
//!
//! A claim is made only by what was read at most [`FRESH_FOR`] ago, and what was claimed starts only by what was read at
//! most [`BELIEVED_FOR`] ago. So no run starts later than that after a pause was acknowledged, however slow the ledger is.

use std::sync::Arc;
use std::time::Duration;

use tokio::sync::watch;
use tokio::time::Instant;

use crate::engine::Shared;
use crate::ledger::{Claim, LedgerError, PauseAnswer};
use crate::task::{Hindrance, Pause, Paused, TaskKey, UnixMs};
use crate::timer::{Cause, Signal, Source};

/// How often pauses are read, counted from when they were asked for.
const READ_EVERY: Duration = Duration::from_secs(1);

/// When they are asked for again after a failure.
const READ_AGAIN: Duration = Duration::from_millis(200);

/// Claims wait for news when what is known is older.
const FRESH_FOR: Duration = Duration::from_millis(1_500);

/// What was claimed is given back when what is known is older.
const BELIEVED_FOR: Duration = Duration::from_millis(1_900);

/// Held tasks are counted so far, for the log.
const COUNTED_MAX: u32 = 100_000;

/// What is known of the pauses.
#[derive(Debug)]
pub(crate) struct PauseWatch(watch::Sender<Known>);

#[derive(Debug, Clone, Default)]
struct Known {
    paused: Arc<Paused>,
    pauses: Arc<Vec<Pause>>,
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
    pub(crate) fn paused(&self) -> Arc<Paused> {
        Arc::clone(&self.0.borrow().paused)
    }

    /// Waits until what is known is fresh enough to claim by.
    ///
    /// # Cancel safety
    /// Cancel safe.
    pub(crate) async fn fresh(&self) {
        let mut known = self.0.subscribe();
        let fresh = known.wait_for(|known| known.is_younger_than(FRESH_FOR));
        fresh.await.map(drop).expect("the sender is `self`");
    }

    /// What keeps a signal's task from starting; `None` for one whose arming is not known yet.
    pub(crate) fn hinders(&self, signal: &Signal) -> Option<Hindrance> {
        let arming = signal.arming?;
        self.0.borrow().paused.hinders(&signal.key, arming.due)
    }

    /// Whether something keeps a signal's task from starting, or may do so: of a task whose arming is not known yet, only
    /// the ledger can tell whether it is held.
    pub(crate) fn may_hinder(&self, signal: &Signal) -> bool {
        let due = signal.arming.map_or(UnixMs(i64::MIN), |arming| arming.due);
        self.0.borrow().paused.hinders(&signal.key, due).is_some()
    }

    /// Whether a task that has just been claimed may start: the claim may have taken a while.
    pub(crate) fn may_start(&self, claim: &Claim) -> bool {
        let known = self.0.borrow();
        let hindrance = known.paused.hinders(&claim.key, claim.lease.arming.due);
        known.is_younger_than(BELIEVED_FOR) && hindrance.is_none()
    }

    /// Takes in what was read; answers what it was before.
    fn learn(&self, pauses: Vec<Pause>, asked: Instant) -> (Known, Known) {
        let known = Known {
            paused: Arc::new(Paused::of(&pauses)),
            pauses: Arc::new(pauses),
            asked: Some(asked),
        };
        (self.0.send_replace(known.clone()), known)
    }
}

impl Shared {
    /// Keeps what is known of the pauses fresh, until the engine stops.
    pub(crate) async fn watch_pauses_until_stopped(self: Arc<Self>) {
        let work = async {
            loop {
                let asked = Instant::now();
                let again = match self.read_pauses().await {
                    Ok(()) => {
                        self.answered_late(asked);
                        asked + READ_EVERY
                    }
                    Err(error) => {
                        self.ledger_failed("read what is paused, so nothing starts", &error);
                        Instant::now() + READ_AGAIN
                    }
                };
                tokio::time::sleep_until(again).await;
            }
        };
        self.stopping.run_until_cancelled(work).await;
    }

    /// Asks the ledger what is paused.
    pub(crate) async fn read_pauses(&self) -> Result<(), LedgerError> {
        let asked = Instant::now();
        let pauses = self.parts.ledger.pauses().all().await?;
        self.learn_pauses(pauses, asked);
        Ok(())
    }

    fn learn_pauses(&self, pauses: Vec<Pause>, asked: Instant) {
        let (before, now) = self.pauses.learn(pauses, asked);
        self.parts.metrics.pauses(now.pauses.len());
        if before.pauses == now.pauses {
            return;
        }
        for pause in now
            .pauses
            .iter()
            .filter(|pause| !before.pauses.contains(pause))
        {
            let (kind, scope) = (pause.kind.as_str(), pause.scope.to_string());
            tracing::warn!(scope, kind, since = %pause.since, by = pause.by, reason = pause.reason, "pause taken note of");
        }
        for pause in before
            .pauses
            .iter()
            .filter(|pause| !now.pauses.contains(pause))
        {
            let (kind, scope) = (pause.kind.as_str(), pause.scope.to_string());
            tracing::info!(scope, kind, since = %pause.since, "pause lifted");
        }
        if now.paused.lets_go_of(&before.paused) {
            // What fell due meanwhile has been signalled, and dropped.
            self.intake.sweep(Cause::Asked);
        }
    }

    /// Before anything is claimed: what was due before now waits for review.
    pub(crate) async fn hold_overdue(&self) -> Result<(), LedgerError> {
        let pauses = self.parts.ledger.pauses();
        let reason = "started with `hold_overdue`";
        let PauseAnswer { pause, already } = pauses.hold(&self.claimant.daemon, reason).await?;
        let before = pause.due_before.unwrap_or(pause.since);
        let overdue = pauses.count_overdue(before, COUNTED_MAX).await?;
        let or_more = overdue >= u64::from(COUNTED_MAX);
        if already {
            tracing::warn!(overdue, or_more, due_before = %before, by = pause.by, "tasks were held for review already: that hold stands");
        } else {
            tracing::warn!(overdue, or_more, due_before = %before, "tasks are held for review, those that come again among them: see `lapsed list --state overdue` (`--recurring`), let them go with `lapsed resume --held`");
        }
        Ok(())
    }

    /// Does with signals that were set aside what a dispatcher would, except that it takes no start for them: whose row
    /// nobody has written is adopted, what is paused or held is left alone. What turns out to be neither waits again.
    pub(crate) async fn see_off(self: Arc<Self>, signals: Vec<Signal>) {
        let keys: Vec<TaskKey> = signals.iter().map(|signal| signal.key.clone()).collect();
        let events = signals
            .iter()
            .filter(|signal| signal.source == Source::Event);
        let events: Vec<TaskKey> = events.map(|signal| signal.key.clone()).collect();
        let (mut due, mut named): (Vec<Signal>, Vec<Signal>) = signals
            .into_iter()
            .partition(|signal| signal.arming.is_some());
        named.retain(|signal| !self.is_of_a_stranger(signal));
        match self.look_up_due(named).await {
            Ok(found) => due.extend(found.into_iter().map(|(signal, _)| signal)),
            Err(error) => return self.wait_out(&error, &keys, events).await,
        }
        self.leave_paused(&mut due);
        self.intake.land(&keys);
        due.into_iter()
            .for_each(|signal| self.intake.put_back(signal));
    }

    /// What may not start for now is left to the sweep, which comes by when it may.
    pub(crate) fn leave_paused(&self, due: &mut Vec<Signal>) {
        let before = due.len();
        due.retain(|signal| self.pauses.hinders(signal).is_none());
        let paused = (before - due.len()) as u64;
        if paused > 0 {
            self.parts.metrics.dropped("paused", paused);
        }
    }
}

//! The main path: from a signal to a run.

use std::collections::HashMap;
use std::sync::Arc;
use std::time::Duration;

use tokio::sync::{SemaphorePermit, mpsc};
use tokio::time::timeout;

use crate::engine::Shared;
use crate::engine::execute::Ended;
use crate::engine::queue::class::SignalClass;
use crate::engine::queue::fair::Taken;
use crate::engine::queue::permits::Permits;
use crate::engine::queue::route_load::RoutePermit;
use crate::handler::Route;
use crate::ledger::{Arming, Claim, LedgerError, Standing};
use crate::task::{State, TaskKey, UnixMs};
use crate::timer::{Alarm, ArmMode, Cause, Signal, Source};

/// Most signals of one claim.
pub(crate) const BATCH_MAX: usize = 512;

/// From this number of daemons on, the claims of each daemon follow one another: two at a time by each would be small,
/// and many sessions of the ledger would wait for the same pages.
const MANY_MEMBERS: usize = 3;

/// How long a claim waits for another one of this daemon.
const CLAIM_TURN_WAIT: Duration = Duration::from_millis(100);

/// How far the ledger's clock may be behind what is known of it here: what fell due less than this ago and
/// could not be claimed may not have been due there.
const CLOCK_ERROR_MAX: Duration = Duration::from_millis(100);

/// When such a claim is made again.
const CLAIM_AGAIN_AFTER: Duration = Duration::from_millis(5);

/// How long to wait before the next claim when the ledger did not answer.
const OUTAGE_PAUSE: Duration = Duration::from_millis(500);

impl Shared {
    /// Takes signals as there are free slots for them, claims what is due, and starts the runs. Once the engine
    /// stops it takes no more, but sees through what it has begun: a claim whose answer nobody waits for would
    /// hold its rows until the lease runs out.
    pub(crate) async fn dispatch(self: Arc<Self>, lane: SignalClass, ended: mpsc::Sender<Ended>) {
        let room = async || {
            let waiting = self.intake.ready(lane).await;
            let turn = self.claim_turn(lane).await;
            let slots = self.free_slots(lane, waiting).await;
            self.pauses.fresh().await;
            (turn, slots)
        };
        while let Some((turn, slots)) = self.stopping.run_until_cancelled(room()).await {
            let picked = self.intake.take(lane, slots.count());
            let signals = || picked.iter().map(|picked| &picked.signal);
            let keys: Vec<TaskKey> = signals().map(|signal| signal.key.clone()).collect();
            let events = signals().filter(|signal| signal.source == Source::Event);
            let events: Vec<TaskKey> = events.map(|signal| signal.key.clone()).collect();
            let claimed = self.claim_due(picked).await;
            drop(turn);
            match claimed {
                Ok((claims, missed)) => {
                    self.start(claims, keys, slots, &ended);
                    self.account_for(missed).await;
                }
                Err(error) => self.wait_out(&error, &keys, events).await,
            }
        }
    }

    /// Where many daemons share the ledger, waits until no other claim of fresh signals is on its way, but not for long:
    /// that one may have met a locked row.
    async fn claim_turn(&self, lane: SignalClass) -> Option<SemaphorePermit<'_>> {
        if lane != SignalClass::Fresh || self.share.members() < MANY_MEMBERS {
            return None;
        }
        let turn = timeout(CLAIM_TURN_WAIT, self.claim_turn.acquire()).await;
        turn.ok()?.ok()
    }

    /// From signals to claims: what nothing here can run never got so far, the ledger says which row a key is
    /// and whether it is due, what is paused is left alone too, and the claim decides. Answers what it did not get, too.
    pub(crate) async fn claim_due(
        &self,
        picked: Vec<Taken>,
    ) -> Result<(Vec<Claimed>, Vec<Signal>), LedgerError> {
        let (mut routes, signals) = self.leave_strangers(picked);
        let (mut due, named): (Vec<Signal>, Vec<Signal>) = signals
            .into_iter()
            .partition(|signal| signal.arming.is_some());
        due.extend(
            self.look_up_due(named)
                .await?
                .into_iter()
                .map(|(signal, _)| signal),
        );
        // Not before: a key whose row was never written is adopted, paused or not.
        self.leave_paused(&mut due);
        let armings: Vec<Arming> = due.iter().filter_map(|signal| signal.arming).collect();
        if armings.is_empty() {
            return Ok((Vec::new(), Vec::new()));
        }
        let claims = self.parts.ledger.claim(&armings, &self.claimant).await?;
        self.parts.metrics.claimed("won", claims.len() as u64);
        self.parts
            .metrics
            .claimed("missed", (armings.len() - claims.len()) as u64);
        let claims: Vec<Claimed> = claims
            .into_iter()
            .filter_map(|claim| {
                let (route, seat) = routes.remove(&claim.key)?;
                Some(Claimed { claim, route, seat })
            })
            .collect();
        due.retain(|signal| routes.contains_key(&signal.key));
        Ok((claims, due))
    }

    /// What runs each key; keys that are known to have no row are left out.
    fn leave_strangers(
        &self,
        picked: Vec<Taken>,
    ) -> (HashMap<TaskKey, (Route, RoutePermit)>, Vec<Signal>) {
        let mut routes = HashMap::with_capacity(picked.len());
        let mut signals = Vec::with_capacity(picked.len());
        for Taken {
            signal,
            route,
            seat,
        } in picked
        {
            if self.is_of_a_stranger(&signal) {
                continue;
            }
            if routes.insert(signal.key.clone(), (route, seat)).is_none() {
                signals.push(signal);
            }
        }
        (routes, signals)
    }

    /// Whether a signal names a key that is known to have no row; it is counted, then.
    pub(crate) fn is_of_a_stranger(&self, signal: &Signal) -> bool {
        let is_stranger = signal.arming.is_none() && self.strangers.knows(&signal.key);
        if is_stranger {
            self.parts.metrics.dropped("unknown", 1);
        }
        is_stranger
    }

    /// What was thought to be due and could not be claimed: says why, and holds what came early. A claim that
    /// was a few milliseconds early by the ledger's own clock is made again shortly; whatever else is due and not
    /// ours, such as a row that another session has locked, is looked at again in a second.
    async fn account_for(&self, missed: Vec<Signal>) {
        let still_due = match self.look_up_due(missed).await {
            Ok(still_due) => still_due,
            Err(error) => return self.ledger_failed("look up tasks", &error),
        };
        let now = self.parts.ledger.clock().now();
        let (only_just, locked): (Vec<_>, Vec<_>) = still_due
            .into_iter()
            .partition(|(_, due_at)| now.since(*due_at) < CLOCK_ERROR_MAX);
        let locked = locked.iter().filter_map(|(signal, _)| signal.arming);
        self.recovery
            .look_again(locked.map(|arming| arming.row), now);
        let soon = only_just
            .into_iter()
            .map(|(Signal { key, arming, .. }, _)| Alarm {
                key,
                due: now.plus(CLAIM_AGAIN_AFTER),
                arming,
            });
        let soon: Vec<Alarm> = soon.collect();
        if !soon.is_empty() {
            self.parts.timer.expect(soon);
        }
    }

    /// Asks where keys stand. Answers those that are due, with their arming and since when; holds those that will
    /// be soon, and counts the others by why not.
    pub(crate) async fn look_up_due(
        &self,
        signals: Vec<Signal>,
    ) -> Result<Vec<(Signal, UnixMs)>, LedgerError> {
        if signals.is_empty() {
            return Ok(Vec::new());
        }
        let keys: Vec<TaskKey> = signals.iter().map(|signal| signal.key.clone()).collect();
        let standings = self.parts.ledger.look_up(&keys).await?;
        let now = self.parts.ledger.clock().now();
        let (mut due, mut early, mut without_row) = (Vec::new(), Vec::new(), Vec::new());
        for (signal, standing) in signals.into_iter().zip(standings) {
            let Some(standing) = standing else {
                without_row.extend(self.without_row(signal));
                continue;
            };
            let Standing {
                arming,
                state,
                due_at,
                deleted,
                cancelling: _,
                origin: _,
                stamp: _,
            } = standing;
            let is_event = signal.source == Source::Event;
            let revived = deleted && is_event && self.revive_expired(arming).await?;
            let arming = Some(arming);
            let signal = Signal { arming, ..signal };
            match state {
                _ if revived => due.push((signal, due_at)),
                _ if deleted => self.parts.metrics.dropped("deleted", 1),
                State::Running => self.parts.metrics.dropped("running", 1),
                State::Done | State::Dead => self.parts.metrics.dropped("finished", 1),
                State::Cancelled => self.parts.metrics.dropped("cancelled", 1),
                State::Pending | State::Waiting if due_at > now => early.push(Alarm {
                    key: signal.key,
                    due: due_at,
                    arming,
                }),
                State::Pending | State::Waiting => due.push((signal, due_at)),
            }
        }
        self.adopt_expired(without_row, Duration::ZERO);
        self.parts.metrics.dropped("early", early.len() as u64);
        self.hold(early);
        Ok(due)
    }

    /// Of a signal without a row, the key, if that is to be adopted.
    fn without_row(&self, signal: Signal) -> Option<TaskKey> {
        let Signal {
            key,
            source: _,
            arming,
        } = signal;
        // A signal that knows its row is about one that was deleted.
        let is_strange = arming.is_none();
        if is_strange && self.parts.router.adopts(&key) {
            return Some(key);
        }
        self.parts.metrics.dropped("unknown", 1);
        if is_strange {
            self.strangers.remember(key);
        }
        None
    }

    /// Sees to it that a signal comes when these fall due: from memory if that is near, else from the timer.
    pub(crate) fn hold(&self, alarms: Vec<Alarm>) {
        let horizon = self.parts.ledger.clock().now().plus(self.nudge.horizon);
        let (near, far): (Vec<Alarm>, Vec<Alarm>) =
            alarms.into_iter().partition(|alarm| alarm.due <= horizon);
        if !near.is_empty() {
            self.parts.timer.expect(near.clone());
        }
        let armed: Vec<Alarm> = near.into_iter().chain(far).collect();
        if armed.is_empty() {
            return;
        }
        let timer = Arc::clone(&self.parts.timer);
        // Whoever settles or claims must not wait for Redis; a lost arm is found by the look-ahead.
        self.runs.spawn(async move {
            if let Err(error) = timer.arm(&armed, ArmMode::IfMissing).await {
                tracing::debug!(%error, keys = armed.len(), "could not arm again; the look-ahead finds them");
            }
        });
    }

    fn start(
        self: &Arc<Self>,
        claims: Vec<Claimed>,
        mut keys: Vec<TaskKey>,
        mut slots: Permits,
        ended: &mpsc::Sender<Ended>,
    ) {
        let claimed: std::collections::HashSet<&TaskKey> =
            claims.iter().map(|claimed| &claimed.claim.key).collect();
        keys.retain(|key| !claimed.contains(key));
        self.intake.land(&keys);
        for Claimed { claim, route, seat } in claims {
            let slot = slots
                .split(seat)
                .expect("at most as many claims as signals, and as many signals as slots");
            let held = self.leases.hold(&claim);
            let run = Arc::clone(self).run(claim, route, held, slot, ended.clone());
            self.runs.spawn(self.watched(run));
        }
    }

    /// The ledger has every task: the sweep finds them when it answers again. All but those whose key is gone before its
    /// row was written: they are looked at again.
    pub(crate) async fn wait_out(
        &self,
        error: &LedgerError,
        keys: &[TaskKey],
        events: Vec<TaskKey>,
    ) {
        self.ledger_failed("claim tasks", error);
        let adopts = |key: &TaskKey| self.parts.router.adopts(key);
        self.adopt_expired(events.into_iter().filter(adopts), OUTAGE_PAUSE);
        self.intake.land(keys);
        let pause = tokio::time::sleep(OUTAGE_PAUSE);
        self.stopping.run_until_cancelled(pause).await;
        self.intake.sweep(Cause::Overflow);
    }
}

/// A claim, and what it takes to run it.
pub(crate) struct Claimed {
    pub claim: Claim,
    pub route: Route,
    pub seat: RoutePermit,
}

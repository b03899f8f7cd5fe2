//! The one door for signals: bounded, and coalesced by key.

pub mod by_key;
pub mod class;
pub mod fair;
pub mod permits;
pub mod route_load;
pub mod unroutable;

use std::sync::{Arc, Mutex, MutexGuard};
use std::time::Duration;

use tokio::sync::{Notify, Semaphore};
use tokio::time::{Instant, timeout};

use crate::engine::queue::by_key::CoalescingQueue;
use crate::engine::queue::class::SignalClass;
use crate::engine::queue::fair::{
    Held, Refused, RouteQueues, SetAside, StartsWanted, Taken, Waiting,
};
use crate::engine::queue::route_load::Wakeups;
use crate::engine::queue::unroutable::Unroutable;
use crate::fleet::Share;
use crate::handler::Router;
use crate::ledger::Arming;
use crate::task::TaskKey;
use crate::telemetry::Metrics;
use crate::timer::{Cause, Signal, Source};

/// Signals that wait to be claimed, and the keys that are on their way.
///
/// A key is here once: a second signal for a waiting key is dropped, one for a key in flight is kept
/// and raised again when that run is settled, since it may be about a newer arming.
#[derive(Debug)]
pub struct SignalQueue {
    queues: Mutex<CoalescingQueue>,
    gate: Arc<Wakeups>,
    router: Arc<Router>,
    slots: Arc<Semaphore>,
    unroutable: Unroutable,
    sweep_wanted: Notify,
    /// The most urgent cause since the last audit.
    audit_cause: Mutex<Option<Cause>>,
    audit_wanted: Notify,
    metrics: Arc<Metrics>,
    share: Arc<Share>,
}

impl SignalQueue {
    /// An empty one, for what this router runs in these slots.
    pub fn new(
        metrics: Arc<Metrics>,
        share: Arc<Share>,
        router: Arc<Router>,
        slots: Arc<Semaphore>,
    ) -> Self {
        let gate = Arc::<Wakeups>::default();
        let lines = RouteQueues::new(&router, Arc::clone(&gate));
        Self {
            queues: Mutex::new(CoalescingQueue::new(lines)),
            gate,
            router,
            slots,
            unroutable: Unroutable::new(Arc::clone(&metrics)),
            sweep_wanted: Notify::new(),
            audit_cause: Mutex::default(),
            audit_wanted: Notify::new(),
            metrics,
            share,
        }
    }

    /// Waits until signals wait in this lane that may start; somebody else may take them first.
    ///
    /// # Cancel safety
    /// Cancel safe.
    pub async fn ready(&self, lane: SignalClass) -> usize {
        /// What is held is looked at again after so long, whether or not anybody said that it may start.
        const LOOK_AGAIN: Duration = Duration::from_millis(100);
        loop {
            let arrived = self.gate.arrived(lane).notified();
            match self.look(lane) {
                Waiting::Startable(count) => return count,
                Waiting::Nothing => arrived.await,
                Waiting::Unrouted => tokio::task::yield_now().await,
                Waiting::Held => drop(timeout(LOOK_AGAIN, arrived).await),
            }
        }
    }

    fn look(&self, lane: SignalClass) -> Waiting {
        let queues = self.queues_of_now();
        let found = match queues.lines.waiting(lane) {
            0 => Waiting::Nothing,
            _ => {
                self.gate.listen_for_ends();
                queues.lines.look(lane, self.slots.available_permits())
            }
        };
        match found {
            Waiting::Nothing | Waiting::Held if queues.has_unrouted() => Waiting::Unrouted,
            found => found,
        }
    }

    /// How many signals could start in this lane, if there were slots for all.
    pub fn startable(&self, lane: SignalClass) -> usize {
        match self.look(lane) {
            Waiting::Nothing | Waiting::Held | Waiting::Unrouted => 0,
            Waiting::Startable(count) => count,
        }
    }

    /// Whether signals wait for nothing but slots that are left to other routes.
    pub fn is_crowded(&self) -> bool {
        let queues = self.queues();
        queues.lines.is_crowded(self.slots.available_permits())
    }

    /// Why signals of this route, if any wait, do not start now.
    pub fn held(&self, route: &str) -> Option<Held> {
        let queues = self.queues();
        queues
            .lines
            .held_route(route, self.slots.available_permits())
    }

    /// Whether a task of this row waits or is in flight.
    pub fn knows(&self, row: u64) -> bool {
        self.queues().knows(row)
    }

    /// How many signals wait on each route that ever had any.
    pub fn waiting_by_route(&self) -> Vec<(String, usize)> {
        let queues = self.queues();
        let waiting = queues.lines.by_route();
        waiting
            .map(|(name, count)| (name.to_owned(), count))
            .collect()
    }

    /// Takes at most `limit` signals that may start. What is taken is in flight until [`land`](Self::land).
    pub fn take(&self, lane: SignalClass, limit: usize) -> Vec<Taken> {
        let mut queues = self.queues_of_now();
        let taken = queues.take(lane, limit, self.slots.available_permits());
        let left = queues.lines.waiting(lane);
        drop(queues);
        if left > 0 && !taken.is_empty() {
            self.gate.arrived(lane).notify_one();
        }
        taken
    }

    /// Waits until routes with a rate are in want of starts.
    ///
    /// # Cancel safety
    /// Cancel safe.
    pub async fn wants(&self) -> Vec<StartsWanted> {
        loop {
            let starved = self.gate.starved.notified();
            let wants = self.queues().lines.wants();
            if !wants.is_empty() {
                return wants;
            }
            starved.await;
        }
    }

    /// Takes out of this route's line what is hindered from starting, as [`RouteQueues::set_aside`] does. It is in flight until
    /// [`land`](Self::land).
    pub fn set_aside(
        &self,
        route: &str,
        most: usize,
        hindered: impl Fn(&Signal) -> bool,
    ) -> SetAside {
        let mut queues = self.queues_of_now();
        queues.set_aside(route, most, hindered)
    }

    /// Puts a signal that was set aside in its line again.
    pub fn put_back(&self, signal: Signal) {
        // What there is no room for is found by the sweep.
        self.admit(SignalClass::of(signal.source), signal)
            .unwrap_or(());
    }

    /// So many starts were granted to this route.
    pub fn grant(&self, route: &str, starts: u32) {
        if starts > 0 {
            self.queues().lines.grant(route, starts);
            self.gate.open();
        }
    }

    /// This route may be in want again.
    pub fn answered(&self, route: &str) {
        self.queues().lines.answered(route);
    }

    /// These keys are no longer in flight; what was signalled about them meanwhile is raised again.
    pub fn land<'a>(&self, keys: impl IntoIterator<Item = &'a TaskKey>) {
        let mut queues = self.queues();
        let again: Vec<Signal> = keys
            .into_iter()
            .filter_map(|key| queues.land(key))
            .collect();
        drop(queues);
        again
            .into_iter()
            // What there is no room for is found by the sweep.
            .for_each(|signal| {
                self.admit(SignalClass::of(signal.source), signal)
                    .unwrap_or(())
            });
    }

    /// These keys are about to be settled, which looks at the arming: what was signalled about them until
    /// now says nothing that the settlement will not find out.
    pub fn settling<'a>(&self, keys: impl IntoIterator<Item = &'a TaskKey>) {
        let mut queues = self.queues();
        for key in keys {
            queues.settling(key);
        }
    }

    /// As [`land`](Self::land), for armings that are finished: their echoes are dropped.
    pub fn land_settled<'a>(&self, armings: impl IntoIterator<Item = (&'a TaskKey, Arming)>) {
        let now = Instant::now();
        let mut queues = self.queues();
        queues.forget_settled(now);
        let mut keys = Vec::new();
        for (key, arming) in armings {
            queues.remember_settled(key, arming, now);
            keys.push(key);
        }
        drop(queues);
        self.land(keys);
    }

    /// Waits until a sweep is asked for, or a queue that was full has room again.
    ///
    /// # Cancel safety
    /// Cancel safe.
    pub async fn sweep_wanted(&self) {
        tokio::select! {
            () = self.sweep_wanted.notified() => {}
            () = self.gate.drained.notified() => {}
        }
    }

    /// Waits until an audit is asked for; asks are answered by being taken.
    ///
    /// # Cancel safety
    /// Cancel safe.
    pub async fn audit_wanted(&self) -> Cause {
        loop {
            let wanted = self.audit_wanted.notified();
            if let Some(cause) = self.audit_cause().take() {
                return cause;
            }
            wanted.await;
        }
    }

    fn audit_cause(&self) -> MutexGuard<'_, Option<Cause>> {
        self.audit_cause
            .lock()
            .expect("nothing panics while holding it")
    }

    /// Asks for no audit any more, if this is the cause for which one is asked.
    pub fn drop_audit(&self, cause: Cause) {
        let mut wanted = self.audit_cause();
        *wanted = wanted.filter(|wanted| *wanted != cause);
    }

    /// Whether an audit is asked for that does not wait for its turn.
    pub fn audit_is_urgent(&self) -> bool {
        *self.audit_cause() == Some(Cause::RedisChanged)
    }

    /// Whether there is room for so many more signals of the sweep, of whatever can start.
    pub fn has_room_to_sweep(&self, rows: usize) -> bool {
        let queues = self.queues();
        let free = self.slots.available_permits();
        queues.lines.has_room_to_sweep(rows, free)
    }

    /// As [`raise`](Self::raise), into this lane. Answers whether there was room for it.
    pub fn raise_in(&self, lane: SignalClass, signal: Signal) -> Result<(), Refused> {
        self.metrics.signalled(signal.source.as_str());
        self.admit(lane, signal)
    }

    fn admit(&self, lane: SignalClass, signal: Signal) -> Result<(), Refused> {
        let Some(signal) = self.queues().news(signal, &self.metrics) else {
            return Ok(());
        };
        let (swept, reloads) = (signal.source == Source::Sweep, self.router.reloads());
        // Without the lock: an expression takes a while.
        let Some(route) = self.router.find(&signal.key) else {
            self.unroutable.meet(&signal.key);
            return Ok(());
        };
        let mut queues = self.queues_of_now();
        if self.router.reloads() != reloads {
            drop(queues);
            return self.admit(lane, signal);
        }
        let Some(signal) = queues.news(signal, &self.metrics) else {
            return Ok(());
        };
        let pushed = queues.push(lane, route, signal, self.slots.available_permits());
        drop(queues);
        if let Err(refused) = pushed {
            // A sweep at once would find no room either: it is asked for when half of the room is free.
            self.drop_signal(match refused {
                Refused::Held => "held",
                Refused::Full => "overflow",
            });
            return Err(refused);
        }
        if swept {
            self.metrics.recovered("overdue", 1);
        }
        self.gate.arrived(lane).notify_one();
        Ok(())
    }

    fn drop_signal(&self, reason: &'static str) {
        self.metrics.dropped(reason, 1);
    }

    /// The queues by the routes as they are now: these may have been exchanged.
    fn queues_of_now(&self) -> MutexGuard<'_, CoalescingQueue> {
        let mut queues = self.queues();
        if !queues.lines.are_of(&self.router) {
            queues.reroute(&self.router);
            self.gate.open();
        }
        for key in queues.route_some(&self.router, self.slots.available_permits()) {
            if !self.router.runs(&key) {
                self.unroutable.meet(&key);
            }
        }
        queues
    }

    /// Nothing here runs it.
    pub fn unroutable(&self, key: &TaskKey) {
        self.unroutable.meet(key);
    }

    fn queues(&self) -> MutexGuard<'_, CoalescingQueue> {
        self.queues
            .lock()
            .expect("nothing panics while holding the queues")
    }
}

/// For timers, by way of the [`TimerSink`](crate::engine::sink::TimerSink), and for the engine itself.
impl SignalQueue {
    /// As [`SignalSink::raise`](crate::timer::SignalSink::raise).
    pub fn raise(&self, signal: Signal) {
        // Every daemon hears every event; what another one claims just now is not asked for.
        if let Source::Event | Source::Nudge = signal.source
            && !self.share.owns(&signal.key)
        {
            return self.drop_signal("not_ours");
        }
        // What there is no room for is found by the sweep.
        self.raise_in(SignalClass::of(signal.source), signal)
            .unwrap_or(());
    }

    /// As [`SignalSink::sweep`](crate::timer::SignalSink::sweep).
    pub fn sweep(&self, cause: Cause) {
        tracing::trace!(cause = cause.as_str(), "sweep wanted");
        self.sweep_wanted.notify_one();
    }

    /// As [`SignalSink::audit`](crate::timer::SignalSink::audit).
    pub fn audit(&self, cause: Cause) {
        let mut wanted = self.audit_cause();
        *wanted = Some(wanted.map_or(cause, |wanted| wanted.or_more_urgent(cause)));
        drop(wanted);
        self.audit_wanted.notify_one();
    }
}

#[cfg(test)]
mod tests;

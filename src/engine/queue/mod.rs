//! The signal queue: bounded, and coalesced by key.

pub mod by_key;
pub mod class;
pub mod fair;
pub mod permits;
pub mod route_load;
pub mod unroutable;

use std::sync::{Arc, Mutex, MutexGuard};
use std::time::Duration;

use tokio::sync::Semaphore;
use tokio::time::{Instant, timeout};

use self::by_key::CoalescingQueue;
use self::class::SignalClass;
use self::fair::{Held, Refused, RouteQueues, SetAside, StartsWanted, Taken, Waiting};
use self::route_load::Wakeups;
use self::unroutable::Unroutable;
use crate::handler::Router;
use crate::membership::Ownership;
use crate::task::{Arming, TaskKey};
use crate::telemetry::Metrics;
use crate::timer::{Signal, Source};

/// Signals that wait to be claimed, and the keys that are on their way.
///
/// A key is here once: a second signal for a waiting key is dropped, one for a key in flight is kept
/// and raised again when that run is settled, since it may be about a newer arming.
#[derive(Debug)]
pub struct SignalQueue {
    queues: Mutex<CoalescingQueue>,
    wakeups: Arc<Wakeups>,
    router: Arc<Router>,
    unroutable: Unroutable,
    metrics: Arc<Metrics>,
    ownership: Arc<Ownership>,
    /// Runs that there may be at a time.
    concurrency: usize,
    slots: Arc<Semaphore>,
    /// The part of the slots that the backlog may take.
    backlog_slots: Arc<Semaphore>,
}

impl SignalQueue {
    /// An empty queue for what this router runs, at most `concurrency` at a time.
    pub fn new(
        metrics: Arc<Metrics>,
        ownership: Arc<Ownership>,
        router: Arc<Router>,
        concurrency: usize,
    ) -> Self {
        let wakeups = Arc::<Wakeups>::default();
        let lines = RouteQueues::new(&router, Arc::clone(&wakeups));
        Self {
            queues: Mutex::new(CoalescingQueue::new(lines)),
            wakeups,
            router,
            unroutable: Unroutable::new(Arc::clone(&metrics)),
            metrics,
            ownership,
            concurrency,
            slots: Arc::new(Semaphore::new(concurrency)),
            backlog_slots: Arc::new(Semaphore::new((concurrency * 3 / 4).max(1))),
        }
    }

    /// Waits until signals wait in this class that may start; somebody else may take them first.
    ///
    /// # Cancel safety
    /// Cancel safe.
    pub async fn ready(&self, class: SignalClass) -> usize {
        /// What is held is looked at again after so long, whether or not anybody said that it may start.
        const LOOK_AGAIN: Duration = Duration::from_millis(100);
        loop {
            let arrived = self.wakeups.arrived(class).notified();
            match self.look(class) {
                Waiting::Startable(count) => return count,
                Waiting::Nothing => arrived.await,
                Waiting::Unrouted => tokio::task::yield_now().await,
                Waiting::Held => drop(timeout(LOOK_AGAIN, arrived).await),
            }
        }
    }

    fn look(&self, class: SignalClass) -> Waiting {
        let queues = self.queues_of_now();
        let found = match queues.lines.waiting(class) {
            0 => Waiting::Nothing,
            _ => {
                self.wakeups.listen_for_ends();
                queues.lines.look(class, self.slots.available_permits())
            }
        };
        match found {
            Waiting::Nothing | Waiting::Held if queues.has_unrouted() => Waiting::Unrouted,
            found => found,
        }
    }

    /// How many signals could start in this class, if there were slots for all.
    pub fn startable(&self, class: SignalClass) -> usize {
        match self.look(class) {
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

    /// Takes at most `limit` signals that may start. What is taken is in flight until [`finish`](Self::finish).
    pub fn take(&self, class: SignalClass, limit: usize) -> Vec<Taken> {
        let mut queues = self.queues_of_now();
        let taken = queues.take(class, limit, self.slots.available_permits());
        let left = queues.lines.waiting(class);
        drop(queues);
        if left > 0 && !taken.is_empty() {
            self.wakeups.arrived(class).notify_one();
        }
        taken
    }

    /// Waits until routes with a rate are in want of starts.
    ///
    /// # Cancel safety
    /// Cancel safe.
    pub async fn starts_wanted(&self) -> Vec<StartsWanted> {
        loop {
            let starved = self.wakeups.starved.notified();
            let wants = self.queues().lines.wants();
            if !wants.is_empty() {
                return wants;
            }
            starved.await;
        }
    }

    /// Takes out of this route's line what is hindered from starting, as [`RouteQueues::set_aside`] does. It is in flight until
    /// [`finish`](Self::finish).
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
            self.wakeups.open();
        }
    }

    /// This route may be in want again.
    pub fn answered(&self, route: &str) {
        self.queues().lines.answered(route);
    }

    /// These keys are no longer in flight; what was signalled about them meanwhile is raised again.
    pub fn finish<'a>(&self, keys: impl IntoIterator<Item = &'a TaskKey>) {
        let mut queues = self.queues();
        let again: Vec<Signal> = keys
            .into_iter()
            .filter_map(|key| queues.finish(key))
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

    /// As [`finish`](Self::finish), for armings that are finished: their echoes are dropped.
    pub fn finish_settled<'a>(&self, armings: impl IntoIterator<Item = (&'a TaskKey, Arming)>) {
        let now = Instant::now();
        let mut queues = self.queues();
        queues.forget_settled(now);
        let mut keys = Vec::new();
        for (key, arming) in armings {
            queues.remember_settled(key, arming, now);
            keys.push(key);
        }
        drop(queues);
        self.finish(keys);
    }

    /// Waits until a queue that was full has room again for what the sweep finds.
    ///
    /// # Cancel safety
    /// Cancel safe.
    pub async fn drained(&self) {
        self.wakeups.drained.notified().await;
    }

    /// How many more runs may start now.
    pub fn free_slots(&self) -> usize {
        self.slots.available_permits()
    }

    /// Waits until a run may start.
    ///
    /// # Cancel safety
    /// Cancel safe.
    pub async fn has_free_slot(&self) {
        let slot = self.slots.acquire().await;
        slot.map(drop).expect("the semaphore is never closed");
    }

    /// Whether there is room for so many more signals of the sweep, of whatever can start.
    pub fn has_room_to_sweep(&self, rows: usize) -> bool {
        let queues = self.queues();
        let free = self.slots.available_permits();
        queues.lines.has_room_to_sweep(rows, free)
    }

    /// Takes in a signal from a timer, or from the engine itself. An event of another daemon's task is dropped: every
    /// daemon hears every event. What there is no room for is found by the sweep.
    pub fn push(&self, signal: Signal) {
        if let Source::Event | Source::Nudge = signal.source
            && !self.ownership.owns(&signal.key)
        {
            return self.drop_signal("not_ours");
        }
        self.push_as(SignalClass::of(signal.source), signal)
            .unwrap_or(());
    }

    /// As [`push`](Self::push), into this class. Answers whether there was room for it.
    pub fn push_as(&self, class: SignalClass, signal: Signal) -> Result<(), Refused> {
        self.metrics.signalled(signal.source.as_str());
        self.admit(class, signal)
    }

    fn admit(&self, class: SignalClass, signal: Signal) -> Result<(), Refused> {
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
            return self.admit(class, signal);
        }
        let Some(signal) = queues.news(signal, &self.metrics) else {
            return Ok(());
        };
        let pushed = queues.push(class, route, signal, self.slots.available_permits());
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
        self.wakeups.arrived(class).notify_one();
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
            self.wakeups.open();
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

#[cfg(test)]
mod tests;

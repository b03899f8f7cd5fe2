//! The signal queue: bounded, and coalesced by key.

pub mod by_key;
pub mod class;
pub mod fair;
mod look_up;
pub mod permits;
mod pulled;
pub mod route_load;
pub mod route_queue;
pub mod unarmed;
pub mod unroutable;

use std::sync::{Arc, Mutex, MutexGuard};
use std::time::Duration;

use tokio::sync::Semaphore;
use tokio::time::{Instant, timeout};

use self::by_key::CoalescingQueue;
use self::class::SignalClass;
use self::fair::{Blocked, Refused, RouteQueues, SetAside, StartsWanted, Waiting};
use self::route_load::Wakeups;
use self::route_queue::Dequeued;
use self::unarmed::Unarmed;
use self::unroutable::Unroutable;
use super::workers::demand::Demands;
use crate::handler::Router;
use crate::membership::Ownership;
use crate::task::{Arming, TaskKey};
use crate::telemetry::{DropReason, Metrics};
use crate::timer::{Signal, Source};

/// Bounded queue of signals that wait to be claimed, and of the keys in flight.
///
/// The queue holds each key once. A second signal for a waiting key is dropped. A signal for a key in flight is kept
/// and pushed again when that run is settled, since it may be about a newer arming.
#[derive(Debug)]
pub struct SignalQueue {
    queues: Mutex<CoalescingQueue>,
    wakeups: Arc<Wakeups>,
    router: Arc<Router>,
    unroutable: Unroutable,
    metrics: Arc<Metrics>,
    ownership: Arc<Ownership>,
    /// Maximum number of concurrent runs.
    concurrency: usize,
    slots: Arc<Semaphore>,
    /// The share of the slots that the backlog may take.
    backlog_slots: Arc<Semaphore>,
    demands: Arc<Demands>,
    /// Signals without an arming that are looked up first: their keys may need rows.
    unarmed: Unarmed,
}

impl SignalQueue {
    /// Creates an empty queue for the routes of `router`, with slots for `concurrency` runs.
    pub fn new(
        metrics: Arc<Metrics>,
        ownership: Arc<Ownership>,
        router: Arc<Router>,
        concurrency: usize,
    ) -> Self {
        let wakeups = Arc::<Wakeups>::default();
        let demands = Arc::<Demands>::default();
        let route_queues = RouteQueues::new(&router, Arc::clone(&wakeups), Arc::clone(&demands));
        Self {
            queues: Mutex::new(CoalescingQueue::new(route_queues)),
            wakeups,
            router,
            unroutable: Unroutable::new(Arc::clone(&metrics)),
            metrics,
            ownership,
            concurrency,
            slots: Arc::new(Semaphore::new(concurrency)),
            backlog_slots: Arc::new(Semaphore::new((concurrency * 3 / 4).max(1))),
            demands,
            unarmed: Unarmed::default(),
        }
    }

    /// Stops suppressing repeated signals for these keys; their tasks are pending again.
    pub fn forget_echoes<'a>(&self, keys: impl IntoIterator<Item = &'a TaskKey>) {
        let mut queues = self.queues();
        keys.into_iter().for_each(|key| queues.forget_echo(key));
    }

    /// Waits until signals of this class may start, and returns their number. Another worker may take them first.
    ///
    /// # Cancel safety
    /// Cancel safe.
    pub async fn ready(&self, class: SignalClass) -> usize {
        /// Interval at which blocked signals are checked again, even without a wakeup.
        const BLOCKED_RECHECK: Duration = Duration::from_millis(100);
        loop {
            let arrived = self.wakeups.arrived(class).notified();
            match self.inspect(class) {
                Waiting::Startable(count) => return count,
                Waiting::Nothing => arrived.await,
                Waiting::Unrouted => tokio::task::yield_now().await,
                Waiting::Blocked => drop(timeout(BLOCKED_RECHECK, arrived).await),
            }
        }
    }

    fn inspect(&self, class: SignalClass) -> Waiting {
        let queues = self.current_queues();
        let found = match queues.route_queues.waiting(class) {
            0 => Waiting::Nothing,
            _ => {
                self.wakeups.watch_for_run_ends();
                queues
                    .route_queues
                    .inspect(class, self.slots.available_permits())
            }
        };
        match found {
            Waiting::Nothing | Waiting::Blocked if queues.has_unrouted() => Waiting::Unrouted,
            found => found,
        }
    }

    /// Number of signals of this class that could start, given enough slots.
    pub fn startable(&self, class: SignalClass) -> usize {
        match self.inspect(class) {
            Waiting::Nothing | Waiting::Blocked | Waiting::Unrouted => 0,
            Waiting::Startable(count) => count,
        }
    }

    /// Number of signals of this class that wait, startable or not.
    pub fn waiting(&self, class: SignalClass) -> usize {
        self.current_queues().route_queues.waiting(class)
    }

    /// True if some signals wait only for slots that are reserved for other routes.
    pub fn is_crowded(&self) -> bool {
        let queues = self.queues();
        queues
            .route_queues
            .is_crowded(self.slots.available_permits())
    }

    /// Why the waiting signals of this route may not start now; `None` if they may, or if none wait.
    pub fn blocked(&self, route: &str) -> Option<Blocked> {
        let queues = self.queues();
        queues
            .route_queues
            .blocked_route(route, None, self.slots.available_permits())
    }

    /// True if a task of this row waits or is in flight.
    pub fn contains_row(&self, row: u64) -> bool {
        self.queues().contains_row(row)
    }

    /// Number of waiting signals by route, for every route that ever had one.
    pub fn waiting_by_route(&self) -> Vec<(String, usize)> {
        let queues = self.queues();
        let waiting = queues.route_queues.waiting_by_route();
        waiting
            .map(|(name, count)| (name.to_owned(), count))
            .collect()
    }

    /// Takes at most `limit` signals that may start. Their keys are in flight until [`finish`](Self::finish).
    pub fn take(&self, class: SignalClass, limit: usize) -> Vec<Dequeued> {
        let mut queues = self.current_queues();
        let taken = queues.take(class, limit, self.slots.available_permits());
        let left = queues.route_queues.waiting(class);
        drop(queues);
        if left > 0 && !taken.is_empty() {
            self.wakeups.arrived(class).notify_one();
        }
        taken
    }

    /// Waits until routes with a rate limit need starts, and returns them.
    ///
    /// # Cancel safety
    /// Cancel safe.
    pub async fn starts_wanted(&self) -> Vec<StartsWanted> {
        loop {
            let starved = self.wakeups.starved.notified();
            let wanted = self.queues().route_queues.starts_wanted();
            if !wanted.is_empty() {
                return wanted;
            }
            starved.await;
        }
    }

    /// Removes blocked signals from this route's queue, as [`RouteQueues::set_aside`] does. Their keys are in flight
    /// until [`finish`](Self::finish).
    pub fn set_aside(
        &self,
        route: &str,
        limit: usize,
        blocked: impl Fn(&Signal) -> bool,
    ) -> SetAside {
        let mut queues = self.current_queues();
        queues.set_aside(route, limit, blocked)
    }

    /// Returns a signal that was set aside to its route's queue.
    pub fn put_back(&self, signal: Signal) {
        // Without room the signal is dropped; the sweep finds its task.
        self.admit(SignalClass::of(signal.source), signal)
            .unwrap_or(());
    }

    /// Grants this route a number of starts.
    pub fn grant(&self, route: &str, starts: u32) {
        if starts > 0 {
            self.queues().route_queues.grant(route, starts);
            self.wakeups.wake_all();
        }
    }

    /// Ends this route's request for starts; the route may request starts again.
    pub fn end_request(&self, route: &str) {
        self.queues().route_queues.end_request(route);
    }

    /// Marks keys as no longer in flight, and pushes again the signals that arrived for them meanwhile.
    pub fn finish<'a>(&self, keys: impl IntoIterator<Item = &'a TaskKey>) {
        let mut queues = self.queues();
        let repeats: Vec<Signal> = keys
            .into_iter()
            .filter_map(|key| queues.finish(key))
            .collect();
        drop(queues);
        repeats
            .into_iter()
            // Without room the signal is dropped; the sweep finds its task.
            .for_each(|signal| {
                self.admit(SignalClass::of(signal.source), signal)
                    .unwrap_or(())
            });
    }

    /// Forgets the signals that arrived for these keys so far. The keys are about to be settled, and a settlement
    /// checks the arming: it finds out everything that those signals say.
    pub fn settling<'a>(&self, keys: impl IntoIterator<Item = &'a TaskKey>) {
        let mut queues = self.queues();
        for key in keys {
            queues.settling(key);
        }
    }

    /// Marks the keys of settled armings as no longer in flight, as [`finish`](Self::finish) does. Echoes of these
    /// armings are dropped.
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

    /// Waits until a queue that was full has room for a sweep again.
    ///
    /// # Cancel safety
    /// Cancel safe.
    pub async fn drained(&self) {
        self.wakeups.drained.notified().await;
    }

    /// Number of free slots: runs that may start now.
    pub fn free_slots(&self) -> usize {
        self.slots.available_permits()
    }

    /// Waits until a slot is free.
    ///
    /// # Cancel safety
    /// Cancel safe.
    pub async fn has_free_slot(&self) {
        let slot = self.slots.acquire().await;
        slot.map(drop).expect("the semaphore is never closed");
    }

    /// True if `rows` more swept signals fit in the queue of every route that can start runs.
    pub fn has_room_to_sweep(&self, rows: usize) -> bool {
        let queues = self.queues();
        let free = self.slots.available_permits();
        queues.route_queues.has_room_to_sweep(rows, free)
    }

    /// Adds a signal from a timer or from the engine itself. An event or nudge for another daemon's task is dropped,
    /// since every daemon hears every event. Without room the signal is dropped, and the sweep finds its task; the key of
    /// a signal without an arming is looked up first, since it may have no row.
    pub fn push(&self, signal: Signal) {
        if let Source::Event | Source::Nudge = signal.source
            && !self.ownership.owns(&signal.key)
        {
            return self.metrics.dropped(DropReason::NotOurs, 1);
        }
        self.push_as(SignalClass::of(signal.source), signal)
            .unwrap_or(());
    }

    /// Adds a signal to this class, also for another daemon's task. Returns an error if there is no room.
    pub fn push_as(&self, class: SignalClass, signal: Signal) -> Result<(), Refused> {
        self.metrics.signalled(signal.source.as_str());
        self.admit(class, signal)
    }

    fn admit(&self, class: SignalClass, signal: Signal) -> Result<(), Refused> {
        let Some(signal) = self.queues().deduplicate(signal, &self.metrics) else {
            return Ok(());
        };
        let (is_sweep, reloads) = (signal.source == Source::Sweep, self.router.reloads());
        // Not under the lock: matching an expression takes a while.
        let Some(route) = self.router.find(&signal.key) else {
            self.unroutable.record(&signal.key);
            return Ok(());
        };
        let mut queues = self.current_queues();
        if self.router.reloads() != reloads {
            drop(queues);
            return self.admit(class, signal);
        }
        let Some(signal) = queues.deduplicate(signal, &self.metrics) else {
            return Ok(());
        };
        if signal.arming.is_none() && self.needs_row_first(&route, &signal.key) {
            queues.look_up_first(&signal);
            drop(queues);
            return self.look_up_later(signal);
        }
        let unarmed = signal.arming.is_none().then(|| signal.clone());
        let pushed = queues.push(class, route, signal, self.slots.available_permits());
        if let Some(signal) = unarmed {
            if pushed.is_err() {
                queues.look_up_first(&signal);
                drop(queues);
                return self.look_up_later(signal);
            }
            self.unarmed.waits.notify_one();
        }
        drop(queues);
        if let Err(refused) = pushed {
            // An immediate sweep would find no room either. It is requested when half of the room is free.
            let reason = match refused {
                Refused::Blocked => DropReason::Held,
                Refused::Full => DropReason::Overflow,
            };
            self.metrics.dropped(reason, 1);
            return Err(refused);
        }
        if is_sweep {
            self.metrics.recovered("overdue", 1);
        }
        self.wakeups.arrived(class).notify_one();
        Ok(())
    }

    /// Locks the queues, and adopts the current routes after a reload.
    fn current_queues(&self) -> MutexGuard<'_, CoalescingQueue> {
        let mut queues = self.queues();
        if !queues.route_queues.is_current(&self.router) {
            queues.reroute(&self.router);
            self.wakeups.wake_all();
        }
        for dropped in queues.route_some(&self.router, self.slots.available_permits()) {
            if !self.router.runs(&dropped.key) {
                self.unroutable.record(&dropped.key);
            } else if dropped.arming.is_none() && self.unarmed.push(dropped).is_err() {
                self.metrics.dropped(DropReason::Overflow, 1);
            }
        }
        queues
    }

    /// Records a signal that no handler or route of this daemon runs.
    pub fn unroutable(&self, key: &TaskKey) {
        self.unroutable.record(key);
    }

    fn queues(&self) -> MutexGuard<'_, CoalescingQueue> {
        self.queues
            .lock()
            .expect("nothing panics while holding the queues")
    }
}

#[cfg(test)]
mod tests;

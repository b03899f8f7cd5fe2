//! Coalescing by key: tracks whether a key waits, is in flight, or was settled recently.

use std::collections::{HashMap, HashSet, VecDeque};
use std::ops::RangeInclusive;
use std::time::Duration;

use tokio::time::Instant;

use super::class::SignalClass;
use super::fair::{Refused, RouteQueues, SetAside};
use super::route_queue::Dequeued;
use crate::handler::{Route, Router};
use crate::task::{Arming, TaskKey, UnixMs};
use crate::telemetry::{DropReason, Metrics};
use crate::timer::{Signal, Source};

/// A signal for a settled arming is an echo for this long after the settlement.
const ECHO_OF_ARMING: Duration = Duration::from_secs(1);

/// An event without an arming is an echo for this long after a settlement of the same key.
pub const ECHO_OF_KEY: Duration = Duration::from_millis(50);

/// Maximum number of signals routed at once after a reload. Each may try every expression, and the lock is taken
/// meanwhile.
pub const ROUTED_AT_ONCE: usize = 512;

/// Waiting signals, keys in flight, and armings settled recently.
#[derive(Debug)]
pub struct CoalescingQueue {
    /// The waiting signals, by route.
    pub route_queues: RouteQueues,
    /// Waiting signals from before the latest reload that have no route assigned yet.
    unrouted: VecDeque<(SignalClass, Signal)>,
    entries: HashMap<TaskKey, Entry>,
    /// The rows of waiting tasks and of tasks in flight, where their signals name the row.
    rows: HashSet<u64>,
    /// Armings settled recently, to detect echoes: one task is signalled by an event, a nudge, ...
    settled: HashMap<TaskKey, (Arming, Instant)>,
    /// Keys of `settled`, oldest first.
    settled_order: VecDeque<(Instant, TaskKey)>,
}

/// A key that waits or is in flight.
#[derive(Debug)]
struct Entry {
    /// The task's row, if a signal names it.
    row: Option<u64>,
    stage: Stage,
}

#[derive(Debug)]
enum Stage {
    Waiting {
        /// The arming, if only a later signal names it.
        arming: Option<Arming>,
        /// When the latest event was published that arrived meanwhile. It may be about a newer arming.
        published: Option<RangeInclusive<UnixMs>>,
    },
    /// The task is being claimed, run or settled.
    InFlight {
        /// The latest signal that arrived meanwhile.
        repeat: Option<Signal>,
        /// When the latest event was published that arrived meanwhile. It stays when `repeat` is forgotten.
        published: Option<RangeInclusive<UnixMs>>,
    },
}

impl Stage {
    fn in_flight() -> Self {
        Self::InFlight {
            repeat: None,
            published: None,
        }
    }
}

impl CoalescingQueue {
    pub fn new(route_queues: RouteQueues) -> Self {
        Self {
            route_queues,
            unrouted: VecDeque::new(),
            entries: HashMap::new(),
            rows: HashSet::new(),
            settled: HashMap::new(),
            settled_order: VecDeque::new(),
        }
    }

    /// Returns the signal if it is to be queued. A signal for a waiting key and an echo are dropped; a signal for a key
    /// in flight is kept until the key is [finished](Self::finish).
    pub fn deduplicate(&mut self, signal: Signal, metrics: &Metrics) -> Option<Signal> {
        let is_echo = self.is_echo(&signal);
        let Some(Entry { row, stage }) = self.entries.get_mut(&signal.key) else {
            if !is_echo {
                return Some(signal);
            }
            metrics.dropped(DropReason::Coalesced, 1);
            return None;
        };
        match stage {
            Stage::InFlight { repeat, published } => {
                *published = signal.published.clone().or(published.take());
                *repeat = Some(signal);
            }
            Stage::Waiting { arming, published } => {
                *published = signal.published.or(published.take());
                if let (None, Some(named)) = (*row, signal.arming) {
                    *arming = Some(named);
                    *row = Some(named.row);
                    self.rows.insert(named.row);
                }
                metrics.dropped(DropReason::Coalesced, 1);
            }
        }
        None
    }

    /// Queues a signal that [`deduplicate`](Self::deduplicate) returned.
    pub fn push(
        &mut self,
        class: SignalClass,
        route: Route,
        signal: Signal,
        free: usize,
    ) -> Result<(), Refused> {
        let key = signal.key.clone();
        let row = signal.arming.map(|arming| arming.row);
        self.route_queues.push(class, route, signal, free)?;
        let waiting = Stage::Waiting {
            arming: None,
            published: None,
        };
        self.insert(key, row, waiting);
        Ok(())
    }

    /// True if a task of this row waits or is in flight.
    pub fn contains_row(&self, row: u64) -> bool {
        self.rows.contains(&row)
    }

    fn insert(&mut self, key: TaskKey, row: Option<u64>, stage: Stage) {
        self.rows.extend(row);
        let before = self.entries.insert(key, Entry { row, stage });
        if let Some(before) = before
            && before.row != row
        {
            self.forget_row(before.row);
        }
    }

    fn forget_row(&mut self, row: Option<u64>) {
        if let Some(row) = row {
            self.rows.remove(&row);
        }
    }

    /// Takes signals as [`RouteQueues::take`] does. Their keys are in flight until [`finish`](Self::finish).
    pub fn take(&mut self, class: SignalClass, limit: usize, free: usize) -> Vec<Dequeued> {
        let mut taken = self.route_queues.take(class, limit, free);
        self.mark_in_flight(taken.iter_mut().map(|taken| &mut taken.signal));
        taken
    }

    /// Sets signals aside as [`RouteQueues::set_aside`] does. Their keys are in flight until [`finish`](Self::finish).
    pub fn set_aside(
        &mut self,
        route: &str,
        limit: usize,
        blocked: impl Fn(&Signal) -> bool,
    ) -> SetAside {
        let mut aside = self.route_queues.set_aside(route, limit, blocked);
        self.mark_in_flight(&mut aside.signals);
        aside
    }

    /// Each signal carries the latest event that arrived while it waited, and the arming that another signal named.
    fn mark_in_flight<'a>(&mut self, signals: impl IntoIterator<Item = &'a mut Signal>) {
        for signal in signals {
            let before = self.entries.remove(&signal.key);
            if let Some(Entry { row, stage }) = before {
                self.forget_row(row);
                if let Stage::Waiting { arming, published } = stage {
                    signal.arming = signal.arming.or(arming);
                    signal.published = published.or(signal.published.take());
                }
            }
            let row = signal.arming.map(|arming| arming.row);
            self.insert(signal.key.clone(), row, Stage::in_flight());
        }
    }

    /// Forgets the signal that arrived for a key while it was in flight. One that arrives after that still says when the
    /// latest event was published: an older program may have deleted the task and created it again during its run.
    pub fn settling(&mut self, key: &TaskKey) {
        if let Some(entry) = self.entries.get_mut(key)
            && let Stage::InFlight { repeat, .. } = &mut entry.stage
        {
            *repeat = None;
        }
    }

    /// Marks a key as no longer in flight. Returns the latest signal that arrived for it meanwhile.
    pub fn finish(&mut self, key: &TaskKey) -> Option<Signal> {
        let Entry { row, stage } = self.entries.remove(key)?;
        self.forget_row(row);
        match stage {
            Stage::InFlight { repeat, published } => repeat.map(|repeat| Signal {
                published,
                ..repeat
            }),
            Stage::Waiting { .. } => None,
        }
    }

    /// Adopts the current routes. [`route_some`](Self::route_some) assigns the waiting signals to them.
    pub fn reroute(&mut self, router: &Router) {
        self.unrouted.extend(self.route_queues.reroute(router));
    }

    /// True if some waiting signals have no route assigned yet.
    pub fn has_unrouted(&self) -> bool {
        !self.unrouted.is_empty()
    }

    /// Assigns routes to at most [`ROUTED_AT_ONCE`] signals that [`reroute`](Self::reroute) left. Returns the
    /// dropped signals: those without a route, and those that do not fit.
    pub fn route_some(&mut self, router: &Router, free: usize) -> Vec<Signal> {
        if self.unrouted.is_empty() {
            return Vec::new();
        }
        let count = self.unrouted.len().min(ROUTED_AT_ONCE);
        let mut dropped = Vec::new();
        for (class, signal) in self.unrouted.drain(..count) {
            let route = router.find(&signal.key);
            let is_pushed = route.is_some_and(|route| {
                let pushed = self.route_queues.push(class, route, signal.clone(), free);
                pushed.is_ok()
            });
            if !is_pushed {
                let entry = self.entries.remove(&signal.key);
                if let Some(row) = entry.and_then(|entry| entry.row) {
                    self.rows.remove(&row);
                }
                dropped.push(signal);
            }
        }
        if self.unrouted.is_empty() {
            self.route_queues.forget_loads();
        }
        dropped
    }

    /// Remembers a settled arming, to detect its echoes.
    pub fn remember_settled(&mut self, key: &TaskKey, arming: Arming, now: Instant) {
        self.settled.insert(key.clone(), (arming, now));
        self.settled_order.push_back((now, key.clone()));
    }

    /// Forgets that an arming of this key was settled or handed over: its signals are no echoes.
    pub fn forget_echo(&mut self, key: &TaskKey) {
        self.settled.remove(key);
    }

    /// Takes at most `limit` waiting signals without an arming, the latest first. Their keys are in flight until
    /// [`finish`](Self::finish).
    pub fn take_unarmed(&mut self, limit: usize) -> Vec<Signal> {
        let mut taken = self.route_queues.take_unarmed(limit);
        let mut kept = VecDeque::new();
        for (class, signal) in self.unrouted.drain(..) {
            match signal.arming.is_none() && taken.len() < limit {
                true => taken.push(signal),
                false => kept.push_back((class, signal)),
            }
        }
        self.unrouted = kept;
        self.mark_in_flight(&mut taken);
        taken
    }

    /// Marks the key of a signal as in flight that is looked up before it may wait.
    pub fn look_up_first(&mut self, signal: &Signal) {
        let row = signal.arming.map(|arming| arming.row);
        self.insert(signal.key.clone(), row, Stage::in_flight());
    }

    /// True if a signal repeats a recently settled arming. An event that does not name its arming is an echo only for
    /// [`ECHO_OF_KEY`]: the key may have been created again.
    fn is_echo(&self, signal: &Signal) -> bool {
        match (self.settled.get(&signal.key), signal.arming) {
            (None, _) => false,
            (Some((settled, at)), Some(arming)) => {
                *settled == arming && at.elapsed() < ECHO_OF_ARMING
            }
            (Some((_, at)), None) => signal.source == Source::Event && at.elapsed() < ECHO_OF_KEY,
        }
    }

    /// Forgets settled armings whose echoes are no longer expected.
    pub fn forget_settled(&mut self, now: Instant) {
        while let Some((at, _)) = self.settled_order.front()
            && now.duration_since(*at) >= ECHO_OF_ARMING
        {
            let (at, key) = self.settled_order.pop_front().expect("checked above");
            if self
                .settled
                .get(&key)
                .is_some_and(|(_, latest)| *latest == at)
            {
                self.settled.remove(&key);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test(start_paused = true)]
    async fn settled_armings_are_remembered_as_long_as_their_echoes_are_expected() {
        let router = Router::new(crate::Handlers::new(), &crate::Config::default());
        let route_queues = RouteQueues::new(&router, Default::default(), Default::default());
        let mut queue = CoalescingQueue::new(route_queues);
        let [early, late] = ["early", "late"].map(|name| TaskKey::build("C", "m", [name]).unwrap());
        let due = crate::task::UnixMs(10);
        let armings = [1, 2].map(|row| Arming { row, due });
        let echo = |arming| Signal::new(late.clone(), Source::Nudge, Some(arming));
        let start = Instant::now();
        queue.remember_settled(&early, armings[0], start);
        queue.remember_settled(&late, armings[0], start);
        tokio::time::advance(ECHO_OF_ARMING - Duration::from_millis(1)).await;
        queue.remember_settled(&late, armings[1], Instant::now());
        queue.forget_settled(Instant::now());
        assert_eq!(queue.settled.len(), 2);

        tokio::time::advance(Duration::from_millis(1)).await;
        queue.forget_settled(Instant::now());
        let left: Vec<&TaskKey> = queue.settled.keys().collect();
        assert_eq!((left, queue.settled_order.len()), (vec![&late], 1));
        assert!(!queue.is_echo(&echo(armings[0])) && queue.is_echo(&echo(armings[1])));

        tokio::time::advance(ECHO_OF_ARMING - Duration::from_millis(1)).await;
        assert!(!queue.is_echo(&echo(armings[1])), "its time is over");
        queue.forget_settled(Instant::now());
        assert!(queue.settled.is_empty() && queue.settled_order.is_empty());
    }
}

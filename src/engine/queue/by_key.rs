//! What the door knows of each key: whether it waits, is in flight, or was settled just now.

use std::collections::{HashMap, HashSet, VecDeque};
use std::time::Duration;

use tokio::time::Instant;

use super::class::SignalClass;
use super::fair::{Refused, RouteQueues, SetAside, Taken};
use crate::handler::{Route, Router};
use crate::task::{Arming, TaskKey};
use crate::telemetry::Metrics;
use crate::timer::{Signal, Source};

/// How long after its settlement a signal of the same arming is an echo.
const ECHO_OF_ARMING: Duration = Duration::from_secs(1);

/// How long after it an event of the same key is.
pub(crate) const ECHO_OF_KEY: Duration = Duration::from_millis(50);

/// How many signals find their routes at once after a change of these: each may try every expression, and the lock is
/// held meanwhile.
pub(crate) const ROUTED_AT_ONCE: usize = 512;

/// What waits, what is in flight, and what was settled just now.
#[derive(Debug)]
pub(crate) struct CoalescingQueue {
    /// What waits.
    pub(crate) lines: RouteQueues,
    /// What waits since before the routes were changed, and is in no line yet.
    unrouted: VecDeque<(SignalClass, Signal)>,
    places: HashMap<TaskKey, Place>,
    /// The rows of those that wait or are in flight, as far as their signals name them.
    rows: HashSet<u64>,
    /// Armings that were settled a moment ago, for their echoes: one task is signalled by an event, a nudge, ...
    settled: HashMap<TaskKey, (Arming, Instant)>,
    /// The same, the oldest first.
    settled_order: VecDeque<(Instant, TaskKey)>,
}

/// Where a key is.
#[derive(Debug)]
struct Place {
    /// Its row, if the signal named it.
    row: Option<u64>,
    stage: Stage,
}

#[derive(Debug)]
enum Stage {
    Waiting,
    /// It is being claimed, run or settled.
    InFlight {
        /// What was signalled meanwhile.
        again: Option<Signal>,
    },
}

impl CoalescingQueue {
    pub(crate) fn new(lines: RouteQueues) -> Self {
        Self {
            lines,
            unrouted: VecDeque::new(),
            places: HashMap::new(),
            rows: HashSet::new(),
            settled: HashMap::new(),
            settled_order: VecDeque::new(),
        }
    }

    /// The signal, if it says anything new: not of a key that waits. One in flight keeps it for later.
    pub(crate) fn news(&mut self, signal: Signal, metrics: &Metrics) -> Option<Signal> {
        let is_echo = self.is_echo(&signal);
        match self
            .places
            .get_mut(&signal.key)
            .map(|place| &mut place.stage)
        {
            Some(Stage::InFlight { again }) => {
                *again = Some(signal);
                None
            }
            None if !is_echo => Some(signal),
            Some(Stage::Waiting) | None => {
                metrics.dropped("coalesced", 1);
                None
            }
        }
    }

    /// Has a signal wait that is [news](Self::news).
    pub(crate) fn push(
        &mut self,
        class: SignalClass,
        route: Route,
        signal: Signal,
        free: usize,
    ) -> Result<(), Refused> {
        let key = signal.key.clone();
        let row = signal.arming.map(|arming| arming.row);
        self.lines.push(class, route, signal, free)?;
        self.put(key, row, Stage::Waiting);
        Ok(())
    }

    /// Whether a task of this row waits or is in flight.
    pub(crate) fn knows(&self, row: u64) -> bool {
        self.rows.contains(&row)
    }

    fn put(&mut self, key: TaskKey, row: Option<u64>, stage: Stage) {
        self.rows.extend(row);
        let before = self.places.insert(key, Place { row, stage });
        if let Some(Place { row: before, .. }) = before
            && before != row
        {
            self.forget_row(before);
        }
    }

    fn forget_row(&mut self, row: Option<u64>) {
        if let Some(row) = row {
            self.rows.remove(&row);
        }
    }

    /// As [`RouteQueues::take`]; what is taken is in flight until it has [landed](Self::finish).
    pub(crate) fn take(&mut self, class: SignalClass, limit: usize, free: usize) -> Vec<Taken> {
        let taken = self.lines.take(class, limit, free);
        self.launch(taken.iter().map(|taken| &taken.signal));
        taken
    }

    /// As [`RouteQueues::set_aside`]; what is set aside is in flight until it has [landed](Self::finish).
    pub(crate) fn set_aside(
        &mut self,
        route: &str,
        most: usize,
        hindered: impl Fn(&Signal) -> bool,
    ) -> SetAside {
        let aside = self.lines.set_aside(route, most, hindered);
        self.launch(&aside.signals);
        aside
    }

    fn launch<'a>(&mut self, signals: impl IntoIterator<Item = &'a Signal>) {
        for signal in signals {
            let row = signal.arming.map(|arming| arming.row);
            self.put(signal.key.clone(), row, Stage::InFlight { again: None });
        }
    }

    /// What was signalled about a key in flight until now is forgotten.
    pub(crate) fn settling(&mut self, key: &TaskKey) {
        if let Some(place) = self.places.get_mut(key)
            && let Stage::InFlight { again } = &mut place.stage
        {
            *again = None;
        }
    }

    /// This key is no longer in flight. Answers what was signalled about it meanwhile.
    pub(crate) fn finish(&mut self, key: &TaskKey) -> Option<Signal> {
        let Place { row, stage } = self.places.remove(key)?;
        self.forget_row(row);
        match stage {
            Stage::InFlight { again } => again,
            Stage::Waiting => None,
        }
    }

    /// Takes over the routes as they are now. What waits finds its route with [`route_some`](Self::route_some).
    pub(crate) fn reroute(&mut self, router: &Router) {
        self.unrouted.extend(self.lines.reroute(router));
    }

    /// Whether some of what waits has not found its route yet.
    pub(crate) fn has_unrouted(&self) -> bool {
        !self.unrouted.is_empty()
    }

    /// Puts a few of the signals that [`reroute`](Self::reroute) left in their lines. Answers whose signals are
    /// forgotten: what nothing runs any more, and what does not fit.
    pub(crate) fn route_some(&mut self, router: &Router, free: usize) -> Vec<TaskKey> {
        if self.unrouted.is_empty() {
            return Vec::new();
        }
        let few = self.unrouted.len().min(ROUTED_AT_ONCE);
        let mut forgotten = Vec::new();
        for (class, signal) in self.unrouted.drain(..few) {
            let key = signal.key.clone();
            let route = router.find(&key);
            let push = |route| self.lines.push(class, route, signal, free);
            if route.is_none_or(|route| push(route).is_err()) {
                let place = self.places.remove(&key);
                if let Some(row) = place.and_then(|place| place.row) {
                    self.rows.remove(&row);
                }
                forgotten.push(key);
            }
        }
        if self.unrouted.is_empty() {
            self.lines.forget_loads();
        }
        forgotten
    }

    /// This arming is finished: what says so again within a moment is an echo.
    pub(crate) fn remember_settled(&mut self, key: &TaskKey, arming: Arming, now: Instant) {
        self.settled.insert(key.clone(), (arming, now));
        self.settled_order.push_back((now, key.clone()));
    }

    /// Whether a signal is about an arming that was settled just now. One that does not know its arming is
    /// believed to be only for a moment: the key may have been created anew.
    fn is_echo(&self, signal: &Signal) -> bool {
        match (self.settled.get(&signal.key), signal.arming) {
            (None, _) => false,
            (Some((settled, at)), Some(arming)) => {
                *settled == arming && at.elapsed() < ECHO_OF_ARMING
            }
            (Some((_, at)), None) => signal.source == Source::Event && at.elapsed() < ECHO_OF_KEY,
        }
    }

    /// Forgets those whose echoes are over.
    pub(crate) fn forget_settled(&mut self, now: Instant) {
        while let Some((at, _)) = self.settled_order.front()
            && now.duration_since(*at) >= ECHO_OF_ARMING
        {
            let (at, key) = self.settled_order.pop_front().expect("just looked at");
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

//! Fair queueing: one queue per route, so that a burst on one route does not delay the others. A pull route has one per
//! [audience](crate::engine::workers::demand::Audience).
//!
//! [`RouteQueues::blocked`] is the only place that decides whether a route may start a run now. It checks the route's
//! concurrency limit, the slots that the route must leave to others, the demand of pull workers, and its rate limit.

mod aside;
mod reload;
mod starts;

use std::cmp::Reverse;
use std::collections::{BTreeMap, HashMap, VecDeque};
use std::sync::Arc;

use super::class::SignalClass;
use super::route_load::{RouteLoad, Wakeups};
use super::route_queue::{Dequeued, RouteQueue};
use crate::engine::workers::demand::{Audience, Demands};
use crate::handler::{Route, Router};
use crate::task::{Rate, TaskKey};
use crate::timer::Signal;

/// Maximum number of waiting fresh signals, per route and in total.
pub const FRESH_MAX: usize = 131_072;
/// Maximum number of waiting backlog signals per route. The sweep repeats, so it needs few.
pub const BACKLOG_MAX: usize = 4_096;
/// Maximum number of waiting backlog signals over all routes.
const BACKLOG_MAX_TOTAL: usize = 16 * BACKLOG_MAX;

/// With several routes, one route holds at most this many times the slots (or the queue room) that are still free.
/// A route alone gets seven eighths, with others active less, and a route that becomes active always finds some.
const SLOTS_SHARE: usize = 7;
const ROOM_SHARE: usize = 7;

/// The waiting signals, in one queue per route.
#[derive(Debug)]
pub struct RouteQueues {
    queues: Vec<RouteQueue>,
    /// The queues of each route.
    by_name: HashMap<Arc<str>, Vec<usize>>,
    /// The load of each route by name: runs outlive a reload.
    loads: HashMap<Arc<str>, Arc<RouteLoad>>,
    /// The routes with signals, by class: the highest priority first, round robin within a priority.
    turns: [BTreeMap<Reverse<i8>, VecDeque<usize>>; 2],
    waiting: [usize; 2],
    /// True if more than one route is configured.
    multiple_routes: bool,
    /// The number of the reload that the routes come from.
    reloads: u64,
    wakeups: Arc<Wakeups>,
    demands: Arc<Demands>,
}

/// Why a route may not start a run now.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Blocked {
    /// The route's concurrency limit is reached.
    Concurrency,
    /// The free slots are reserved for other routes.
    Slots,
    /// The route's rate limit allows no start at present.
    Rate,
    /// No worker asks for the tasks of a pull route.
    Demand,
}

/// State of the waiting signals of one class.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Waiting {
    /// No signal waits.
    Nothing,
    /// Every waiting signal is blocked.
    Blocked,
    /// The routes were reloaded, and some waiting signals have no route assigned yet.
    Unrouted,
    /// This many signals may start.
    Startable(usize),
}

/// Why the queue refused a signal.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Refused {
    /// The queue is full. The sweep finds the task when there is room.
    Full,
    /// The route's queue is full, and the route is blocked. The sweep finds its tasks when they can start.
    Blocked,
}

/// A route with a rate limit that needs starts.
#[derive(Debug, Clone)]
pub struct StartsWanted {
    /// The route's name.
    pub name: Arc<str>,
    /// The route's rate limit.
    pub rate: Rate,
}

/// Result of [`RouteQueues::set_aside`].
#[derive(Debug, Default)]
pub struct SetAside {
    /// The blocked signals, removed from the queue. They need no start.
    pub signals: Vec<Signal>,
    /// Number of examined signals that could start.
    pub startable: usize,
}

impl RouteQueues {
    /// Creates empty queues for the current routes of `router`.
    pub fn new(router: &Router, wakeups: Arc<Wakeups>, demands: Arc<Demands>) -> Self {
        Self {
            queues: Vec::new(),
            by_name: HashMap::new(),
            loads: HashMap::new(),
            turns: Default::default(),
            waiting: [0; 2],
            multiple_routes: router.len() > 1,
            reloads: router.reloads(),
            wakeups,
            demands,
        }
    }

    /// Number of waiting signals of this class.
    pub fn waiting(&self, class: SignalClass) -> usize {
        self.waiting[class as usize]
    }

    /// Number of waiting signals by route, for every route that ever had one.
    pub fn waiting_by_route(&self) -> impl Iterator<Item = (&str, usize)> {
        let routes = self.by_name.iter();
        routes.map(|(name, places)| {
            let waiting = places.iter().map(|index| self.queues[*index].len());
            (&**name, waiting.sum())
        })
    }

    /// Appends a signal to its route's queue. `free` is the number of free slots.
    pub fn push(
        &mut self,
        class: SignalClass,
        route: Route,
        signal: Signal,
        free: usize,
    ) -> Result<(), Refused> {
        let index = self.index_of(route, &signal.key);
        let at = class as usize;
        let queue = &self.queues[index];
        if queue.is_idle() {
            return Err(Refused::Blocked);
        }
        if queue.signals[at].len() >= self.capacity(class) {
            // A rate-limited route has no room as long as its backlog lasts. A route that uses all the slots it may has
            // no room until its runs end.
            let waits = queue.route.limits.rate.is_some() || self.blocked(queue, free).is_some();
            return Err(if waits {
                Refused::Blocked
            } else {
                Refused::Full
            });
        }
        let queue = &mut self.queues[index];
        queue.unarmed += usize::from(signal.arming.is_none());
        if queue.signals[at].is_empty() {
            let priority = Reverse(queue.route.limits.priority);
            let turns = self.turns[at].entry(priority).or_default();
            turns.push_back(index);
        }
        queue.signals[at].push_back(signal);
        self.waiting[at] += 1;
        if queue.is_starved() {
            self.wakeups.starved.notify_one();
        }
        Ok(())
    }

    /// State of this class if `free` slots are free. At least one slot is assumed: the caller waits for it.
    pub fn inspect(&self, class: SignalClass, free: usize) -> Waiting {
        let at = class as usize;
        if self.waiting[at] == 0 {
            return Waiting::Nothing;
        }
        if self.queues.iter().any(RouteQueue::is_starved) {
            self.wakeups.starved.notify_one();
        }
        let indices = self.turns[at].values().flatten();
        let startable = indices.map(|index| {
            let queue = &self.queues[*index];
            match self.blocked(queue, free) {
                None => queue.signals[at].len().min(queue.room()),
                Some(_) => 0,
            }
        });
        match startable.fold(0, usize::saturating_add) {
            0 => Waiting::Blocked,
            count => Waiting::Startable(count),
        }
    }

    /// Takes at most `limit` signals: the highest priority first, round robin within a priority. The caller holds
    /// `limit` slots; `free` is the number of other free slots.
    pub fn take(&mut self, class: SignalClass, limit: usize, free: usize) -> Vec<Dequeued> {
        let at = class as usize;
        let mut taken = Vec::with_capacity(limit.min(self.waiting[at]));
        let mut turns = std::mem::take(&mut self.turns[at]);
        for turns in turns.values_mut() {
            let mut blocked = VecDeque::new();
            while taken.len() < limit
                && let Some(index) = turns.pop_front()
            {
                let free = free + limit - taken.len();
                if self.blocked(&self.queues[index], free).is_some() {
                    blocked.push_back(index);
                    continue;
                }
                taken.push(self.queues[index].take_first(at));
                // Only a queue that was full has a sweep waiting for room. If each signal woke it, a sweep that finds
                // the same row every time would never rest.
                if self.queues[index].signals[at].len() == max_per_route(class) / 2 - 1 {
                    self.wakeups.drained.notify_one();
                }
                if !self.queues[index].signals[at].is_empty() {
                    turns.push_back(index);
                }
            }
            // A route that could not start keeps its turn.
            blocked.append(turns);
            *turns = blocked;
        }
        turns.retain(|_, turns| !turns.is_empty());
        self.turns[at] = turns;
        self.waiting[at] -= taken.len();
        if self.queues.iter().any(RouteQueue::is_starved) {
            self.wakeups.starved.notify_one();
        }
        taken
    }

    /// Why this route may not start a run if `free` slots are free; `None` if it may.
    fn blocked(&self, queue: &RouteQueue, free: usize) -> Option<Blocked> {
        let running = queue.load.running();
        let limits = &queue.route.limits;
        if limits
            .concurrency
            .is_some_and(|limit| running >= limit.get() as usize)
        {
            return Some(Blocked::Concurrency);
        }
        if let Some(demand) = &queue.demand {
            // A task that a worker has takes no slot.
            if demand.capacity_for(queue.audience) == 0 {
                return Some(Blocked::Demand);
            }
        } else if self.multiple_routes && running >= SLOTS_SHARE * free.max(1) {
            return Some(Blocked::Slots);
        }
        if limits.rate.is_some() && queue.load.starts() == 0 {
            return Some(Blocked::Rate);
        }
        None
    }

    /// Why the waiting signals of this route, or of one of its audiences, may not start with `free` free slots; `None` if they may,
    /// or if none wait.
    pub fn blocked_route(
        &self,
        name: &str,
        audience: Option<Audience>,
        free: usize,
    ) -> Option<Blocked> {
        let queues = self.by_name.get(name)?.iter();
        let waiting = queues.map(|index| &self.queues[*index]);
        let mut blocked = None;
        let is_meant = |queue: &&RouteQueue| {
            !queue.is_empty() && audience.is_none_or(|audience| audience == queue.audience)
        };
        for queue in waiting.filter(is_meant) {
            blocked = Some(self.blocked(queue, free)?);
        }
        blocked
    }

    /// True if some signals wait only for slots that are reserved for other routes.
    pub fn is_crowded(&self, free: usize) -> bool {
        let mut waiting = self.queues.iter().filter(|queue| !queue.is_empty());
        waiting.any(|queue| self.blocked(queue, free) == Some(Blocked::Slots))
    }

    /// Number of signals of one route that may wait in this class now.
    fn capacity(&self, class: SignalClass) -> usize {
        let per_route = max_per_route(class);
        let total = match class {
            SignalClass::Fresh => FRESH_MAX,
            SignalClass::Backlog => BACKLOG_MAX_TOTAL,
        };
        let left = total.saturating_sub(self.waiting(class));
        match self.multiple_routes {
            true => per_route.min(ROOM_SHARE * left),
            false => per_route,
        }
    }

    /// True if `rows` more swept signals fit in every runnable route's queue. Blocked routes do not count: the sweep skips
    /// them.
    pub fn has_room_to_sweep(&self, rows: usize, free: usize) -> bool {
        let capacity = self.capacity(SignalClass::Backlog);
        let wanted = rows.min(capacity / 2);
        let mut queues = self.queues.iter();
        queues.all(|queue| {
            let waiting = queue.signals[SignalClass::Backlog as usize].len();
            capacity.saturating_sub(waiting) >= wanted || self.blocked(queue, free).is_some()
        })
    }

    /// Names of the routes with signals whose workers take from this pull queue.
    pub fn pulled_from(&self, pull_queue: &str) -> Vec<Arc<str>> {
        let queues = self.queues.iter().filter(|queue| !queue.is_empty());
        let pulled = queues.filter(|queue| {
            let pull = queue.route.pull.as_ref();
            pull.is_some_and(|pull| *pull.queue == *pull_queue)
        });
        pulled.map(|queue| Arc::clone(&queue.route.name)).collect()
    }

    fn index_of(&mut self, route: Route, key: &TaskKey) -> usize {
        let pull = route.pull.as_ref();
        let demand = pull.map(|pull| self.demands.of(&pull.queue));
        let audience = demand.as_ref().map_or(0, |demand| demand.audience_of(key));
        let places = self.by_name.entry(Arc::clone(&route.name)).or_default();
        let known = places
            .iter()
            .find(|index| self.queues[**index].audience == audience);
        if let Some(index) = known {
            return *index;
        }
        let new = || Arc::new(RouteLoad::new(Arc::clone(&self.wakeups)));
        let load = self
            .loads
            .entry(Arc::clone(&route.name))
            .or_insert_with(new);
        let requested = places.iter().any(|index| self.queues[*index].requested);
        let index = self.queues.len();
        places.push(index);
        self.queues.push(RouteQueue {
            load: Arc::clone(load),
            demand,
            audience,
            route,
            signals: Default::default(),
            unarmed: 0,
            requested,
        });
        index
    }
}

/// Maximum number of waiting signals of one class and route.
fn max_per_route(class: SignalClass) -> usize {
    match class {
        SignalClass::Fresh => FRESH_MAX,
        SignalClass::Backlog => BACKLOG_MAX,
    }
}

#[cfg(test)]
mod tests;

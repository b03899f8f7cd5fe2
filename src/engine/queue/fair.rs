//! Signals that wait, in a line for each route, so that many of one route never delay another.
//!
//! This is the one place that says whether a route may start something now ([`RouteQueues::held`]): how much of it runs, how
//! many slots it leaves to others, whether its rate allows it.

use std::cmp::Reverse;
use std::collections::{BTreeMap, HashMap, VecDeque};
use std::sync::Arc;

use super::class::SignalClass;
use super::route_load::{RouteLoad, RoutePermit, Wakeups};
use crate::handler::{Route, Router};
use crate::task::Rate;
use crate::timer::Signal;

/// Most signals that wait, from timers and from the sweep. The sweep comes again, so it needs few.
pub const FRESH_MAX: usize = 131_072;
/// As [`FRESH_MAX`], of each route.
pub const SWEPT_MAX: usize = 4_096;
/// Of all routes together.
const SWEPT_MAX_OF_ALL: usize = 16 * SWEPT_MAX;

/// Where there are several routes, one has at most so many times what is left free, of slots and of room to wait: alone
/// it takes seven eighths, with others less, and whoever comes new always finds some.
const SLOTS_SHARE: usize = 7;
const ROOM_SHARE: usize = 7;

/// Signals that wait.
#[derive(Debug)]
pub struct RouteQueues {
    lines: Vec<RouteQueue>,
    by_name: HashMap<Arc<str>, usize>,
    /// By name: what runs outlives a reload.
    loads: HashMap<Arc<str>, Arc<RouteLoad>>,
    /// Who has signals in this class: the highest priority first, equal ones in the order of their turns.
    turns: [BTreeMap<Reverse<i8>, VecDeque<usize>>; 2],
    waiting: [usize; 2],
    /// More than one route is configured.
    several: bool,
    /// Of which reload the routes are.
    reloads: u64,
    wakeups: Arc<Wakeups>,
}

struct RouteQueue {
    route: Route,
    load: Arc<RouteLoad>,
    signals: [VecDeque<Signal>; 2],
    /// Starts are being asked for, or it is waited until there are some.
    asking: bool,
}

/// Why a route may start nothing now.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Held {
    /// As much of it runs as may.
    Concurrency,
    /// What is free is left to others.
    Slots,
    /// Its rate allows none at present.
    Rate,
}

/// What is there to be taken.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Waiting {
    /// Nothing waits.
    Nothing,
    /// All that waits is held.
    Held,
    /// The routes were changed, and not all that waits has found its route yet.
    Unrouted,
    /// So many may start.
    Startable(usize),
}

/// A signal that was taken, what runs it, and its right to run.
pub struct Taken {
    /// What was signalled.
    pub signal: Signal,
    /// What runs it.
    pub route: Route,
    /// Its right to run.
    pub permit: RoutePermit,
}

/// A signal that was not taken in.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Refused {
    /// There is no room: the sweep finds its task when there is.
    Full,
    /// There is none for this route, which waits for something else: the sweep finds its tasks when they can start.
    Held,
}

/// Starts that a route with a rate is in want of.
#[derive(Debug, Clone)]
pub struct StartsWanted {
    /// The route.
    pub name: Arc<str>,
    /// Its rate.
    pub rate: Rate,
}

/// What [`RouteQueues::set_aside`] came to.
#[derive(Debug, Default)]
pub struct SetAside {
    /// Signals that need no start, since nothing of theirs may start. They wait no longer.
    pub signals: Vec<Signal>,
    /// How many of those that wait could start.
    pub startable: usize,
}

impl RouteQueues {
    /// Empty ones, for the routes as they are now.
    pub fn new(router: &Router, wakeups: Arc<Wakeups>) -> Self {
        Self {
            lines: Vec::new(),
            by_name: HashMap::new(),
            loads: HashMap::new(),
            turns: Default::default(),
            waiting: [0; 2],
            several: router.len() > 1,
            reloads: router.reloads(),
            wakeups,
        }
    }

    /// How many wait in this class.
    pub fn waiting(&self, class: SignalClass) -> usize {
        self.waiting[class as usize]
    }

    /// How many wait on each route that ever had any.
    pub fn by_route(&self) -> impl Iterator<Item = (&str, usize)> {
        let lines = self.lines.iter();
        lines.map(|line| {
            (
                &*line.route.name,
                line.signals.iter().map(VecDeque::len).sum(),
            )
        })
    }

    /// Puts a signal at the end of its route's line, while so many slots are free.
    pub fn push(
        &mut self,
        class: SignalClass,
        route: Route,
        signal: Signal,
        free: usize,
    ) -> Result<(), Refused> {
        let index = self.line_of(route);
        let at = class as usize;
        let line = &self.lines[index];
        if line.signals[at].len() >= self.allowance(class) {
            // A route with a rate has no room for as long as its backlog lasts. One that holds all the slots it may has
            // none until its runs end.
            let waits = line.route.limits.rate.is_some() || self.held(line, free).is_some();
            return Err(if waits { Refused::Held } else { Refused::Full });
        }
        let line = &mut self.lines[index];
        if line.signals[at].is_empty() {
            let priority = Reverse(line.route.limits.priority);
            let turns = self.turns[at].entry(priority).or_default();
            turns.push_back(index);
        }
        line.signals[at].push_back(signal);
        self.waiting[at] += 1;
        if line.is_starved() {
            self.wakeups.starved.notify_one();
        }
        Ok(())
    }

    /// What could be taken from this class, if so many slots are free. At least one is believed to be: it is waited for.
    pub fn look(&self, class: SignalClass, free: usize) -> Waiting {
        let at = class as usize;
        if self.waiting[at] == 0 {
            return Waiting::Nothing;
        }
        if self.lines.iter().any(RouteQueue::is_starved) {
            self.wakeups.starved.notify_one();
        }
        let indices = self.turns[at].values().flatten();
        let startable = indices.map(|index| {
            let line = &self.lines[*index];
            match self.held(line, free) {
                None => line.signals[at].len().min(line.room()),
                Some(_) => 0,
            }
        });
        match startable.fold(0, usize::saturating_add) {
            0 => Waiting::Held,
            count => Waiting::Startable(count),
        }
    }

    /// Takes at most `limit` signals, for as many slots that are in hand while `free` others are: the highest priority
    /// first, and of equal ones each route one in turn.
    pub fn take(&mut self, class: SignalClass, limit: usize, free: usize) -> Vec<Taken> {
        let at = class as usize;
        let mut taken = Vec::with_capacity(limit.min(self.waiting[at]));
        let mut turns = std::mem::take(&mut self.turns[at]);
        for turns in turns.values_mut() {
            let mut held = VecDeque::new();
            while taken.len() < limit
                && let Some(index) = turns.pop_front()
            {
                let free = free + limit - taken.len();
                if self.held(&self.lines[index], free).is_some() {
                    held.push_back(index);
                    continue;
                }
                taken.push(self.lines[index].take_first(at));
                // Only what was full has a sweep waiting for room; told after each signal, a sweep that finds the same
                // row again and again would never rest.
                if self.lines[index].signals[at].len() == most_of_one(class) / 2 - 1 {
                    self.wakeups.drained.notify_one();
                }
                if !self.lines[index].signals[at].is_empty() {
                    turns.push_back(index);
                }
            }
            // Who could not start has not had its turn.
            held.append(turns);
            *turns = held;
        }
        turns.retain(|_, turns| !turns.is_empty());
        self.turns[at] = turns;
        self.waiting[at] -= taken.len();
        if self.lines.iter().any(RouteQueue::is_starved) {
            self.wakeups.starved.notify_one();
        }
        taken
    }

    /// Why this route may start nothing, if so many slots are free; `None` if it may.
    fn held(&self, line: &RouteQueue, free: usize) -> Option<Held> {
        let running = line.load.running();
        let limits = &line.route.limits;
        if limits
            .concurrency
            .is_some_and(|most| running >= most.get() as usize)
        {
            return Some(Held::Concurrency);
        }
        if self.several && running >= SLOTS_SHARE * free.max(1) {
            return Some(Held::Slots);
        }
        if limits.rate.is_some() && line.load.starts() == 0 {
            return Some(Held::Rate);
        }
        None
    }

    /// Why signals of this route, if any wait, do not start although so many slots are free.
    pub fn held_route(&self, name: &str, free: usize) -> Option<Held> {
        let line = &self.lines[*self.by_name.get(name)?];
        match line.is_empty() {
            true => None,
            false => self.held(line, free),
        }
    }

    /// Whether something waits for nothing but slots that are left to others.
    pub fn is_crowded(&self, free: usize) -> bool {
        let mut waiting = self.lines.iter().filter(|line| !line.is_empty());
        waiting.any(|line| self.held(line, free) == Some(Held::Slots))
    }

    /// How many signals of one route may wait in this class now.
    fn allowance(&self, class: SignalClass) -> usize {
        let of_one = most_of_one(class);
        let of_all = match class {
            SignalClass::Fresh => FRESH_MAX,
            SignalClass::Backlog => SWEPT_MAX_OF_ALL,
        };
        let left = of_all.saturating_sub(self.waiting(class));
        match self.several {
            true => of_one.min(ROOM_SHARE * left),
            false => of_one,
        }
    }

    /// Whether a sweep that goes on finds room for so many more of whatever can start. What is held does not count: it is
    /// passed by.
    pub fn has_room_to_sweep(&self, rows: usize, free: usize) -> bool {
        let allowance = self.allowance(SignalClass::Backlog);
        let wanted = rows.min(allowance / 2);
        let mut lines = self.lines.iter();
        lines.all(|line| {
            let waiting = line.signals[SignalClass::Backlog as usize].len();
            allowance.saturating_sub(waiting) >= wanted || self.held(line, free).is_some()
        })
    }

    /// What routes with a rate are in want of; they are not asked again before [`answered`](Self::answered).
    pub fn wants(&mut self) -> Vec<StartsWanted> {
        let starved = self.lines.iter_mut().filter(|line| line.is_starved());
        let wants = starved.filter_map(|line| {
            line.asking = true;
            Some(StartsWanted {
                name: Arc::clone(&line.route.name),
                rate: line.route.limits.rate?,
            })
        });
        wants.collect()
    }

    /// Takes out of a route's line what is hindered from starting. In each class it looks from the front until it has found
    /// so many that are not: what stands behind them is not asked for yet.
    pub fn set_aside(
        &mut self,
        name: &str,
        most: usize,
        hindered: impl Fn(&Signal) -> bool,
    ) -> SetAside {
        let Some(index) = self.by_name.get(name).copied() else {
            return SetAside::default();
        };
        let mut aside = SetAside::default();
        for at in [SignalClass::Fresh as usize, SignalClass::Backlog as usize] {
            let line = &mut self.lines[index].signals[at];
            let mut front = Vec::with_capacity(most.min(line.len()));
            let before = aside.signals.len();
            while front.len() < most
                && let Some(signal) = line.pop_front()
            {
                match hindered(&signal) {
                    true => aside.signals.push(signal),
                    false => front.push(signal),
                }
            }
            aside.startable += front.len();
            front
                .into_iter()
                .rev()
                .for_each(|signal| line.push_front(signal));
            let (taken, is_empty) = (aside.signals.len() - before, line.is_empty());
            self.waiting[at] -= taken;
            if taken > 0 && is_empty {
                self.turns[at].retain(|_, turns| {
                    turns.retain(|turn| *turn != index);
                    !turns.is_empty()
                });
            }
        }
        aside.startable = aside.startable.min(self.lines[index].concurrency_room());
        aside
    }

    /// So many starts were granted.
    pub fn grant(&mut self, name: &str, starts: u32) {
        if let Some(index) = self.by_name.get(name) {
            self.lines[*index].load.grant(starts);
        }
    }

    /// The route may be in want again.
    pub fn answered(&mut self, name: &str) {
        if let Some(index) = self.by_name.get(name) {
            let line = &mut self.lines[*index];
            line.asking = false;
            if line.is_starved() {
                self.wakeups.starved.notify_one();
            }
        }
    }

    /// Whether the routes are those of the router.
    pub fn are_of(&self, router: &Router) -> bool {
        self.reloads == router.reloads()
    }

    /// Takes over the routes as they are now. Answers what waited, to be put in its lines again; until
    /// [`forget_loads`](Self::forget_loads) the loads of all routes are kept.
    pub fn reroute(&mut self, router: &Router) -> Vec<(SignalClass, Signal)> {
        let Self { lines, loads, .. } =
            std::mem::replace(self, Self::new(router, Arc::clone(&self.wakeups)));
        self.loads = loads;
        let waited = lines.into_iter().flat_map(|line| {
            let classes = [SignalClass::Fresh, SignalClass::Backlog]
                .into_iter()
                .zip(line.signals);
            classes
                .flat_map(|(class, signals)| signals.into_iter().map(move |signal| (class, signal)))
        });
        waited.collect()
    }

    /// Forgets the loads of routes that are gone and of which nothing runs.
    pub fn forget_loads(&mut self) {
        let known = &self.by_name;
        self.loads
            .retain(|name, load| known.contains_key(name) || load.running() > 0);
    }

    fn line_of(&mut self, route: Route) -> usize {
        if let Some(index) = self.by_name.get(&route.name) {
            return *index;
        }
        let new = || Arc::new(RouteLoad::new(Arc::clone(&self.wakeups)));
        let load = self
            .loads
            .entry(Arc::clone(&route.name))
            .or_insert_with(new);
        let index = self.lines.len();
        self.by_name.insert(Arc::clone(&route.name), index);
        self.lines.push(RouteQueue {
            load: Arc::clone(load),
            route,
            signals: Default::default(),
            asking: false,
        });
        index
    }
}

/// How many signals of one class and route may wait at most.
fn most_of_one(class: SignalClass) -> usize {
    match class {
        SignalClass::Fresh => FRESH_MAX,
        SignalClass::Backlog => SWEPT_MAX,
    }
}

impl RouteQueue {
    fn len(&self) -> usize {
        self.signals.iter().map(VecDeque::len).sum()
    }

    fn is_empty(&self) -> bool {
        self.signals.iter().all(VecDeque::is_empty)
    }

    /// Whether it only lacks starts that nobody has asked for.
    fn is_starved(&self) -> bool {
        self.route.limits.rate.is_some()
            && !self.asking
            && !self.is_empty()
            && self.load.starts() == 0
            && self.concurrency_room() > 0
    }

    fn concurrency_room(&self) -> usize {
        let most = self.route.limits.concurrency;
        most.map_or(usize::MAX, |most| {
            (most.get() as usize).saturating_sub(self.load.running())
        })
    }

    /// How many could start now.
    fn room(&self) -> usize {
        let starts = match self.route.limits.rate {
            Some(_) => self.load.starts() as usize,
            None => usize::MAX,
        };
        starts.min(self.concurrency_room())
    }

    fn take_first(&mut self, at: usize) -> Taken {
        let signal = self.signals[at]
            .pop_front()
            .expect("only lines with signals have a turn");
        Taken {
            signal,
            route: self.route.clone(),
            permit: self.load.permit(self.route.limits.rate.is_some()),
        }
    }
}

impl std::fmt::Debug for RouteQueue {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("RouteQueue")
            .field("route", &self.route.name)
            .field("load", &self.load)
            .field("waiting", &self.len())
            .finish()
    }
}

#[cfg(test)]
mod tests;

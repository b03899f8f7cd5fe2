//! Signals that wait, in a line for each route, so that many of one route never delay another.
//!
//! This is the one place that says whether a route may start something now ([`Lines::held`]): how much of it runs, how
//! many slots it leaves to others, whether its rate allows it.

use std::cmp::Reverse;
use std::collections::{BTreeMap, HashMap, VecDeque};
use std::sync::Arc;

use super::flow::{Flow, Gate, Seat};
use super::intake::Lane;
use crate::handler::{Route, Router};
use crate::task::{Rate, TaskKey};
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

/// More free slots than there are.
const PLENTY: usize = usize::MAX / SLOTS_SHARE;

/// Signals that wait.
#[derive(Debug)]
pub struct Lines {
    lines: Vec<Line>,
    by_name: HashMap<Arc<str>, usize>,
    /// By name: what runs outlives a reload.
    flows: HashMap<Arc<str>, Arc<Flow>>,
    /// Who has signals in this lane: the highest priority first, equal ones in the order of their turns.
    turns: [BTreeMap<Reverse<i8>, VecDeque<usize>>; 2],
    waiting: [usize; 2],
    /// More than one route is configured.
    several: bool,
    /// Of which reload the routes are.
    reloads: u64,
    gate: Arc<Gate>,
}

struct Line {
    route: Route,
    flow: Arc<Flow>,
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
    /// So many may start.
    Startable(usize),
}

/// A signal that was taken, what runs it, and its right to run.
pub struct Picked {
    /// What was signalled.
    pub signal: Signal,
    /// What runs it.
    pub route: Route,
    /// Its right to run.
    pub seat: Seat,
}

/// A signal that was not taken in.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Refused {
    /// There is no room: the ledger has to be asked again as soon as there is.
    Full,
    /// There is none for this route, which waits for something else: the sweep finds its tasks when they can start.
    Held,
}

/// Starts that a route with a rate is in want of.
#[derive(Debug, Clone)]
pub struct Want {
    /// The route.
    pub name: Arc<str>,
    /// Its rate.
    pub rate: Rate,
}

/// What [`Lines::set_aside`] came to.
#[derive(Debug, Default)]
pub struct Aside {
    /// Signals that need no start, since nothing of theirs may start. They wait no longer.
    pub signals: Vec<Signal>,
    /// How many of those that wait could start.
    pub startable: usize,
}

impl Lines {
    /// Empty ones, for the routes as they are now.
    pub fn new(router: &Router, gate: Arc<Gate>) -> Self {
        Self {
            lines: Vec::new(),
            by_name: HashMap::new(),
            flows: HashMap::new(),
            turns: Default::default(),
            waiting: [0; 2],
            several: router.len() > 1,
            reloads: router.reloads(),
            gate,
        }
    }

    /// How many wait in this lane.
    pub fn waiting(&self, lane: Lane) -> usize {
        self.waiting[lane as usize]
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

    /// Puts a signal at the end of its route's line.
    pub fn push(&mut self, lane: Lane, route: Route, signal: Signal) -> Result<(), Refused> {
        let index = self.line_of(route);
        let at = lane as usize;
        let line = &self.lines[index];
        if line.signals[at].len() >= self.allowance(lane) {
            // A route with a rate has no room for as long as its backlog lasts.
            let waits = line.route.limits.rate.is_some() || self.held(line, PLENTY).is_some();
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
            self.gate.starved.notify_one();
        }
        Ok(())
    }

    /// What could be taken from this lane, if so many slots are free. At least one is believed to be: it is waited for.
    pub fn look(&self, lane: Lane, free: usize) -> Waiting {
        let at = lane as usize;
        if self.waiting[at] == 0 {
            return Waiting::Nothing;
        }
        if self.lines.iter().any(Line::is_starved) {
            self.gate.starved.notify_one();
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
    pub fn take(&mut self, lane: Lane, limit: usize, free: usize) -> Vec<Picked> {
        let at = lane as usize;
        let mut picked = Vec::with_capacity(limit.min(self.waiting[at]));
        let mut turns = std::mem::take(&mut self.turns[at]);
        for turns in turns.values_mut() {
            let mut held = VecDeque::new();
            while picked.len() < limit
                && let Some(index) = turns.pop_front()
            {
                let free = free + limit - picked.len();
                if self.held(&self.lines[index], free).is_some() {
                    held.push_back(index);
                    continue;
                }
                picked.push(self.lines[index].pick(at));
                // Only what was full has a sweep waiting for room; told after each signal, a sweep that finds the same
                // row again and again would never rest.
                if lane == Lane::Swept && self.lines[index].signals[at].len() == SWEPT_MAX / 2 - 1 {
                    self.gate.drained.notify_one();
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
        self.waiting[at] -= picked.len();
        if self.lines.iter().any(Line::is_starved) {
            self.gate.starved.notify_one();
        }
        picked
    }

    /// Why this route may start nothing, if so many slots are free; `None` if it may.
    fn held(&self, line: &Line, free: usize) -> Option<Held> {
        let running = line.flow.running();
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
        if limits.rate.is_some() && line.flow.starts() == 0 {
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

    /// How many signals of one route may wait in this lane now.
    fn allowance(&self, lane: Lane) -> usize {
        let (of_one, of_all) = match lane {
            Lane::Fresh => (FRESH_MAX, FRESH_MAX),
            Lane::Swept => (SWEPT_MAX, SWEPT_MAX_OF_ALL),
        };
        let left = of_all.saturating_sub(self.waiting(lane));
        match self.several {
            true => of_one.min(ROOM_SHARE * left),
            false => of_one,
        }
    }

    /// Whether a sweep that goes on finds room for so many more of whatever can start. What is held does not count: it is
    /// passed by.
    pub fn has_room_to_sweep(&self, rows: usize, free: usize) -> bool {
        let allowance = self.allowance(Lane::Swept);
        let wanted = rows.min(allowance / 2);
        let mut lines = self.lines.iter();
        lines.all(|line| {
            let waiting = line.signals[Lane::Swept as usize].len();
            allowance.saturating_sub(waiting) >= wanted || self.held(line, free).is_some()
        })
    }

    /// What routes with a rate are in want of; they are not asked again before [`answered`](Self::answered).
    pub fn wants(&mut self) -> Vec<Want> {
        let starved = self.lines.iter_mut().filter(|line| line.is_starved());
        let wants = starved.filter_map(|line| {
            line.asking = true;
            Some(Want {
                name: Arc::clone(&line.route.name),
                rate: line.route.limits.rate?,
            })
        });
        wants.collect()
    }

    /// Takes out of a route's line what is hindered from starting. In each lane it looks from the front until it has found
    /// so many that are not: what stands behind them is not asked for yet.
    pub fn set_aside(
        &mut self,
        name: &str,
        most: usize,
        hindered: impl Fn(&Signal) -> bool,
    ) -> Aside {
        let Some(index) = self.by_name.get(name).copied() else {
            return Aside::default();
        };
        let mut aside = Aside::default();
        for at in [Lane::Fresh as usize, Lane::Swept as usize] {
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
            self.lines[*index].flow.grant(starts);
        }
    }

    /// The route may be in want again.
    pub fn answered(&mut self, name: &str) {
        if let Some(index) = self.by_name.get(name) {
            let line = &mut self.lines[*index];
            line.asking = false;
            if line.is_starved() {
                self.gate.starved.notify_one();
            }
        }
    }

    /// Whether the routes are those of the router.
    pub fn are_of(&self, router: &Router) -> bool {
        self.reloads == router.reloads()
    }

    /// Takes over the routes as they are now. Answers whose signals are forgotten: what nothing runs any more, and what
    /// does not fit.
    pub fn reroute(&mut self, router: &Router) -> Vec<TaskKey> {
        let Self { lines, flows, .. } =
            std::mem::replace(self, Self::new(router, Arc::clone(&self.gate)));
        self.flows = flows;
        let mut forgotten = Vec::new();
        for line in lines {
            for (lane, signals) in [Lane::Fresh, Lane::Swept].into_iter().zip(line.signals) {
                for signal in signals {
                    let key = signal.key.clone();
                    let route = router.find(&key);
                    if route.is_none_or(|route| self.push(lane, route, signal).is_err()) {
                        forgotten.push(key);
                    }
                }
            }
        }
        let known = &self.by_name;
        self.flows
            .retain(|name, flow| known.contains_key(name) || flow.running() > 0);
        forgotten
    }

    fn line_of(&mut self, route: Route) -> usize {
        if let Some(index) = self.by_name.get(&route.name) {
            return *index;
        }
        let new = || Arc::new(Flow::new(Arc::clone(&self.gate)));
        let flow = self
            .flows
            .entry(Arc::clone(&route.name))
            .or_insert_with(new);
        let index = self.lines.len();
        self.by_name.insert(Arc::clone(&route.name), index);
        self.lines.push(Line {
            flow: Arc::clone(flow),
            route,
            signals: Default::default(),
            asking: false,
        });
        index
    }
}

impl Line {
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
            && self.flow.starts() == 0
            && self.concurrency_room() > 0
    }

    fn concurrency_room(&self) -> usize {
        let most = self.route.limits.concurrency;
        most.map_or(usize::MAX, |most| {
            (most.get() as usize).saturating_sub(self.flow.running())
        })
    }

    /// How many could start now.
    fn room(&self) -> usize {
        let starts = match self.route.limits.rate {
            Some(_) => self.flow.starts() as usize,
            None => usize::MAX,
        };
        starts.min(self.concurrency_room())
    }

    fn pick(&mut self, at: usize) -> Picked {
        let signal = self.signals[at]
            .pop_front()
            .expect("only lines with signals have a turn");
        Picked {
            signal,
            route: self.route.clone(),
            seat: self.flow.seat(self.route.limits.rate.is_some()),
        }
    }
}

impl std::fmt::Debug for Line {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Line")
            .field("route", &self.route.name)
            .field("flow", &self.flow)
            .field("waiting", &self.len())
            .finish()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::task::TaskKey;
    use crate::timer::Source;
    use crate::{Config, HandlerRegistry};

    /// Lines of these routes, each a class of its own: name, and what limits it.
    struct Desk {
        router: Router,
        lines: Lines,
    }

    impl Desk {
        fn new(routes: &[(&str, &str)]) -> Self {
            let router = Router::new(HandlerRegistry::new(), &config(routes));
            let lines = Lines::new(&router, Arc::default());
            Self { router, lines }
        }

        fn push(&mut self, class: &str, count: usize) -> Result<(), Refused> {
            (0..count).try_for_each(|n| self.push_in(Lane::Fresh, class, n))
        }

        fn push_in(&mut self, lane: Lane, class: &str, n: usize) -> Result<(), Refused> {
            let key = TaskKey::build(class, "m", [n.to_string()]).unwrap();
            let route = self.router.find(&key).unwrap();
            let (source, arming) = (Source::Nudge, None);
            self.lines.push(
                lane,
                route,
                Signal {
                    key,
                    source,
                    arming,
                },
            )
        }

        /// What comes next, in its order, as `A0 B0 ..`; and the seats.
        fn take(&mut self, limit: usize, free: usize) -> (String, Vec<Seat>) {
            let picked = self.lines.take(Lane::Fresh, limit, free);
            let name = |picked: &Picked| picked.signal.key.as_str().replace("@m@", "");
            let names: Vec<String> = picked.iter().map(name).collect();
            (
                names.join(" "),
                picked.into_iter().map(|picked| picked.seat).collect(),
            )
        }
    }

    fn config(routes: &[(&str, &str)]) -> Config {
        let route = |(class, limits): &(&str, &str)| {
            format!("[[routes]]\nmatch = '^{class}@'\nlog = {{}}\n{limits}\n")
        };
        Config::from_toml(&routes.iter().map(route).collect::<String>()).unwrap()
    }

    #[test]
    fn routes_take_turns() {
        let mut desk = Desk::new(&[("A", ""), ("B", ""), ("C", "")]);
        for (class, count) in [("A", 5), ("B", 2), ("C", 1)] {
            desk.push(class, count).unwrap();
        }
        let (first, _seats) = desk.take(2, 100);
        let (rest, _more) = desk.take(9, 100);
        assert_eq!((&first[..], &rest[..]), ("A0 B0", "C0 A1 B1 A2 A3 A4"));
    }

    #[test]
    fn the_highest_priority_goes_first_and_equal_ones_take_turns() {
        let mut desk = Desk::new(&[
            ("Low", "priority = -1"),
            ("B", ""),
            ("C", ""),
            ("High", "priority = 9"),
        ]);
        for class in ["Low", "B", "C", "High"] {
            desk.push(class, 2).unwrap();
        }
        let (order, _seats) = desk.take(99, 100);
        assert_eq!(order, "High0 High1 B0 C0 B1 C1 Low0 Low1");
    }

    #[test]
    fn a_full_route_waits_without_holding_up_others_and_goes_on_when_a_run_ends() {
        let mut desk = Desk::new(&[("A", "concurrency = 2\npriority = 5"), ("B", "")]);
        desk.push("A", 5).unwrap();
        desk.push("B", 2).unwrap();
        let (order, mut seats) = desk.take(4, 100);
        assert_eq!(order, "A0 A1 B0 B1");
        assert_eq!(desk.lines.look(Lane::Fresh, 100), Waiting::Held);
        assert_eq!(desk.lines.held_route("^A@", 100), Some(Held::Concurrency));
        seats.remove(0);
        assert_eq!(desk.lines.look(Lane::Fresh, 100), Waiting::Startable(1));
        assert_eq!(desk.take(4, 100).0, "A2");
    }

    #[tokio::test]
    async fn who_waits_for_a_run_to_end_hears_of_it() {
        let mut desk = Desk::new(&[("A", "concurrency = 1")]);
        desk.push("A", 2).unwrap();
        let (_, seats) = desk.take(4, 100);
        let gate = Arc::clone(&desk.lines.gate);
        gate.listen_for_ends();
        assert_eq!(desk.lines.look(Lane::Fresh, 100), Waiting::Held);
        drop(seats);
        gate.arrived(Lane::Fresh).notified().await;
        gate.arrived(Lane::Swept).notified().await;
    }

    #[test]
    fn where_there_are_several_routes_none_takes_the_last_eighth_of_the_slots() {
        let mut desk = Desk::new(&[("A", ""), ("B", ""), ("C", "")]);
        desk.push("A", 100).unwrap();
        let (_, seats) = desk.take(64, 0);
        assert_eq!(seats.len(), 56);
        assert!(desk.lines.is_crowded(8));
        // Whoever comes then finds a slot, and so does the third.
        desk.push("B", 100).unwrap();
        let (order, more) = desk.take(8, 0);
        assert!(
            order.starts_with("B0 B1") && !order.contains('A'),
            "{order}"
        );
        assert_eq!(more.len(), 7);
        desk.push("C", 1).unwrap();
        assert_eq!(desk.take(1, 0).0, "C0");
    }

    #[test]
    fn a_route_alone_takes_all_slots_and_all_room() {
        let mut desk = Desk::new(&[("A", "")]);
        desk.push("A", 100).unwrap();
        assert_eq!(desk.take(64, 0).1.len(), 64);
        desk.push("A", FRESH_MAX - 36).unwrap();
        assert_eq!(desk.push("A", 1), Err(Refused::Full));
    }

    #[test]
    fn no_route_takes_all_the_room_to_wait() {
        let mut desk = Desk::new(&[("A", ""), ("B", ""), ("C", "")]);
        assert_eq!(desk.push("A", FRESH_MAX), Err(Refused::Full));
        let taken = desk.lines.waiting(Lane::Fresh);
        assert!(
            (FRESH_MAX / 8 * 7..=FRESH_MAX / 8 * 7 + 1).contains(&taken),
            "{taken}"
        );
        assert_eq!(desk.push("B", FRESH_MAX), Err(Refused::Full));
        desk.push("C", 100).unwrap();
        assert!(desk.lines.waiting(Lane::Fresh) < FRESH_MAX);
    }

    #[test]
    fn a_sweep_stops_for_what_can_start_and_passes_by_what_is_held() {
        let mut desk = Desk::new(&[("A", "rate = '1/h'"), ("B", "")]);
        let fill =
            |desk: &mut Desk, class| (0..).find_map(|n| desk.push_in(Lane::Swept, class, n).err());
        assert_eq!(fill(&mut desk, "A"), Some(Refused::Held));
        assert!(desk.lines.has_room_to_sweep(1_000, 100));
        assert_eq!(fill(&mut desk, "B"), Some(Refused::Full));
        assert!(!desk.lines.has_room_to_sweep(1_000, 100));
        assert_eq!(desk.lines.waiting(Lane::Swept), 2 * SWEPT_MAX);
    }

    #[tokio::test(start_paused = true)]
    async fn a_route_with_a_rate_starts_what_was_granted() {
        let mut desk = Desk::new(&[("A", "rate = '10/s'"), ("B", "")]);
        desk.push("A", 5).unwrap();
        desk.push("B", 1).unwrap();
        assert_eq!(desk.take(9, 100).0, "B0");
        let wants = desk.lines.wants();
        assert_eq!(wants.len(), 1);
        assert_eq!(desk.lines.set_aside("^A@", 9, |_| false).startable, 5);
        assert_eq!(desk.lines.wants().len(), 0, "it is asked once");
        desk.lines.grant("^A@", 3);
        assert_eq!(desk.lines.look(Lane::Fresh, 100), Waiting::Startable(3));
        let (order, mut seats) = desk.take(9, 100);
        assert_eq!(order, "A0 A1 A2");
        // Two claims were lost.
        seats[0].start();
        drop(seats);
        assert_eq!(desk.take(9, 100).0, "A3 A4");
        desk.lines.answered("^A@");
        assert_eq!(desk.lines.wants().len(), 0, "nothing waits");
    }

    #[tokio::test(start_paused = true)]
    async fn what_may_not_start_is_set_aside_before_starts_are_asked_for() {
        let mut desk = Desk::new(&[("A", "rate = '10/s'"), ("B", "")]);
        desk.push("A", 6).unwrap();
        desk.push_in(Lane::Swept, "A", 6).unwrap();
        let named = |names: &'static [&'static str]| {
            move |signal: &Signal| names.contains(&&signal.key.as_str()[4..])
        };
        let Aside { signals, startable } = desk.lines.set_aside("^A@", 2, named(&["0", "2", "5"]));
        let aside: Vec<&str> = signals.iter().map(|signal| signal.key.as_str()).collect();
        assert_eq!(
            aside,
            ["A@m@0", "A@m@2"],
            "what stands further behind waits on"
        );
        assert_eq!(startable, 3);
        desk.lines.grant("^A@", 9);
        assert_eq!(desk.take(9, 100).0, "A1 A3 A4 A5");
        let Aside { signals, startable } = desk.lines.set_aside("^A@", 9, |_| true);
        assert_eq!((signals.len(), startable), (1, 0));
        assert_eq!(desk.lines.waiting(Lane::Swept), 0);
        assert_eq!(desk.lines.look(Lane::Swept, 100), Waiting::Nothing);
        assert_eq!(desk.lines.wants().len(), 0, "nothing waits");
    }

    #[test]
    fn a_reload_finds_the_routes_anew_and_runs_count_on() {
        let mut desk = Desk::new(&[("A", "concurrency = 2"), ("B", "")]);
        desk.push("A", 3).unwrap();
        desk.push("B", 2).unwrap();
        let (_, seats) = desk.take(1, 100);
        desk.router.reload(&config(&[("A", "concurrency = 1")]));
        assert!(!desk.lines.are_of(&desk.router));
        let forgotten = desk.lines.reroute(&desk.router);
        assert!(desk.lines.are_of(&desk.router));
        assert_eq!((forgotten.len(), desk.lines.waiting(Lane::Fresh)), (2, 2));
        assert_eq!(desk.lines.look(Lane::Fresh, 100), Waiting::Held);
        drop(seats);
        assert_eq!(desk.take(9, 100).0, "A1");
    }
}

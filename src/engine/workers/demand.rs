//! Demand: how many tasks the waiting workers of a pull queue ask for.
//!
//! Workers that may have tasks of some classes only are a group of their own. Which of these groups may have a task is its
//! [`Audience`]: signals of different audiences wait in different queues, so that no worker waits behind tasks that it may not have.

use std::collections::HashMap;
use std::sync::atomic::{AtomicBool, AtomicI64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard};

use crate::task::{ClassGlob, TaskKey, UnixMs};

/// Maximum number of limited groups of a queue: the bits of a [`Audience`].
pub const GROUPS_MAX: usize = Audience::BITS as usize;

/// The limited groups that may have a task: the bit of each. Every task is of audience 0 while no worker is limited.
pub type Audience = u64;

/// Workers that may have the same tasks: the number of a limited group; `None` for workers that may have every task.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Group(Option<usize>);

/// The demand for one pull queue. Its routes start as many tasks of an audience as it is [open](Self::capacity_for) for.
#[derive(Debug, Default)]
pub struct Demand {
    groups: Mutex<Groups>,
    /// True if workers ask, or asked a moment ago: tasks are signalled here.
    active: AtomicBool,
    /// When a worker asked last, as of the latest time at which it became idle; 0 if it never did.
    asked: AtomicI64,
}

#[derive(Debug, Default)]
struct Groups {
    unlimited: Count,
    limited: Vec<(Arc<[ClassGlob]>, Count)>,
}

/// The demand of one group.
#[derive(Debug, Default)]
struct Count {
    /// Number of tasks that waiting workers ask for.
    wanted: usize,
    /// Number of claims under way for them.
    reserved: usize,
}

impl Count {
    fn open(&self) -> usize {
        self.wanted.saturating_sub(self.reserved)
    }
}

impl Groups {
    fn count(&mut self, group: Group) -> &mut Count {
        match group.0 {
            None => &mut self.unlimited,
            Some(number) => &mut self.limited[number].1,
        }
    }

    /// The limited groups that may have the tasks of an audience.
    fn accepting(&self, audience: Audience) -> impl Iterator<Item = (usize, &Count)> {
        let counts = self.limited.iter().map(|(_, count)| count);
        let accepts = move |number: &usize| audience & (1 << number) != 0;
        counts
            .enumerate()
            .filter(move |(number, _)| accepts(number))
    }
}

impl Demand {
    /// Number of tasks of this audience that may be claimed now.
    pub fn capacity_for(&self, audience: Audience) -> usize {
        let groups = self.groups();
        let limited = groups.accepting(audience).map(|(_, count)| count.open());
        groups.unlimited.open() + limited.sum::<usize>()
    }

    /// Number of tasks that waiting workers ask for.
    pub fn wanted(&self) -> usize {
        let groups = self.groups();
        let limited = groups.limited.iter().map(|(_, count)| count.wanted);
        groups.unlimited.wanted + limited.sum::<usize>()
    }

    /// True if no worker asks.
    pub fn is_zero(&self) -> bool {
        self.wanted() == 0
    }

    /// True if tasks are to be signalled here.
    pub fn is_active(&self) -> bool {
        self.active.load(Ordering::SeqCst)
    }

    /// When a worker asked last, on the ledger's clock, if the queue is idle; 0 if none has since the start.
    pub fn asked(&self) -> UnixMs {
        UnixMs(self.asked.load(Ordering::SeqCst))
    }

    /// Records when a worker asked last, before the queue becomes idle.
    pub fn set_asked(&self, asked: UnixMs) {
        self.asked.store(asked.0, Ordering::SeqCst);
    }

    /// Returns the state before.
    pub fn set_active(&self, active: bool) -> bool {
        self.active.swap(active, Ordering::SeqCst)
    }

    /// The audience of a task.
    pub fn audience_of(&self, key: &TaskKey) -> Audience {
        let groups = self.groups();
        let limited = groups.limited.iter().enumerate();
        let accepting = limited.filter(|(_, (classes, _))| has(classes, key));
        accepting.fold(0, |audience, (number, _)| audience | 1 << number)
    }

    /// The group of workers that may have tasks of these classes; empty: of all. True if there was no such group, so that
    /// tasks that wait may be of another audience now. `None` if there are too many.
    pub fn group_of(&self, classes: &[ClassGlob]) -> Option<(Group, bool)> {
        if classes.is_empty() {
            return Some((Group(None), false));
        }
        let limited = &mut self.groups().limited;
        let known = limited.iter().position(|(known, _)| **known == *classes);
        if known.is_some() {
            return Some((Group(known), false));
        }
        if limited.len() >= GROUPS_MAX {
            return None;
        }
        limited.push((classes.into(), Count::default()));
        Some((Group(Some(limited.len() - 1)), true))
    }

    /// Adds the demand of a worker.
    pub fn add(&self, group: Group, tasks: usize) {
        self.groups().count(group).wanted += tasks;
    }

    /// Removes the demand of a worker that has its tasks, or has gone away.
    pub fn remove(&self, group: Group, tasks: usize) {
        self.groups().count(group).wanted -= tasks;
    }

    /// Takes one unit of demand for a claim of this audience, until the guard is dropped. A limited worker comes first: an
    /// unlimited one may have what is left.
    pub fn reserve(self: &Arc<Self>, audience: Audience) -> Reservation {
        let mut groups = self.groups();
        let open = groups
            .accepting(audience)
            .find_map(|(number, count)| (count.open() > 0).then_some(number));
        let group = Group(open);
        groups.count(group).reserved += 1;
        Reservation {
            demand: Arc::clone(self),
            group,
        }
    }

    fn groups(&self) -> MutexGuard<'_, Groups> {
        self.groups.lock().expect("nothing panics while holding it")
    }
}

/// True if a worker of these classes may have this task; empty: of all.
pub fn may_have(classes: &[ClassGlob], key: &TaskKey) -> bool {
    classes.is_empty() || has(classes, key)
}

fn has(classes: &[ClassGlob], key: &TaskKey) -> bool {
    classes.iter().any(|glob| glob.has(key))
}

/// One unit of demand, from before the claim until the task is handed over or given back.
#[derive(Debug)]
pub struct Reservation {
    demand: Arc<Demand>,
    group: Group,
}

impl Drop for Reservation {
    fn drop(&mut self) {
        self.demand.groups().count(self.group).reserved -= 1;
    }
}

/// The demand for each pull queue, by name.
#[derive(Debug, Default)]
pub struct Demands(Mutex<HashMap<Arc<str>, Arc<Demand>>>);

impl Demands {
    /// Returns the demand for this queue.
    pub fn of(&self, queue: &Arc<str>) -> Arc<Demand> {
        let mut demands = self.demands();
        Arc::clone(demands.entry(Arc::clone(queue)).or_default())
    }

    /// True if tasks of some queue are to be signalled here.
    pub fn has_active(&self) -> bool {
        self.demands().values().any(|demand| demand.is_active())
    }

    fn demands(&self) -> MutexGuard<'_, HashMap<Arc<str>, Arc<Demand>>> {
        self.0.lock().expect("nothing panics while holding it")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn classes(names: &[&str]) -> Vec<ClassGlob> {
        let globs = names.iter().map(|name| ClassGlob::parse(name));
        globs.collect::<Result<_, _>>().unwrap()
    }

    #[test]
    fn a_lane_is_capacity_for_those_who_may_have_its_tasks() {
        let demand = Arc::<Demand>::default();
        let (mail, is_new) = demand.group_of(&classes(&["Mail"])).unwrap();
        assert!(is_new);
        assert_eq!(demand.group_of(&classes(&["Mail"])), Some((mail, false)));
        let (both, _) = demand.group_of(&classes(&["Mail", "Ord*"])).unwrap();
        let (all, _) = demand.group_of(&[]).unwrap();
        let audience = |key: &str| demand.audience_of(&TaskKey::parse(key).unwrap());
        let audiences = [
            audience("Mail@send"),
            audience("Order@close"),
            audience("Other@run"),
        ];
        assert_eq!(audiences, [0b11, 0b10, 0]);
        let open = || audiences.map(|audience| demand.capacity_for(audience));
        for (group, tasks) in [(mail, 1), (both, 2), (all, 4)] {
            demand.add(group, tasks);
        }
        assert_eq!((open(), demand.wanted()), ([7, 6, 4], 7));
        // The most limited come first.
        let reserved: Vec<Reservation> = (0..4).map(|_| demand.reserve(audiences[0])).collect();
        assert_eq!(open(), [3, 3, 3]);
        drop(reserved);
        demand.remove(both, 2);
        assert_eq!(open(), [5, 4, 4]);
    }

    #[test]
    fn the_number_of_groups_is_bounded() {
        let demand = Demand::default();
        for number in 0..GROUPS_MAX {
            let name = format!("Class{number}");
            assert!(demand.group_of(&classes(&[&name])).is_some());
        }
        assert_eq!(demand.group_of(&classes(&["One", "More"])), None);
        assert!(demand.group_of(&classes(&["Class0"])).is_some());
    }
}

//! The waiting room of pull workers: who waits for tasks of one queue, in order of arrival, and the demand that they make.
//!
//! The claim stage takes as many tasks from the queue's routes as there is demand; what it has claimed goes to the workers.

pub mod demand;

use std::collections::{BTreeMap, HashMap};
use std::sync::{Arc, Mutex, MutexGuard};

use tokio::sync::oneshot;
use tokio::time::Instant;

use self::demand::{Demand, Group, may_have};
use crate::task::{ClassGlob, TaskKey};

/// Workers of a queue that are remembered. Beyond that, the one that asked longest ago is forgotten.
const WORKERS_MAX: usize = 256;

/// The workers that wait for tasks of one queue. Each gets a `T`.
pub struct WaitingWorkers<T> {
    pub demand: Arc<Demand>,
    waiting: Mutex<Waiting<T>>,
}

struct Waiting<T> {
    next: u64,
    /// By arrival.
    tickets: BTreeMap<u64, Ticket<T>>,
    /// When a worker asked last.
    asked: Instant,
    /// By name.
    workers: HashMap<Arc<str>, Seen>,
}

/// What is remembered of a worker.
#[derive(Debug, Clone, Copy)]
pub struct Seen {
    /// When it asked or got tasks last.
    pub at: Instant,
    /// Number of tasks it has got.
    pub taken: u64,
}

/// A worker that waits.
pub struct Ticket<T> {
    /// Maximum number of tasks.
    pub count: usize,
    /// Name of the worker; may be empty.
    pub worker: Arc<str>,
    /// Classes of the tasks that it may have; empty: all.
    pub classes: Arc<[ClassGlob]>,
    /// Its group in the demand.
    pub group: Group,
    /// Delivers the tasks.
    pub give: oneshot::Sender<T>,
}

impl<T> Ticket<T> {
    /// True if the worker may have this task.
    pub fn may_have(&self, key: &TaskKey) -> bool {
        may_have(&self.classes, key)
    }
}

impl<T> WaitingWorkers<T> {
    /// No workers yet.
    pub fn new(demand: Arc<Demand>) -> Self {
        Self {
            demand,
            waiting: Mutex::new(Waiting {
                next: 0,
                tickets: BTreeMap::new(),
                asked: Instant::now(),
                workers: HashMap::new(),
            }),
        }
    }

    /// Adds a worker behind the others. It leaves when the guard is dropped.
    pub fn join(self: &Arc<Self>, ticket: Ticket<T>) -> Place<T> {
        let (group, count) = (ticket.group, ticket.count);
        let mut waiting = self.waiting();
        let number = waiting.next;
        waiting.next += 1;
        waiting.saw(&ticket.worker);
        waiting.tickets.insert(number, ticket);
        self.demand.add(group, count);
        Place {
            workers: Arc::clone(self),
            number,
        }
    }

    /// Removes the first worker that may have this task, which gets tasks now. `None` if none waits.
    ///
    /// A task that has `crashed` goes to the worker that asked last: the one that has waited for the longest may have vanished
    /// without a word, and the task must not die of workers that are gone.
    pub fn next(&self, key: &TaskKey, crashed: bool) -> Option<Ticket<T>> {
        let mut waiting = self.waiting();
        let mut tickets = waiting.tickets.iter();
        let may_have = |(_, ticket): &(&u64, &Ticket<T>)| ticket.may_have(key);
        let (number, _) = match crashed {
            true => tickets.rfind(may_have),
            false => tickets.find(may_have),
        }?;
        let number = *number;
        let ticket = waiting.tickets.remove(&number)?;
        waiting.saw(&ticket.worker);
        self.demand.remove(ticket.group, ticket.count);
        Some(ticket)
    }

    /// When a worker asked or got tasks last.
    pub fn asked(&self) -> Instant {
        self.waiting().asked
    }

    /// Counts tasks that a worker has got.
    pub fn took(&self, worker: &Arc<str>, tasks: usize) {
        self.waiting().saw(worker).taken += tasks as u64;
    }

    /// The workers that were seen, with the number of their calls that wait.
    pub fn workers(&self) -> Vec<(Arc<str>, Seen, usize)> {
        let waiting = self.waiting();
        let mut calls: HashMap<&str, usize> = HashMap::new();
        for ticket in waiting.tickets.values() {
            *calls.entry(&ticket.worker).or_default() += 1;
        }
        let workers = waiting.workers.iter();
        let calls = |name: &Arc<str>| calls.get(&**name).copied().unwrap_or(0);
        workers
            .map(|(name, seen)| (Arc::clone(name), *seen, calls(name)))
            .collect()
    }

    fn leave(&self, number: u64) {
        let mut waiting = self.waiting();
        if let Some(ticket) = waiting.tickets.remove(&number) {
            waiting.saw(&ticket.worker);
            self.demand.remove(ticket.group, ticket.count);
        }
    }

    fn waiting(&self) -> MutexGuard<'_, Waiting<T>> {
        self.waiting
            .lock()
            .expect("nothing panics while holding the workers")
    }
}

impl<T> Waiting<T> {
    /// Notes that a worker is there.
    fn saw(&mut self, worker: &Arc<str>) -> &mut Seen {
        self.asked = Instant::now();
        if self.workers.len() >= WORKERS_MAX && !self.workers.contains_key(worker) {
            let oldest = self.workers.iter().min_by_key(|(_, seen)| seen.at);
            let oldest = oldest.map(|(name, _)| Arc::clone(name));
            oldest.and_then(|name| self.workers.remove(&name));
        }
        let new = Seen {
            at: self.asked,
            taken: 0,
        };
        let seen = self.workers.entry(Arc::clone(worker)).or_insert(new);
        seen.at = self.asked;
        seen
    }
}

/// The place of a worker among the others. Dropping it gives the place up.
pub struct Place<T> {
    workers: Arc<WaitingWorkers<T>>,
    number: u64,
}

impl<T> Drop for Place<T> {
    fn drop(&mut self) {
        self.workers.leave(self.number);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn ticket(worker: &str) -> Ticket<()> {
        let (group, _) = Demand::default().group_of(&[]).unwrap();
        Ticket {
            count: 3,
            worker: worker.into(),
            classes: [].into(),
            group,
            give: oneshot::channel().0,
        }
    }

    #[test]
    fn a_task_with_a_crash_goes_to_the_worker_that_asked_last() {
        let waiting = Arc::new(WaitingWorkers::new(Arc::default()));
        let places = ["vanished", "gone", "here"].map(|name| waiting.join(ticket(name)));
        let key = TaskKey::parse("C@m").unwrap();
        let next = |crashed| waiting.next(&key, crashed).map(|it| it.worker.to_string());
        assert_eq!(next(true).as_deref(), Some("here"));
        assert_eq!(next(false).as_deref(), Some("vanished"));
        assert_eq!(next(true).as_deref(), Some("gone"));
        assert_eq!(next(true), None);
        drop(places);
    }

    #[tokio::test(start_paused = true)]
    async fn workers_are_remembered_after_they_have_left_and_their_number_is_bounded() {
        let waiting = Arc::new(WaitingWorkers::new(Arc::default()));
        let place = waiting.join(ticket("a"));
        let waits = |waiting: &WaitingWorkers<()>| {
            let workers = waiting.workers().into_iter();
            let mut all: Vec<_> = workers
                .map(|(name, seen, calls)| (name.to_string(), seen.taken, calls))
                .collect();
            all.sort();
            all
        };
        assert_eq!(waits(&waiting), [("a".to_owned(), 0, 1)]);
        waiting.took(&"a".into(), 2);
        drop(place);
        assert_eq!(waits(&waiting), [("a".to_owned(), 2, 0)]);
        for number in 0..WORKERS_MAX {
            tokio::time::advance(std::time::Duration::from_secs(1)).await;
            drop(waiting.join(ticket(&number.to_string())));
        }
        let names = waits(&waiting);
        assert_eq!(names.len(), WORKERS_MAX);
        assert!(
            names.iter().all(|(name, ..)| name != "a"),
            "it was the oldest"
        );
    }
}

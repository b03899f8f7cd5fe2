//! Takers of one queue: workers that wait for tasks, in order of arrival.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, MutexGuard};

use tokio::sync::oneshot;
use tokio::time::Instant;

use crate::engine::queue::demand::Demand;

/// The takers that wait for tasks of one queue. Each gets a `T`.
pub struct Takers<T> {
    pub demand: Arc<Demand>,
    waiting: Mutex<Waiting<T>>,
}

struct Waiting<T> {
    next: u64,
    /// By arrival.
    tickets: BTreeMap<u64, Ticket<T>>,
    /// When a worker asked last.
    asked: Instant,
}

/// A taker that waits.
pub struct Ticket<T> {
    /// Maximum number of tasks.
    pub count: usize,
    /// Name of the worker; may be empty.
    pub worker: Arc<str>,
    /// Hands the tasks over.
    pub give: oneshot::Sender<T>,
}

impl<T> Takers<T> {
    /// No takers yet.
    pub fn new(demand: Arc<Demand>) -> Self {
        Self {
            demand,
            waiting: Mutex::new(Waiting {
                next: 0,
                tickets: BTreeMap::new(),
                asked: Instant::now(),
            }),
        }
    }

    /// Adds a taker behind the others. It leaves when the guard is dropped.
    pub fn join(self: &Arc<Self>, ticket: Ticket<T>) -> Place<T> {
        let count = ticket.count;
        let mut waiting = self.waiting();
        let number = waiting.next;
        waiting.next += 1;
        waiting.asked = Instant::now();
        waiting.tickets.insert(number, ticket);
        self.demand.add(count);
        Place {
            takers: Arc::clone(self),
            number,
        }
    }

    /// Removes the first taker, which gets tasks now. `None` if none waits.
    pub fn next(&self) -> Option<Ticket<T>> {
        let mut waiting = self.waiting();
        let (_, ticket) = waiting.tickets.pop_first()?;
        waiting.asked = Instant::now();
        self.demand.remove(ticket.count);
        Some(ticket)
    }

    /// When a worker asked or got tasks last.
    pub fn asked(&self) -> Instant {
        self.waiting().asked
    }

    fn leave(&self, number: u64) {
        let mut waiting = self.waiting();
        if let Some(ticket) = waiting.tickets.remove(&number) {
            waiting.asked = Instant::now();
            self.demand.remove(ticket.count);
        }
    }

    fn waiting(&self) -> MutexGuard<'_, Waiting<T>> {
        self.waiting
            .lock()
            .expect("nothing panics while holding the takers")
    }
}

/// The place of a taker among the others. Dropping it gives the place up.
pub struct Place<T> {
    takers: Arc<Takers<T>>,
    number: u64,
}

impl<T> Drop for Place<T> {
    fn drop(&mut self) {
        self.takers.leave(self.number);
    }
}

//! Demand: how many tasks the waiting workers of a pull queue ask for.

use std::collections::HashMap;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard};

/// The demand for one pull queue. Its routes start as many tasks as it is [open](Self::open) for.
#[derive(Debug, Default)]
pub struct Demand {
    /// Number of tasks that waiting workers ask for.
    wanted: AtomicUsize,
    /// Number of claims under way for them.
    reserved: AtomicUsize,
    /// True if workers ask, or asked a moment ago: tasks are signalled here.
    active: AtomicBool,
}

impl Demand {
    /// Number of tasks that may be claimed now.
    pub fn open(&self) -> usize {
        self.wanted()
            .saturating_sub(self.reserved.load(Ordering::SeqCst))
    }

    /// Number of tasks that waiting workers ask for.
    pub fn wanted(&self) -> usize {
        self.wanted.load(Ordering::SeqCst)
    }

    /// True if no worker asks.
    pub fn is_zero(&self) -> bool {
        self.wanted() == 0
    }

    /// True if tasks are to be signalled here.
    pub fn is_active(&self) -> bool {
        self.active.load(Ordering::SeqCst)
    }

    /// Returns the state before.
    pub fn set_active(&self, active: bool) -> bool {
        self.active.swap(active, Ordering::SeqCst)
    }

    /// Adds the demand of a worker.
    pub fn add(&self, tasks: usize) {
        self.wanted.fetch_add(tasks, Ordering::SeqCst);
    }

    /// Removes the demand of a worker that has its tasks, or has gone away.
    pub fn remove(&self, tasks: usize) {
        self.wanted.fetch_sub(tasks, Ordering::SeqCst);
    }

    /// Takes one unit of demand for a claim, until the guard is dropped.
    pub fn reserve(self: &Arc<Self>) -> Reservation {
        self.reserved.fetch_add(1, Ordering::SeqCst);
        Reservation(Arc::clone(self))
    }
}

/// One unit of demand, from before the claim until the task is handed over or given back.
#[derive(Debug)]
pub struct Reservation(Arc<Demand>);

impl Drop for Reservation {
    fn drop(&mut self) {
        self.0.reserved.fetch_sub(1, Ordering::SeqCst);
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

    fn demands(&self) -> MutexGuard<'_, HashMap<Arc<str>, Arc<Demand>>> {
        self.0.lock().expect("nothing panics while holding it")
    }
}

//! Connections that have not authenticated yet. When all places are taken, the oldest of them gives way to a new one.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, MutexGuard};

use tokio_util::sync::CancellationToken;

/// The connections that have not authenticated, by age.
#[derive(Default)]
pub struct Guests(Mutex<Waiting>);

#[derive(Default)]
struct Waiting {
    next: u64,
    by_age: BTreeMap<u64, CancellationToken>,
}

/// A connection that has not authenticated. Drop it when it has.
pub struct Guest {
    guests: Arc<Guests>,
    number: u64,
}

impl Guests {
    /// Adds a connection that ends when `closed` is cancelled.
    pub fn add(self: &Arc<Self>, closed: CancellationToken) -> Guest {
        let mut waiting = self.waiting();
        waiting.next += 1;
        let number = waiting.next;
        waiting.by_age.insert(number, closed);
        drop(waiting);
        Guest {
            guests: Arc::clone(self),
            number,
        }
    }

    /// Ends the oldest. Returns false if there is none.
    pub fn close_oldest(&self) -> bool {
        let oldest = self.waiting().by_age.pop_first();
        oldest.is_some_and(|(_, closed)| {
            closed.cancel();
            true
        })
    }

    fn waiting(&self) -> MutexGuard<'_, Waiting> {
        self.0.lock().expect("nothing panics while holding it")
    }
}

impl Drop for Guest {
    fn drop(&mut self) {
        self.guests.waiting().by_age.remove(&self.number);
    }
}

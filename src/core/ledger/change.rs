//! Changes of several tasks in one transaction, decided by the rows as they are in it.

use std::sync::{Arc, Mutex, MutexGuard};

use super::{NewTask, RowSnapshot};
use crate::task::{Arming, TaskKey, UnixMs};

/// What becomes of a task.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Change {
    /// It stays as it is.
    Keep,
    /// It is written over, even if its due time stays the same. Its policy for an existing task is ignored. A task
    /// that runs or has ended with the same due time stays as it is: no arming runs twice.
    Write(Box<NewTask>),
    /// A pending task gets another due time, as by [`Producer::reschedule`](super::Producer::reschedule).
    Move(UnixMs),
    /// It is cancelled, as by [`Producer::cancel`](super::Producer::cancel).
    Cancel,
}

/// Takes rows as they are read. Of many rows, a few are in memory at a time: it keeps what it needs of each.
pub trait See: Send + Sync {
    /// True if it needs the payload of the key at this place. If it does not, that may be `None`.
    fn needs_payload(&self, place: usize) -> bool;

    /// Takes the row of the key at this place; `None` if the key has no row. Called for every key, and again for each if
    /// the transaction has to be repeated.
    fn see(&self, place: usize, row: Option<RowSnapshot>);

    /// Most bytes of the payloads and results of rows that are changed together, before the change and after it. A ledger
    /// that writes one transaction at a time refuses more ([`LedgerError::TooLarge`](super::LedgerError::TooLarge)): others
    /// would wait.
    fn changed_bytes_max(&self) -> u64 {
        u64::MAX
    }
}

/// Returns the change of each task in the order of the keys, given the ledger's time. Every row has been [seen](See).
///
/// May be called more than once, if the transaction has to be repeated: only what the last call returns takes effect.
pub type Decide = dyn Fn(UnixMs) -> Vec<Change> + Send + Sync;

/// What [`Producer::change`](super::Producer::change) did to a task.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Changed {
    /// Nothing.
    Kept,
    /// It has this arming now.
    Armed(Arming),
    /// It is cancelled, or its run is the last.
    Cancelled,
}

/// What is kept of rows, in the order of their keys.
pub struct Seen<S> {
    rows: Mutex<Vec<Option<S>>>,
    count: usize,
}

struct Keeping<S, N, K> {
    seen: Arc<Seen<S>>,
    needs_payload: N,
    keep: K,
    changed_bytes_max: u64,
}

impl<S, N, K> See for Keeping<S, N, K>
where
    S: Send + 'static,
    N: Fn(usize) -> bool + Send + Sync,
    K: Fn(usize, RowSnapshot) -> S + Send + Sync,
{
    fn needs_payload(&self, place: usize) -> bool {
        (self.needs_payload)(place)
    }

    fn see(&self, place: usize, row: Option<RowSnapshot>) {
        self.seen.set(place, row.map(|row| (self.keep)(place, row)));
    }

    fn changed_bytes_max(&self) -> u64 {
        self.changed_bytes_max
    }
}

impl<S: Send + 'static> Seen<S> {
    /// Nothing is seen of this number of keys.
    pub fn of(count: usize) -> Arc<Self> {
        let rows = Mutex::default();
        Arc::new(Self { rows, count })
    }

    /// Keeps of each row what `keep` returns.
    pub fn see<N, K>(self: &Arc<Self>, needs_payload: N, keep: K) -> Arc<dyn See>
    where
        N: Fn(usize) -> bool + Send + Sync + 'static,
        K: Fn(usize, RowSnapshot) -> S + Send + Sync + 'static,
    {
        self.see_within(u64::MAX, needs_payload, keep)
    }

    /// The same, for a change of rows with this number of bytes at most.
    pub fn see_within<N, K>(
        self: &Arc<Self>,
        changed_bytes_max: u64,
        needs_payload: N,
        keep: K,
    ) -> Arc<dyn See>
    where
        N: Fn(usize) -> bool + Send + Sync + 'static,
        K: Fn(usize, RowSnapshot) -> S + Send + Sync + 'static,
    {
        Arc::new(Keeping {
            seen: Arc::clone(self),
            needs_payload,
            keep,
            changed_bytes_max,
        })
    }

    fn set(&self, place: usize, row: Option<S>) {
        let mut rows = self.rows();
        // A transaction that is repeated begins anew.
        rows.resize_with(self.count, || None);
        if let Some(seen) = rows.get_mut(place) {
            *seen = row;
        }
    }

    /// Returns what was kept.
    pub fn take(&self) -> Vec<Option<S>> {
        let mut rows = std::mem::take(&mut *self.rows());
        rows.resize_with(self.count, || None);
        rows
    }

    fn rows(&self) -> MutexGuard<'_, Vec<Option<S>>> {
        self.rows.lock().expect("nothing panics while holding it")
    }
}

/// For changes of a few tasks: whole rows are kept, and `decide` gets them in the order of the keys.
pub fn by_rows<F>(keys: &[TaskKey], decide: F) -> (Arc<dyn See>, Arc<Decide>)
where
    F: Fn(UnixMs, &[Option<RowSnapshot>]) -> Vec<Change> + Send + Sync + 'static,
{
    let seen = Seen::of(keys.len());
    let see = seen.see(|_| true, |_, row| row);
    (see, Arc::new(move |now| decide(now, &seen.take())))
}

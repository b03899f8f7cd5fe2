//! Leased rows that are looked at again when their lease has expired.

use std::collections::{BTreeMap, HashMap};
use std::sync::{Mutex, MutexGuard};
use std::time::Duration;

use tokio::sync::Notify;

use crate::task::UnixMs;

/// Most leases that are watched. Of more, the sweep finds the tasks.
const WATCHED_MAX: usize = 100_000;

/// Most rows that are looked at again at once.
const LOOK_MAX: usize = 4_096;

/// What could not be claimed is looked at again after this.
pub const TRY_AGAIN: Duration = Duration::from_secs(1);

/// Leased rows, in the order of when to look at them again.
#[derive(Debug, Default)]
pub struct LeaseWatch {
    watched: Mutex<BTreeMap<(UnixMs, u64), Look>>,
    changed: Notify,
}

/// Which look at a row it is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Look {
    /// Only the owner of the task takes it up.
    First,
    /// Everybody does.
    Second,
}

impl LeaseWatch {
    /// Looks at these due rows, which could not be claimed, again in a second.
    pub fn look_again(&self, rows: impl IntoIterator<Item = u64>, now: UnixMs) {
        let later = now.plus(TRY_AGAIN);
        self.watch(rows.into_iter().map(|row| (later, row, Look::Second)));
    }

    /// Looks at these rows at these times. Of more than [`WATCHED_MAX`], the sweep finds the tasks.
    pub fn watch(&self, rows: impl IntoIterator<Item = (UnixMs, u64, Look)>) {
        let mut watched = self.watched();
        for (at, row, look) in rows {
            if watched.len() < WATCHED_MAX {
                watched.insert((at, row), look);
            }
        }
        drop(watched);
        self.changed.notify_one();
    }

    /// Waits until rows were added.
    ///
    /// # Cancel safety
    /// Cancel safe.
    pub async fn changed(&self) {
        self.changed.notified().await;
    }

    /// When the next row is to be looked at.
    pub fn next(&self) -> Option<UnixMs> {
        self.watched().keys().next().map(|(at, _)| *at)
    }

    /// Takes the rows whose time has come.
    pub fn take(&self, now: UnixMs) -> HashMap<u64, Look> {
        let mut watched = self.watched();
        let mut taken = HashMap::new();
        while taken.len() < LOOK_MAX
            && let Some(first) = watched.first_entry()
            && first.key().0 <= now
        {
            let ((_, row), look) = first.remove_entry();
            taken.insert(row, look);
        }
        taken
    }

    fn watched(&self) -> MutexGuard<'_, BTreeMap<(UnixMs, u64), Look>> {
        self.watched
            .lock()
            .expect("nothing panics while holding the watched rows")
    }
}

//! Lease watch: leased rows that are checked again when their lease has expired.

use std::collections::{BTreeMap, HashMap};
use std::sync::{Mutex, MutexGuard};
use std::time::Duration;

use tokio::sync::Notify;

use crate::task::UnixMs;

/// Maximum number of watched leases. The sweep finds the tasks of the others.
const WATCHED_MAX: usize = 100_000;

/// Maximum number of rows checked at once.
const CHECKS_MAX: usize = 4_096;

/// Delay before a row that could not be claimed is checked again.
pub const RETRY_AFTER: Duration = Duration::from_secs(1);

/// Leased rows, ordered by the time of their next check.
#[derive(Debug, Default)]
pub struct LeaseWatch {
    watched: Mutex<BTreeMap<(UnixMs, u64), Check>>,
    changed: Notify,
}

/// First or second check of a row.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Check {
    /// Only the owner of the task signals it.
    First,
    /// Every daemon signals it.
    Second,
}

impl LeaseWatch {
    /// Schedules another check, in a second, of due rows that could not be claimed.
    pub fn check_again(&self, rows: impl IntoIterator<Item = u64>, now: UnixMs) {
        let later = now.plus(RETRY_AFTER);
        self.watch(rows.into_iter().map(|row| (later, row, Check::Second)));
    }

    /// Schedules checks of these rows at these times. Beyond [`WATCHED_MAX`] rows, the sweep finds the tasks.
    pub fn watch(&self, rows: impl IntoIterator<Item = (UnixMs, u64, Check)>) {
        let mut watched = self.watched();
        for (at, row, check) in rows {
            if watched.len() < WATCHED_MAX {
                watched.insert((at, row), check);
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

    /// Time of the next check.
    pub fn next(&self) -> Option<UnixMs> {
        self.watched().keys().next().map(|(at, _)| *at)
    }

    /// Takes the rows whose check is due.
    pub fn take(&self, now: UnixMs) -> HashMap<u64, Check> {
        let mut watched = self.watched();
        let mut taken = HashMap::new();
        while taken.len() < CHECKS_MAX
            && let Some(first) = watched.first_entry()
            && first.key().0 <= now
        {
            let ((_, row), check) = first.remove_entry();
            taken.insert(row, check);
        }
        taken
    }

    fn watched(&self) -> MutexGuard<'_, BTreeMap<(UnixMs, u64), Check>> {
        self.watched
            .lock()
            .expect("nothing panics while holding the watched rows")
    }
}

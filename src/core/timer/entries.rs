//! The seam for entries of timers that stay after their due time, until they are removed.

use async_trait::async_trait;

use super::{Alarm, TimerError};
use crate::task::{Removal, TaskKey, UnixMs};

/// The answer to a program's entry, after it was compared with the ledger: see [`Entries::acknowledge`].
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Acknowledgement {
    /// The key.
    pub key: TaskKey,
    /// The due time of the entry, as it was proposed.
    pub requested: UnixMs,
    /// What becomes of the entry.
    pub state: EntryState,
}

/// The state of a task whose entry was compared with the ledger.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum EntryState {
    /// The ledger holds the task. It may start at this time.
    Pending(UnixMs),
    /// The task of this arming has ended: the entry can be removed.
    Ended,
    /// The ledger cannot hold it. The entry stays, and is not proposed again.
    Refused,
    /// Its row changed at about the time at which it was read. If it stays, it is to be proposed again. Only for entries
    /// whose [absence counts](Entries::counts_absence).
    Unclear,
}

/// What became of the entry of a task that is about to start: see [`Entries::take`].
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Taking {
    /// No program can remove it any more, so the task has to start.
    Taken,
    /// A program has removed it: an adopted task must not start.
    Removed(Removal),
    /// A program has moved it to a later time, and the task is about to be moved: it must not start now.
    Moved,
    /// Nothing is known: the row decides.
    Unknown,
}

/// Entries that stay after their due time. A program cancels a task by removing its entry, and requests one by writing one.
///
/// # If we crash right after a call
/// Nothing is lost: an audit finds entries that were not answered or removed.
#[async_trait]
pub trait Entries: Send + Sync + 'static {
    /// True if a missing entry of this task (without a key: of every task) may mean that a program removed it. Adoption
    /// then marks rows whose entry it has seen.
    fn counts_absence(&self, _key: Option<&TaskKey>) -> bool {
        false
    }

    /// True if this task (without a key: every task) has such an entry, and not a key, which expires.
    fn has(&self, _key: Option<&TaskKey>) -> bool {
        true
    }

    /// Takes the entries of tasks that are about to be claimed, so that no program can remove them any more. Their rows
    /// are known: [`Alarm::arming`] is set. Returns what became of each, in order.
    ///
    /// # If we crash right after
    /// An entry stays taken until its task has ended: its absence cancels nothing.
    ///
    /// # Errors
    /// If the server does not answer. The tasks start without it.
    async fn take(&self, alarms: &[Alarm]) -> Result<Vec<Taking>, TimerError> {
        Ok(vec![Taking::Unknown; alarms.len()])
    }

    /// Notes that the entries of these tasks count as [taken](Self::take) for the armings that the alarms have. Each was taken
    /// for an arming due at the time that is given with it, and its task was moved after its signal; or it was missing
    /// (`None`), and its task starts all the same.
    ///
    /// # Errors
    /// If the server does not answer. The absence of such an entry then counts as a removal, if its run fails.
    async fn retake(&self, _entries: &[(Option<UnixMs>, Alarm)]) -> Result<(), TimerError> {
        Ok(())
    }

    /// Writes entries that are missing although no program has removed them. One that is there is left as it is.
    ///
    /// # Errors
    /// If the server does not answer. An audit finds them missing again.
    async fn restore(&self, _lost: &[Alarm]) -> Result<(), TimerError> {
        Ok(())
    }

    /// Answers entries of programs that were proposed as [`Seen::Requested`](super::Seen::Requested), after the ledger has committed. Entries
    /// that a program has changed since are left as they are.
    ///
    /// # Errors
    /// If the server does not answer. The timer proposes these entries again.
    async fn acknowledge(&self, entries: &[Acknowledgement]) -> Result<(), TimerError>;

    /// Removes the entries of tasks that have ended. `due` is when the last run could start; an entry for a later time
    /// is a new arming, and stays.
    ///
    /// # Errors
    /// If the server does not answer. An audit finds the entries: see [`ArmedPage::overdue`](super::ArmedPage::overdue).
    async fn settle(&self, ended: &[Alarm]) -> Result<(), TimerError>;

    /// Reports that an audit, which began at `_began`, has armed every pending task.
    async fn audited(&self, _began: UnixMs) {}
}

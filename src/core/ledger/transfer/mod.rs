//! The seam for moving tasks to another ledger, while producers and daemons use both.
//!
//! A task moves in four steps. Each is one commit in one ledger, and may be repeated:
//!
//! | step | ledger | the row then |
//! |---|---|---|
//! | [`stage`](Transfers::stage) | destination | held |
//! | [`freeze`](Transfers::freeze) | source | held |
//! | [`admit`](Transfers::admit) | destination | pending |
//! | [`give_up`](Transfers::give_up) | source | done |
//!
//! A *held* row has a lease without end, so nothing claims it, and for every other verb it is running: it cannot be
//! rescheduled, it is cancelled when the lease is given back, and a newer arming waits. The owner token of the lease is a
//! function of key and due time. So the task can start in the source until it is frozen, in the destination once it is
//! admitted, and never in both. A held row says all that is needed to continue after a crash:
//!
//! * held in the destination only: not frozen yet. The task is staged again.
//! * held in the source: the destination has it. It is admitted, which changes nothing if it was, and given up.

#[doc(hidden)] // for the command line and the tests
pub mod mover;

use async_trait::async_trait;

pub use super::hold::{GiveUp, HeldTask, MovePlace};
use super::row::Row;
use super::{Ledger, LedgerError};
use crate::task::{TaskKey, UnixMs};

/// A task to move: its whole row, as it was read.
#[derive(Debug, Clone)]
pub struct MovingTask {
    /// All columns.
    pub row: Row,
}

impl MovingTask {
    /// Its key.
    pub fn key(&self) -> &TaskKey {
        &self.row.key
    }

    /// Returns what its rows are held for.
    pub fn held(&self) -> HeldTask {
        HeldTask {
            key: self.row.key.clone(),
            due: self.row.end_time,
        }
    }

    /// True if it has no lease, and no program has deleted it.
    pub fn is_free(&self, now: UnixMs) -> bool {
        !self.row.leased(now) && !self.row.deleted
    }

    /// True if it was staged or frozen, and not yet admitted or given up.
    pub fn is_held(&self) -> bool {
        self.row.is_held()
    }

    /// True if it is leased by a daemon.
    pub fn is_running(&self, now: UnixMs) -> bool {
        self.row.leased(now) && !self.is_held()
    }
}

/// Which rows a page has.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Rows {
    /// Those that are neither done, dead nor cancelled.
    Unfinished,
    /// The others.
    Finished,
}

/// A page of rows.
#[derive(Debug, Clone, Default)]
pub struct MovePage {
    /// Rows whose key is a task key.
    pub tasks: Vec<MovingTask>,
    /// Number of rows that are no tasks: their key cannot be read.
    pub foreign: u64,
    /// `after` of the next page; `None` at the end.
    pub next: Option<MovePlace>,
}

/// Result of [`Transfers::stage`] for one task.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Staged {
    /// The row is written, and held.
    Held,
    /// The destination has this arming, or a newer one. Nothing was written, and the task of the source is obsolete.
    Known,
    /// The destination has an older arming that is running. Nothing was written; try again later.
    Busy,
    /// The destination cannot hold the row. Says why.
    Unfit(String),
}

/// Moves of tasks between ledgers. Called by the [`Mover`](mover::Mover), with at most [`BATCH`](mover::BATCH) tasks.
#[async_trait]
pub trait Transfers: Ledger {
    /// Returns a text that only this ledger has, once it was [checked](Ledger::check). `None` if that is not known.
    fn identity(&self) -> Option<String>;

    /// Reads a page of whole rows.
    async fn whole_rows(
        &self,
        which: Rows,
        after: Option<MovePlace>,
        limit: u32,
    ) -> Result<MovePage, LedgerError>;

    /// Destination: writes rows that are held. Returns the results in the order of `tasks`.
    ///
    /// # If we crash right after
    /// The rows are held. They are staged again, or [unstaged](Self::unstage).
    async fn stage(&self, tasks: &[MovingTask]) -> Result<Vec<Staged>, LedgerError>;

    /// Source: holds those of `tasks` that are free and have not changed since they were read. Returns, in the order of
    /// `tasks`, whether the task is held.
    ///
    /// # If we crash right after
    /// The rows are held, and staged in the destination: to be admitted and given up.
    async fn freeze(&self, tasks: &[MovingTask]) -> Result<Vec<bool>, LedgerError>;

    /// Destination: ends the hold of staged rows, whose tasks are frozen in the source. They are pending, or cancelled if
    /// that was requested meanwhile. So is a row that was created over a held one. Changes no other row: one that is held
    /// for another due time is of another move.
    ///
    /// # If we crash right after
    /// The tasks run in the destination.
    async fn admit(&self, tasks: &[HeldTask]) -> Result<(), LedgerError>;

    /// Destination: cancels staged rows whose tasks are not frozen in the source. A row that was created over a held one
    /// is pending. Changes no other row.
    async fn unstage(&self, tasks: &[HeldTask]) -> Result<(), LedgerError>;

    /// Source: ends frozen tasks. A frozen task that was created again is pending under its new arming. Returns those of
    /// the frozen tasks that were cancelled and are still held.
    async fn give_up(
        &self,
        tasks: &[HeldTask],
        how: GiveUp,
        note: &str,
    ) -> Result<Vec<HeldTask>, LedgerError>;

    /// Destination: writes finished rows whose keys have no row. Returns how many it wrote.
    async fn copy(&self, tasks: &[MovingTask]) -> Result<u64, LedgerError>;
}

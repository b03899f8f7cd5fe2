//! The seam to what is paused and held: kept in the ledger, so that it lasts, and holds for every daemon.

use async_trait::async_trait;

use super::{DuePage, DueScan, LedgerError};
use crate::task::{Pause, Paused, Scope, UnixMs};

/// Most pauses and releases that stand at a time.
pub const PAUSES_MAX: usize = 1_000;

/// Longest reason, in characters.
pub const REASON_CHARS_MAX: usize = 255;

/// Longest name of who paused, in characters. Longer ones are cut.
pub const BY_CHARS_MAX: usize = 128;

/// What [`Pauses::set`] and [`Pauses::hold`] came to.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PauseAnswer {
    /// What stands now: the older one, if there was one.
    pub pause: Pause,
    /// It stood before, and nothing was changed.
    pub already: bool,
}

/// What [`Pauses::release`] came to.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum ReleaseAnswer {
    /// These tasks are held no longer; this was the hold.
    Released(Pause),
    /// They had been let go before.
    Already(Pause),
    /// Nothing is held.
    NoHold,
}

/// The verbs of pausing.
///
/// What they write holds for every daemon that reads it afterwards; nothing is written about the tasks themselves.
#[async_trait]
pub trait Pauses: Send + Sync {
    /// Everything that stands, the oldest first.
    async fn all(&self) -> Result<Vec<Pause>, LedgerError>;

    /// Pauses these tasks: none of them starts until [`lift`](Self::lift). Setting it twice changes nothing.
    ///
    /// # If we crash right after
    /// It stands.
    ///
    /// # Errors
    /// Besides those of every verb, [`LedgerError::Invalid`] for a reason that is too long, or if there are
    /// [`PAUSES_MAX`].
    async fn set(&self, scope: &Scope, by: &str, reason: &str) -> Result<PauseAnswer, LedgerError>;

    /// Lifts the pause of exactly this scope; answers what was lifted, if there was one.
    async fn lift(&self, scope: &Scope) -> Result<Option<Pause>, LedgerError>;

    /// Holds every task whose due time (`end_time`) is before now by the ledger's clock, until it is
    /// [released](Self::release). An older hold is left as it is.
    async fn hold(&self, by: &str, reason: &str) -> Result<PauseAnswer, LedgerError>;

    /// Lets held tasks go. [`Scope::EVERYTHING`] ends the hold.
    async fn release(&self, scope: &Scope, by: &str) -> Result<ReleaseAnswer, LedgerError>;

    /// How many tasks are overdue that were due before this moment; counts no further than `limit`.
    async fn count_overdue(&self, before: UnixMs, limit: u32) -> Result<u64, LedgerError>;

    /// As [`Ledger::scan`](super::Ledger::scan) of what is overdue, without the tasks that `paused` keeps from starting.
    /// However many of those there are, it reads no more than a bounded number of rows: the page may hold fewer than
    /// `limit` and still have a next one.
    async fn scan_unpaused(&self, scan: DueScan, paused: &Paused) -> Result<DuePage, LedgerError>;
}

/// Refuses a reason that would be cut.
pub(super) fn check_reason(reason: &str) -> Result<(), LedgerError> {
    let chars = reason.chars().count();
    if chars > REASON_CHARS_MAX {
        return Err(LedgerError::Invalid(format!(
            "reason has {chars} characters, expected at most {REASON_CHARS_MAX}"
        )));
    }
    Ok(())
}

/// Refuses one more than there may be.
pub(super) fn check_room(pauses: usize) -> Result<(), LedgerError> {
    if pauses >= PAUSES_MAX {
        return Err(LedgerError::Invalid(format!(
            "{pauses} pauses stand, expected fewer than {PAUSES_MAX}: resume some, or pause whole classes"
        )));
    }
    Ok(())
}

/// Who paused, as far as there is room.
pub(super) fn cut_by(by: &str) -> String {
    by.chars().take(BY_CHARS_MAX).collect()
}

//! The seam for pauses and holds. The ledger stores them, so that they last and apply to every daemon.

use async_trait::async_trait;

use super::LedgerError;
use crate::task::{DELAY_MAX, Due, Pause, PauseKind, Scope, UnixMs};

/// Maximum number of pauses, holds and releases.
pub const PAUSES_MAX: usize = 1_000;

/// Maximum length of a reason, in characters.
pub const REASON_CHARS_MAX: usize = 255;

/// Maximum length of the name of who paused, in characters. Longer names are cut.
pub const BY_CHARS_MAX: usize = 128;

/// Result of [`Pauses::pause`] and [`Pauses::hold_overdue`].
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PauseAnswer {
    /// The pause or hold in effect: an older one, if there is one.
    pub pause: Pause,
    /// True if it was in effect before: at most its end was changed.
    pub already: bool,
    /// True if it was in effect before with another end, which was replaced.
    pub end_changed: bool,
}

/// Result of [`Pauses::release`].
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum ReleaseAnswer {
    /// The tasks are released from this hold.
    Released(Pause),
    /// The tasks had been released from this hold before.
    Already(Pause),
    /// There is no hold.
    NoHold,
}

/// Pauses and holds. Called by the command line, by `TaskClient`, and by the pause reader of the engine.
///
/// A change applies to every daemon that reads the pauses afterwards. Nothing is written to the rows of tasks.
#[async_trait]
pub trait Pauses: Send + Sync {
    /// Reads all pauses, holds and releases in effect by the ledger's clock, oldest first. A pause whose end has come is
    /// not among them, so nothing has to be written for it to end.
    async fn pauses(&self) -> Result<Vec<Pause>, LedgerError>;

    /// Pauses these tasks: none of them starts until [`resume`](Self::resume), or until `end` by the ledger's clock. Of a
    /// scope that is paused already, only the end is replaced; `None` removes it.
    ///
    /// # If we crash right after
    /// The tasks are paused.
    ///
    /// # Errors
    /// [`LedgerError::Invalid`] for an end that is not in the future, a reason that is too long, or if there are
    /// [`PAUSES_MAX`].
    async fn pause(
        &self,
        scope: &Scope,
        end: Option<Due>,
        by: &str,
        reason: &str,
    ) -> Result<PauseAnswer, LedgerError>;

    /// Removes the pause of exactly this scope. Returns it, or `None` if there is none.
    async fn resume(&self, scope: &Scope) -> Result<Option<Pause>, LedgerError>;

    /// Holds every task whose due time (`end_time`) is before now by the ledger's clock, until it is
    /// [released](Self::release). Leaves an older hold as it is.
    async fn hold_overdue(&self, by: &str, reason: &str) -> Result<PauseAnswer, LedgerError>;

    /// Releases held tasks. [`Scope::EVERYTHING`] ends the hold.
    async fn release(&self, scope: &Scope, by: &str) -> Result<ReleaseAnswer, LedgerError>;

    /// Counts the overdue tasks that were due before `before`, up to `limit`.
    async fn count_overdue(&self, before: UnixMs, limit: u32) -> Result<u64, LedgerError>;
}

/// Returns the end of a pause. Refuses one that is not in the future, or too far in it. `now` is the ledger's time.
pub fn end_of_pause(end: Option<Due>, now: UnixMs) -> Result<Option<UnixMs>, LedgerError> {
    let Some(end) = end else { return Ok(None) };
    let until = end.resolve(now);
    if until <= now {
        return Err(LedgerError::Invalid(format!(
            "the pause would end at {until}, expected a time after {now}, which it is now on the ledger's clock"
        )));
    }
    if until.since(now) > DELAY_MAX {
        return Err(LedgerError::Invalid(format!(
            "the pause would end at {until}, expected at most 10 years (3650 days) from now: leave the end out"
        )));
    }
    Ok(Some(until))
}

/// Refuses a reason that is too long.
pub fn check_reason(reason: &str) -> Result<(), LedgerError> {
    let chars = reason.chars().count();
    if chars > REASON_CHARS_MAX {
        return Err(LedgerError::Invalid(format!(
            "reason has {chars} characters, expected at most {REASON_CHARS_MAX}"
        )));
    }
    Ok(())
}

/// Refuses a pause if there are [`PAUSES_MAX`].
pub fn check_room(pauses: usize) -> Result<(), LedgerError> {
    if pauses >= PAUSES_MAX {
        return Err(LedgerError::Invalid(format!(
            "there are {pauses} pauses, expected fewer than {PAUSES_MAX}: resume some, or pause whole classes"
        )));
    }
    Ok(())
}

/// Cuts the name of who paused to [`BY_CHARS_MAX`].
pub fn cut_by(by: &str) -> String {
    by.chars().take(BY_CHARS_MAX).collect()
}

/// Reads the kind and the scope of a stored pause. `None` for those that this version does not know.
pub fn kind_and_scope(kind: &str, class: &str, method: &str) -> Option<(PauseKind, Scope)> {
    let kinds = [PauseKind::Pause, PauseKind::Hold, PauseKind::Release];
    let kind = kinds.into_iter().find(|known| known.as_str() == kind)?;
    let scope = match (class, method) {
        ("", "") => Ok(Scope::EVERYTHING),
        (class, "") => Scope::class(class),
        (class, method) => Scope::method(class, method),
    };
    Some((kind, scope.ok()?))
}

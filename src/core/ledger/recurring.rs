//! Establishes recurring tasks: creates a series or changes an existing one, while others do the same.
//!
//! A series is one row. Each decision is based on the row as it was read, and the ledger writes only over that row: of
//! several daemons with the same configuration, one writes, and the others find it written.
//!
//! A row that a configuration wants is marked ([`Recurrence::configured`]) as soon as a daemon sees it. Retention keeps a
//! marked row after the series has ended: without it, the next start would begin the series again.

use super::{LedgerClock, LedgerError, Lookup, NewTask, Producer, RowSnapshot};
use crate::task::{Arming, Recurrence, RecurrenceError, State, UnixMs};

/// Maximum number of attempts. Each may lose to another writer.
const ROUNDS_MAX: u32 = 8;

/// Origin of a request to establish a series.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum DeclaredBy {
    /// A producer. Restarts a finished or cancelled series, and moves a running occurrence.
    Producer,
    /// A configuration, at every start. Leaves a finished or cancelled series alone until the configuration changes, and a
    /// running occurrence until it has ended.
    Configuration,
    /// The same configuration once more, because the series was running. Also leaves one alone that has ended since.
    ConfigurationAgain,
}

/// Result of [`establish`].
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Established {
    /// The series was created, or restarted after it had ended.
    Started(Arming),
    /// The series existed with other settings.
    Changed {
        /// Its arming now.
        arming: Arming,
        /// True if an older arming is running. Its result will be discarded.
        older_run: bool,
    },
    /// The series exists with these settings.
    Unchanged(Arming, State),
    /// The series must be changed, but is running.
    Running(Arming),
    /// The series was finished or cancelled with these settings, and stays so.
    Ended(Arming, State),
}

/// Creates the series of `task`, or changes the existing one. Ignores the due time of `task`.
///
/// Keeps the next occurrence if it fits the recurrence.
///
/// # Errors
/// [`LedgerError::Invalid`] for a missing recurrence, one that is over, or a key without room for the suffix of
/// overlapping occurrences. [`LedgerError::Locked`] if others keep changing the row.
pub async fn establish(
    ledger: &dyn Producer,
    clock: &LedgerClock,
    task: &NewTask,
    declared_by: DeclaredBy,
) -> Result<Established, LedgerError> {
    let invalid = |error: RecurrenceError| LedgerError::Invalid(error.to_string());
    let Some(wanted) = &task.recurrence else {
        return Err(invalid(RecurrenceError::EveryOrCron));
    };
    wanted.check_room(&task.key).map_err(invalid)?;
    for _ in 0..ROUNDS_MAX {
        let now = clock.now();
        let row = ledger.read_row(&task.key).await?;
        let stored = row.as_ref().and_then(RowSnapshot::stored);
        let stored = stored.map(|(_, recurrence)| recurrence);
        let plan = match &row {
            None => Plan::Write { keeps_due: false },
            Some(row) => plan(task, wanted, row, stored.as_ref(), declared_by),
        };
        let lookup = row.as_ref().map(|row| &row.lookup);
        let keeps_due = match (plan, &row) {
            (Plan::Write { keeps_due }, _) => keeps_due,
            (Plan::Leave(left), Some(row)) => return Ok(left.of(&row.lookup)),
            (Plan::Mark, Some(row)) => {
                // Marked or not, the next round decides by the row as it is then.
                ledger.mark_configured(row).await?;
                continue;
            }
            (Plan::Leave(_) | Plan::Mark, None) => {
                unreachable!("only what is there is left alone")
            }
        };
        // A start that this row has begun before does not begin again.
        let has_started = lookup.is_some_and(|lookup| Some(lookup.arming.due) == wanted.start())
            || stored
                .as_ref()
                .is_some_and(|stored| stored.start() == wanted.start());
        let behind = match declared_by {
            DeclaredBy::Producer if !has_started => wanted.starts_after(now),
            _ => now,
        };
        let recurrence = start_recurrence(wanted, stored.as_ref(), declared_by, now);
        let right = lookup
            .map(|lookup| lookup.arming.due)
            .filter(|due| keeps_due && *due > now && recurrence.has(*due));
        let due = right.or_else(|| recurrence.next(behind));
        let due = due.ok_or_else(|| invalid(RecurrenceError::Over))?;
        let task = NewTask {
            due,
            recurrence: Some(recurrence),
            ..task.clone()
        };
        if let Some(arming) = ledger.write_series(&task, row.as_ref()).await? {
            return Ok(match lookup {
                Some(lookup) if !lookup.state.is_finished() => Established::Changed {
                    arming,
                    older_run: lookup.state == State::Running,
                },
                _ => Established::Started(arming),
            });
        }
    }
    Err(LedgerError::Locked {
        message: format!("others keep changing the row of `{}`", task.key),
        source: None,
    })
}

#[derive(Clone, Copy)]
enum Plan {
    Leave(Left),
    /// The settings are the same, but the row is not marked as configured.
    Mark,
    Write {
        keeps_due: bool,
    },
}

#[derive(Clone, Copy)]
enum Left {
    Unchanged,
    Running,
    Ended,
}

impl Left {
    fn of(self, lookup: &Lookup) -> Established {
        let (arming, state) = (lookup.arming, lookup.state);
        match self {
            Self::Unchanged => Established::Unchanged(arming, state),
            Self::Running => Established::Running(arming),
            Self::Ended => Established::Ended(arming, state),
        }
    }
}

fn plan(
    task: &NewTask,
    wanted: &Recurrence,
    row: &RowSnapshot,
    stored: Option<&Recurrence>,
    declared_by: DeclaredBy,
) -> Plan {
    let RowSnapshot {
        lookup,
        recurrence: _,
        contents,
    } = row;
    let is_same =
        stored.is_some_and(|stored| wanted.is_same_as(stored)) && *contents == task.contents;
    let finished = lookup.state.is_finished() || lookup.cancelling;
    let is_marked = stored.is_some_and(Recurrence::is_configured);
    match (is_same, finished, declared_by) {
        (true, _, DeclaredBy::Configuration | DeclaredBy::ConfigurationAgain) if !is_marked => {
            Plan::Mark
        }
        (true, false, _) => Plan::Leave(Left::Unchanged),
        (true, true, DeclaredBy::Configuration) | (_, true, DeclaredBy::ConfigurationAgain) => {
            Plan::Leave(Left::Ended)
        }
        (_, _, DeclaredBy::Configuration | DeclaredBy::ConfigurationAgain)
            if lookup.state == State::Running =>
        {
            Plan::Leave(Left::Running)
        }
        (_, finished, _) => Plan::Write {
            keeps_due: !finished && lookup.state != State::Running,
        },
    }
}

/// Returns the recurrence to store: with the start of the stored one, or starting now. A configuration has no now: its
/// periods count from the epoch, so that every daemon finds the same occurrences.
fn start_recurrence(
    wanted: &Recurrence,
    stored: Option<&Recurrence>,
    declared_by: DeclaredBy,
    now: UnixMs,
) -> Recurrence {
    let wanted = match stored {
        Some(stored) => wanted.clone().starting_like(stored),
        None => wanted.clone(),
    };
    match declared_by {
        DeclaredBy::Producer if stored.is_some_and(Recurrence::is_configured) => {
            wanted.anchored(now).configured()
        }
        DeclaredBy::Producer => wanted.anchored(now),
        DeclaredBy::Configuration | DeclaredBy::ConfigurationAgain => wanted.configured(),
    }
}

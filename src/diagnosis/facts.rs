//! Facts: what is known of an installation at one time.

use std::time::Duration;

use super::WhyCause;
use crate::ledger::{ClockStep, Stats};
use crate::task::UnixMs;
use crate::telemetry::history::{LatenessPercentiles, PerSource};

/// What is known of an installation at one time, by one of those who judge it. What it does not know is left empty, and no
/// condition holds by it.
#[derive(Debug, Clone, Default)]
pub struct Facts {
    /// Whether the ledger answers.
    pub ledger: LedgerState,
    /// True if expiry events arrive; `None` for a timer without a server.
    pub is_listening: Option<bool>,
    /// True if a bare `SETEX` is adopted by its events.
    pub hears_keys: bool,
    /// By how much the ledger's clock was set, if it was lately.
    pub clock_step: Option<ClockStep>,
    /// True if this daemon stops.
    pub is_stopping: bool,
    /// The time in which the following were counted.
    pub window: Duration,
    /// Tasks that started, by the source of their signal.
    pub started: PerSource<u64>,
    /// Tasks and occurrences that died.
    pub died: u64,
    /// Keys that were armed again, since the timer had lost them.
    pub keys_lost: u64,
    /// Adopted tasks that were cancelled many at once.
    pub cancelled_by_key: u64,
    /// How late tasks started, and in which time.
    pub late: Option<(LatenessPercentiles, Duration)>,
    /// How long the oldest overdue task that is neither paused nor held has waited.
    pub overdue: Option<Duration>,
    /// Which tasks are overdue, by the reason why they do not start.
    pub blocked: Vec<Blocked>,
    /// Tasks by state.
    pub counts: Option<Stats>,
    /// Names of the daemons that have ended without deregistering, and whose place no other has taken.
    pub lost_daemons: Vec<String>,
    /// The time since a sentinel was heard, and the time between the expiries of two.
    pub sentinel: Option<(Duration, Duration)>,
    /// True while retention deletes fewer rows than pass their age.
    pub retention_behind: bool,
    /// Number of pauses.
    pub pauses: u64,
    /// True if everything is paused.
    pub all_paused: bool,
    /// True if old overdue tasks are held for review.
    pub has_hold: bool,
    /// Background tasks whose latest pass failed, and its error.
    pub failing: Vec<(&'static str, String)>,
}

/// Whether the ledger answers.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub enum LedgerState {
    /// It does.
    #[default]
    Answers,
    /// It has not been asked, or has not answered yet.
    Unread,
    /// It does not.
    Fails {
        /// The latest failure.
        why: String,
        /// Since when, if that is known.
        since: Option<UnixMs>,
    },
}

impl LedgerState {
    /// What a daemon knows: whether the ledger answers, else its latest failure, and since when it fails.
    pub fn of(answers: bool, failure: Option<String>, since: Option<UnixMs>) -> Self {
        match (answers, failure) {
            (true, _) => Self::Answers,
            (false, None) => Self::Unread,
            (false, Some(why)) => Self::Fails { why, since },
        }
    }
}

/// Overdue tasks that do not start for one reason.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Blocked {
    /// The `Class@method` with the most of them.
    pub name: String,
    /// Why they do not start.
    pub cause: WhyCause,
    /// How many they are.
    pub tasks: u64,
    /// How long the oldest of them has been overdue, in milliseconds.
    pub ms_max: u64,
    /// True if they are of more than one class and method.
    pub is_of_several: bool,
}

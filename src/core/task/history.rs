//! The history of a task: attempts that failed, and why the task is dead.

use std::fmt;
use std::str::FromStr;

use serde::{Deserialize, Deserializer, Serialize, Serializer};

use super::{UnixMs, quoted};

/// Most entries kept for a task, the newest.
pub const HISTORY_MAX: usize = 10;

/// Longest error text of an entry, in bytes. The latest error is kept at greater length in its own column.
pub const HISTORY_ERROR_BYTES_MAX: usize = 500;

/// Why a task is dead.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
#[non_exhaustive]
pub enum Reason {
    /// Its handler returned a permanent error.
    Permanent,
    /// Its last attempt failed.
    Exhausted,
    /// The next attempt would have started after the deadline.
    Deadline,
    /// Too many leases expired during its runs.
    Poison,
    /// It would have started later than `expire_after` allows.
    Expired,
}

impl Reason {
    /// Every reason.
    pub const ALL: [Self; 5] = [
        Self::Permanent,
        Self::Exhausted,
        Self::Deadline,
        Self::Poison,
        Self::Expired,
    ];

    /// Name in SQL, metrics and pages.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Permanent => "permanent",
            Self::Exhausted => "exhausted",
            Self::Deadline => "deadline",
            Self::Poison => "poison",
            Self::Expired => "expired",
        }
    }

    /// True if the last claim of the task did not run it.
    pub fn is_without_run(self) -> bool {
        match self {
            Self::Poison | Self::Expired => true,
            Self::Permanent | Self::Exhausted | Self::Deadline => false,
        }
    }
}

impl fmt::Display for Reason {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self.as_str())
    }
}

/// The error for an unknown [`Reason`].
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("`{}` is not a reason, expected `permanent`, `exhausted`, `deadline`, `poison` or `expired`", quoted(.0))]
pub struct UnknownReason(String);

impl FromStr for Reason {
    type Err = UnknownReason;

    fn from_str(word: &str) -> Result<Self, UnknownReason> {
        let mut all = Self::ALL.into_iter();
        all.find(|reason| reason.as_str() == word)
            .ok_or_else(|| UnknownReason(word.to_owned()))
    }
}

/// How an attempt ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
#[non_exhaustive]
pub enum How {
    /// The handler returned an error.
    Failed,
    /// It exceeded its timeout.
    TimedOut,
    /// It panicked.
    Panicked,
    /// Not run: too many leases had expired.
    Poisoned,
    /// Not run: it was too late.
    Expired,
    /// Not a failure: the handler postponed the task.
    Snoozed,
}

impl How {
    /// True if the handler was called.
    pub fn was_run(self) -> bool {
        match self {
            Self::Failed | Self::TimedOut | Self::Panicked | Self::Snoozed => true,
            Self::Poisoned | Self::Expired => false,
        }
    }

    /// Name in the history and in metrics.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Failed => "failed",
            Self::TimedOut => "timed_out",
            Self::Panicked => "panicked",
            Self::Poisoned => "poisoned",
            Self::Expired => "expired",
            Self::Snoozed => "snoozed",
        }
    }
}

/// An entry of a task's history: an attempt that did not succeed.
///
/// A run whose daemon died writes no entry. The next entry counts it in `crashes`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct AttemptError {
    /// How it ended. The first field, because the ledger recognizes a snooze by the beginning of its entry.
    pub how: How,
    /// Number of runs started, from 1. Claims without a run are not counted.
    pub attempt: u16,
    /// When its run started, on the ledger's clock. `None` of one that was not run, and in entries of earlier versions.
    #[serde(
        default,
        skip_serializing_if = "Option::is_none",
        serialize_with = "show_time_option",
        deserialize_with = "read_time_option"
    )]
    pub started: Option<UnixMs>,
    /// When it ended, on the ledger's clock.
    #[serde(serialize_with = "show_time", deserialize_with = "read_time")]
    pub at: UnixMs,
    /// The error message.
    pub error: String,
    /// The daemon that ran it.
    pub daemon: String,
    /// Leases that expired since the previous entry.
    #[serde(default, skip_serializing_if = "is_zero")]
    pub crashes: u8,
    /// Number of snoozes in a row, which share one entry.
    #[serde(default, skip_serializing_if = "is_zero")]
    pub snoozes: u16,
}

impl AttemptError {
    /// Encodes the entry as a line of JSON. Truncates its error to [`HISTORY_ERROR_BYTES_MAX`].
    pub fn to_line(&self) -> String {
        let cut = self.error.floor_char_boundary(HISTORY_ERROR_BYTES_MAX);
        let short = Self {
            error: self.error[..cut].to_owned(),
            daemon: self.daemon.clone(),
            ..*self
        };
        serde_json::to_string(&short).expect("text and numbers are JSON")
    }

    /// Parses a history, one entry on each line. Skips invalid lines, because any client can write to the table.
    pub fn read_lines(text: &str) -> Vec<Self> {
        let entries = text.lines().map(serde_json::from_str);
        entries.filter_map(Result::ok).collect()
    }
}

/// Prepends an entry, as the ledger does. Consecutive snoozes share one entry.
pub fn prepend(attempt_error: &AttemptError, history: &mut Vec<AttemptError>) {
    let one_of_many = attempt_error.how == How::Snoozed
        && history
            .first()
            .is_some_and(|latest| latest.how == How::Snoozed);
    if one_of_many {
        history.remove(0);
    }
    let entry = AttemptError::read_lines(&attempt_error.to_line());
    history.splice(0..0, entry);
    history.truncate(HISTORY_MAX);
}

fn is_zero<T: Default + PartialEq>(count: &T) -> bool {
    *count == T::default()
}

fn show_time<S: Serializer>(at: &UnixMs, serializer: S) -> Result<S::Ok, S::Error> {
    serializer.collect_str(at)
}

fn show_time_option<S: Serializer>(at: &Option<UnixMs>, serializer: S) -> Result<S::Ok, S::Error> {
    match at {
        Some(at) => serializer.collect_str(at),
        None => serializer.serialize_none(),
    }
}

fn read_time_option<'de, D: Deserializer<'de>>(
    deserializer: D,
) -> Result<Option<UnixMs>, D::Error> {
    let at = Option::<jiff::Timestamp>::deserialize(deserializer)?;
    Ok(at.map(|at| UnixMs(at.as_millisecond())))
}

fn read_time<'de, D: Deserializer<'de>>(deserializer: D) -> Result<UnixMs, D::Error> {
    let at = jiff::Timestamp::deserialize(deserializer)?;
    Ok(UnixMs(at.as_millisecond()))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn attempt_error(how: How, attempt: u16) -> AttemptError {
        AttemptError {
            how,
            attempt,
            started: Some(UnixMs(1_795_291_199_000)),
            at: UnixMs(1_795_291_200_250),
            error: "a\nb".into(),
            daemon: "host:1".into(),
            crashes: 0,
            snoozes: u16::from(how == How::Snoozed),
        }
    }

    #[test]
    fn an_entry_is_one_line_and_is_read_back_unchanged() {
        let entry = attempt_error(How::TimedOut, 2);
        let line = entry.to_line();
        assert_eq!(
            line,
            r#"{"how":"timed_out","attempt":2,"started":"2026-11-21T19:59:59.000Z","at":"2026-11-21T20:00:00.250Z","error":"a\nb","daemon":"host:1"}"#
        );
        assert_eq!(
            AttemptError::read_lines(&format!("{line}\nrubbish")),
            [entry]
        );
        // Of an earlier version.
        let older = line.replace(r#""started":"2026-11-21T19:59:59.000Z","#, "");
        assert_eq!(AttemptError::read_lines(&older)[0].started, None);
    }

    #[test]
    fn a_snooze_is_recognized_by_the_beginning_of_its_entry() {
        let line = attempt_error(How::Snoozed, 1).to_line();
        assert!(line.starts_with(r#"{"how":"snoozed","#), "{line}");
    }

    #[test]
    fn only_the_newest_entries_are_kept_and_consecutive_snoozes_share_one() {
        let mut history = Vec::new();
        for attempt in 1..=12 {
            prepend(&attempt_error(How::Failed, attempt), &mut history);
        }
        assert_eq!(history.len(), HISTORY_MAX);
        assert_eq!((history[0].attempt, history[9].attempt), (12, 3));
        prepend(&attempt_error(How::Snoozed, 13), &mut history);
        prepend(&attempt_error(How::Snoozed, 13), &mut history);
        assert_eq!(
            (history[0].how, history[1].how),
            (How::Snoozed, How::Failed)
        );
    }

    #[test]
    fn every_reason_is_parsed_from_its_name() {
        for reason in Reason::ALL {
            assert_eq!(reason.as_str().parse(), Ok(reason));
        }
        assert_eq!(
            "bad".parse::<Reason>().unwrap_err().to_string(),
            "`bad` is not a reason, expected `permanent`, `exhausted`, `deadline`, `poison` or `expired`"
        );
    }

    #[test]
    fn reasons_and_ends_of_attempts_have_names() {
        for (how, name, was_run) in [
            (How::Failed, "failed", true),
            (How::TimedOut, "timed_out", true),
            (How::Panicked, "panicked", true),
            (How::Snoozed, "snoozed", true),
            (How::Poisoned, "poisoned", false),
            (How::Expired, "expired", false),
        ] {
            assert_eq!((how.as_str(), how.was_run()), (name, was_run));
            let stored = serde_json::to_value(how).unwrap();
            assert_eq!(stored, name, "the ledger has the same name");
        }
        for reason in Reason::ALL {
            assert_eq!(reason.to_string(), reason.as_str());
            assert_eq!(reason.as_str().parse(), Ok(reason));
        }
        assert_eq!(format!("{:>9}|", Reason::Expired), "  expired|");
    }
}

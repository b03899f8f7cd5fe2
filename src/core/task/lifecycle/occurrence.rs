//! How an occurrence of a recurring task ended.

use std::fmt;
use std::str::FromStr;

use super::Death;
use crate::task::{Reason, UnixMs, quoted};

/// How an occurrence of a recurring task ended, for its verdict.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum OccurrenceEnd {
    /// Its run succeeded.
    Succeeded,
    /// It failed for good.
    Failed(Death),
    /// It became a separate task.
    HandedOn,
    /// It was missed, or a snooze gave way to the next occurrence.
    Skipped,
}

impl OccurrenceEnd {
    /// True if it ended by a run: error and result of the series are those of this occurrence.
    pub fn was_run(&self) -> bool {
        match self {
            Self::Succeeded | Self::Failed(_) => true,
            Self::HandedOn | Self::Skipped => false,
        }
    }

    /// Returns why it failed for good, if it did.
    pub fn death(&self) -> Option<&Death> {
        match self {
            Self::Failed(death) => Some(death),
            Self::Succeeded | Self::HandedOn | Self::Skipped => None,
        }
    }
}

/// An occurrence that has ended, as the row of its series states it.
///
/// The text form, which is stored, is a word and the due time in milliseconds. The word of a failed occurrence is its
/// reason. [`FromStr`] and [`Display`](fmt::Display) are inverse.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct EndedOccurrence {
    /// When it was due.
    pub due: UnixMs,
    /// How it ended.
    pub outcome: OccurrenceOutcome,
}

/// How an occurrence ended, without its error.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum OccurrenceOutcome {
    /// Its run succeeded.
    Succeeded,
    /// It failed for good, for this reason.
    Failed(Reason),
    /// It became a separate task.
    HandedOn,
    /// It was not run to its end.
    Skipped,
}

impl OccurrenceOutcome {
    /// Name in the API and on pages.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Succeeded => "succeeded",
            Self::Failed(_) => "failed",
            Self::HandedOn => "handed_on",
            Self::Skipped => "skipped",
        }
    }
}

impl fmt::Display for OccurrenceOutcome {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self.as_str())
    }
}

impl EndedOccurrence {
    /// The occurrence that was due then, and ended like this.
    pub fn new(due: UnixMs, end: &OccurrenceEnd) -> Self {
        let outcome = match end {
            OccurrenceEnd::Succeeded => OccurrenceOutcome::Succeeded,
            OccurrenceEnd::Failed(death) => OccurrenceOutcome::Failed(death.reason),
            OccurrenceEnd::HandedOn => OccurrenceOutcome::HandedOn,
            OccurrenceEnd::Skipped => OccurrenceOutcome::Skipped,
        };
        Self { due, outcome }
    }
}

impl fmt::Display for EndedOccurrence {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let word = match self.outcome {
            OccurrenceOutcome::Failed(reason) => reason.as_str(),
            outcome => outcome.as_str(),
        };
        write!(f, "{word} {}", self.due.0)
    }
}

/// The error for a text that is not an [`EndedOccurrence`].
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("`{}` is not an ended occurrence, expected a word and a due time in milliseconds", quoted(.0))]
pub struct NotAnOccurrence(String);

impl FromStr for EndedOccurrence {
    type Err = NotAnOccurrence;

    fn from_str(text: &str) -> Result<Self, NotAnOccurrence> {
        let parse = || {
            let (word, due) = text.split_once(' ')?;
            let outcome = match word {
                "succeeded" => OccurrenceOutcome::Succeeded,
                "handed_on" => OccurrenceOutcome::HandedOn,
                "skipped" => OccurrenceOutcome::Skipped,
                reason => OccurrenceOutcome::Failed(reason.parse().ok()?),
            };
            let due = UnixMs(due.parse().ok()?);
            Some(Self { due, outcome })
        };
        parse().ok_or_else(|| NotAnOccurrence(text.to_owned()))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_text_of_an_ended_occurrence_is_read_back_and_fits_its_column() {
        const COLUMN_CHARS: usize = 32;
        let failed = Reason::ALL.map(OccurrenceOutcome::Failed);
        let others = [
            OccurrenceOutcome::Succeeded,
            OccurrenceOutcome::HandedOn,
            OccurrenceOutcome::Skipped,
        ];
        for outcome in failed.into_iter().chain(others) {
            let ended = EndedOccurrence {
                due: UnixMs(9_999_999_999_999),
                outcome,
            };
            let text = ended.to_string();
            assert_eq!(text.parse(), Ok(ended));
            assert!(text.len() <= COLUMN_CHARS, "{text}");
            assert!(text.parse::<Reason>().is_err(), "an earlier version");
        }
        for other in ["", "exhausted", "succeeded", "succeeded x", "unknown 1"] {
            assert!(other.parse::<EndedOccurrence>().is_err(), "{other}");
        }
    }
}

//! How a worker says that its run ended.

use std::time::Duration;

use serde::de::IgnoredAny;

use super::PullError;
use crate::task::{ERROR_BYTES_MAX, Failure, Outcome, RESULT_BYTES_MAX, RetryAdvice};

/// How a run ended, as its worker reports it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Report {
    /// It succeeded. A result is JSON.
    Done {
        /// Stored with the task.
        result: Option<String>,
    },
    /// It failed.
    Failed {
        /// For people.
        error: String,
        /// Whether and when to try again.
        advice: RetryAdvice,
    },
    /// To be given out again after a delay. Not a failure.
    Snoozed(Duration),
    /// Given back unused: no attempt is counted.
    Released,
}

impl Report {
    pub(super) fn into_outcome(self) -> Result<(Outcome, Option<String>), PullError> {
        Ok(match self {
            Self::Done { result } => {
                let is_fit = |json: &String| {
                    json.len() <= RESULT_BYTES_MAX
                        && serde_json::from_str::<IgnoredAny>(json).is_ok()
                };
                if !result.as_ref().is_none_or(is_fit) {
                    return Err(PullError::Result);
                }
                (Outcome::Succeeded, result)
            }
            Self::Failed { mut error, advice } => {
                // Any text that a worker sends is logged.
                error.truncate(error.floor_char_boundary(ERROR_BYTES_MAX));
                let failure = Failure {
                    message: error,
                    advice,
                };
                (Outcome::Failed(failure), None)
            }
            Self::Snoozed(delay) => (Outcome::Snoozed { delay }, None),
            Self::Released => (Outcome::Interrupted, None),
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_error_of_a_worker_is_cut() {
        let report = Report::Failed {
            error: "é".repeat(ERROR_BYTES_MAX),
            advice: RetryAdvice::Never,
        };
        let Ok((Outcome::Failed(failure), None)) = report.into_outcome() else {
            panic!("it is a failure");
        };
        assert_eq!(failure.message, "é".repeat(ERROR_BYTES_MAX / 2));
    }
}

//! The error of a handler: why a run failed, and whether the task is tried again.

use std::fmt;
use std::time::Duration;

use crate::format::duration;
use crate::task::{Failure, Outcome, RetryAdvice, with_causes};

/// Why a run failed, and whether the task is tried again. Any error converts into one that is tried again by the retry
/// policy, so `?` works.
///
/// It is not itself a [`std::error::Error`], which makes that conversion possible.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct HandlerError {
    message: String,
    advice: RetryAdvice,
    snooze: Option<Duration>,
    fenced: bool,
}

impl HandlerError {
    /// An error after which the retry policy of the route decides.
    pub fn new(message: impl Into<String>) -> Self {
        Self {
            message: message.into(),
            advice: RetryAdvice::ByPolicy,
            snooze: None,
            fenced: false,
        }
    }

    /// An error after which the task is not tried again: it is dead, and can be redriven.
    pub fn permanent(message: impl Into<String>) -> Self {
        Self {
            advice: RetryAdvice::Never,
            ..Self::new(message)
        }
    }

    /// An error after which the task is tried again after `delay`, if an attempt is left.
    pub fn retry_after(message: impl Into<String>, delay: Duration) -> Self {
        Self {
            advice: RetryAdvice::After(delay),
            ..Self::new(message)
        }
    }

    /// Not a failure: the task runs again after `delay`. This is neither counted as an attempt nor logged as an error. For
    /// work that has to wait: for a shipment that has not arrived, or a provider under maintenance.
    ///
    /// More than [`SNOOZES_MAX`](crate::task::SNOOZES_MAX) snoozes in a row count as a failed attempt. The history of the
    /// task has their number, and the deadline of the retry policy applies.
    ///
    /// ```
    /// use std::time::Duration;
    /// use lapsed::HandlerError;
    ///
    /// # fn has_arrived(_: u64) -> bool { false }
    /// async fn remind(parcel: u64) -> Result<(), HandlerError> {
    ///     if !has_arrived(parcel) {
    ///         return Err(HandlerError::snooze(Duration::from_secs(600)));
    ///     }
    ///     Ok(())
    /// }
    /// ```
    pub fn snooze(delay: Duration) -> Self {
        Self {
            snooze: Some(delay),
            ..Self::new(format!("snoozed for {}", duration(delay)))
        }
    }

    /// The claim is lost: another run has the task, and nothing was written.
    pub fn fenced() -> Self {
        Self {
            fenced: true,
            ..Self::new("fenced: the claim is no longer ours, everything was rolled back")
        }
    }

    /// True for [`HandlerError::fenced`].
    pub fn is_fenced(&self) -> bool {
        self.fenced
    }

    pub(crate) fn into_outcome(self) -> Outcome {
        let Self {
            message,
            advice,
            snooze,
            fenced: _,
        } = self;
        match snooze {
            Some(delay) => Outcome::Snoozed { delay },
            None => Outcome::Failed(Failure { message, advice }),
        }
    }
}

impl fmt::Display for HandlerError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.message)
    }
}

impl<E: std::error::Error> From<E> for HandlerError {
    /// The message has the error and its sources, separated by colons.
    fn from(error: E) -> Self {
        Self::new(with_causes(&error))
    }
}

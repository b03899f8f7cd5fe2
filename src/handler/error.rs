//! How a handler says that it failed, and whether trying again can help.

use std::fmt;
use std::time::Duration;

use crate::task::{Failure, Outcome, RetryAdvice, spoken};

/// Why a run failed. Any error converts into one that is tried again by the retry policy, so `?` works.
///
/// Not itself a [`std::error::Error`], which is what makes that conversion possible.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct HandlerError {
    message: String,
    advice: RetryAdvice,
    snooze: Option<Duration>,
    fenced: bool,
}

impl HandlerError {
    /// Tried again as the route's retry policy says.
    pub fn new(message: impl Into<String>) -> Self {
        Self {
            message: message.into(),
            advice: RetryAdvice::ByPolicy,
            snooze: None,
            fenced: false,
        }
    }

    /// Never tried again: the task is dead, and can be redriven by hand.
    pub fn permanent(message: impl Into<String>) -> Self {
        Self {
            advice: RetryAdvice::Never,
            ..Self::new(message)
        }
    }

    /// Tried again after `delay`, if any attempt is left.
    pub fn retry_after(message: impl Into<String>, delay: Duration) -> Self {
        Self {
            advice: RetryAdvice::After(delay),
            ..Self::new(message)
        }
    }

    /// Not a failure: called again after `delay`, and neither counted as an attempt nor logged as an error. For work
    /// that has to wait for something else: a shipment that is not there yet, a provider under maintenance.
    ///
    /// A task cannot hide in this for ever: beyond [`SNOOZES_MAX`](crate::task::SNOOZES_MAX) times in a row it counts
    /// as a failed attempt, the count is in its history, and the deadline of its retry policy ends it.
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
            ..Self::new(format!("snoozed for {}", spoken(delay)))
        }
    }

    /// The claim is no longer this run's: somebody else has the task, and nothing was written.
    pub fn fenced() -> Self {
        Self {
            fenced: true,
            ..Self::new("fenced: the claim is no longer ours, everything was rolled back")
        }
    }

    /// Whether this is [`HandlerError::fenced`].
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
    /// The error and its sources, one after the other.
    fn from(error: E) -> Self {
        let mut message = error.to_string();
        let mut source = error.source();
        while let Some(error) = source {
            let text = error.to_string();
            if !message.ends_with(&text) {
                message.push_str(": ");
                message.push_str(&text);
            }
            source = error.source();
        }
        Self::new(message)
    }
}

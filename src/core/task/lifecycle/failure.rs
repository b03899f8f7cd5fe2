//! A failed run, as its handler reports it.

use std::time::Duration;

/// A handler's error.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Failure {
    /// The message for people.
    pub message: String,
    /// The handler's advice on retrying.
    pub advice: RetryAdvice,
}

/// A handler's advice on retrying.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum RetryAdvice {
    /// The retry policy decides.
    ByPolicy,
    /// Retry after this delay, if any attempt is left.
    After(Duration),
    /// Do not retry.
    Never,
}

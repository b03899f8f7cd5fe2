//! Errors of timers.

/// Error of a timer.
#[derive(Debug, thiserror::Error)]
#[error("{message}")]
pub struct TimerError {
    message: String,
    transient: bool,
    #[source]
    source: Option<Box<dyn std::error::Error + Send + Sync>>,
}

impl TimerError {
    /// Creates a transient error that keeps its cause.
    pub fn new(
        message: impl Into<String>,
        source: impl Into<Box<dyn std::error::Error + Send + Sync>>,
    ) -> Self {
        Self {
            message: message.into(),
            transient: true,
            source: Some(source.into()),
        }
    }

    /// Marks the error as permanent until an operator acts.
    #[must_use]
    pub fn lasting(self) -> Self {
        Self {
            transient: false,
            ..self
        }
    }

    /// True if the same call may succeed later.
    pub fn is_transient(&self) -> bool {
        self.transient
    }
}

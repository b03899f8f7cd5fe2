//! Why the ledger could not do what it was asked.

use std::sync::Arc;

/// Why the ledger could not do what it was asked.
#[derive(Debug, Clone, thiserror::Error)]
#[non_exhaustive]
pub enum LedgerError {
    /// It did not answer in time, or the connection broke. The statement may or may not have acted.
    #[error("ledger did not answer: {message}")]
    Unavailable {
        /// What happened.
        message: String,
        /// The driver's error.
        #[source]
        source: Option<Arc<dyn std::error::Error + Send + Sync>>,
    },
    /// Another session held a row's lock for longer than it was waited for.
    #[error("a row is locked by another session: {message}")]
    Locked {
        /// What it said.
        message: String,
        /// The driver's error.
        #[source]
        source: Option<Arc<dyn std::error::Error + Send + Sync>>,
    },
    /// It answered with an error.
    #[error("ledger refused: {message}")]
    Refused {
        /// What it said, and what to do about it.
        message: String,
        /// The driver's error.
        #[source]
        source: Option<Arc<dyn std::error::Error + Send + Sync>>,
    },
    /// It answered with an error about the data that it was given: the same data is refused again.
    #[error("ledger cannot take the data: {message}")]
    Unfit {
        /// What it said.
        message: String,
        /// The driver's error.
        #[source]
        source: Option<Arc<dyn std::error::Error + Send + Sync>>,
    },
    /// A task cannot be written as it is.
    #[error("{0}")]
    Invalid(String),
}

impl LedgerError {
    /// Whether the same call may succeed later, unchanged.
    pub fn is_transient(&self) -> bool {
        match self {
            Self::Unavailable { .. } | Self::Locked { .. } => true,
            Self::Refused { .. } | Self::Unfit { .. } | Self::Invalid(_) => false,
        }
    }

    /// Whether the data itself is refused. Every other error may pass, however long that takes: a table that was renamed
    /// for a moment, a full disk, a right that is granted again.
    pub fn is_about_data(&self) -> bool {
        matches!(self, Self::Unfit { .. } | Self::Invalid(_))
    }

    /// Whether one row of many may be the reason: the others might have gone through.
    pub fn is_about_a_row(&self) -> bool {
        !matches!(self, Self::Unavailable { .. })
    }
}

//! Errors of the ledger.

use std::sync::Arc;

/// Error of a ledger call.
#[derive(Debug, Clone, thiserror::Error)]
#[non_exhaustive]
pub enum LedgerError {
    /// The ledger did not answer in time, or the connection broke. The statement may or may not have taken effect.
    #[error("ledger did not answer: {message}")]
    Unavailable {
        /// What happened.
        message: String,
        /// The driver's error.
        #[source]
        source: Option<Arc<dyn std::error::Error + Send + Sync>>,
    },
    /// Another session held the lock of a row for longer than the call waits.
    #[error("a row is locked by another session: {message}")]
    Locked {
        /// The server's message.
        message: String,
        /// The driver's error.
        #[source]
        source: Option<Arc<dyn std::error::Error + Send + Sync>>,
    },
    /// The server refused the statement.
    #[error("ledger refused: {message}")]
    Refused {
        /// The server's message, and what to do about it.
        message: String,
        /// The driver's error.
        #[source]
        source: Option<Arc<dyn std::error::Error + Send + Sync>>,
    },
    /// The server refused the data. It refuses the same data again.
    #[error("ledger cannot take the data: {message}")]
    Unfit {
        /// The server's message.
        message: String,
        /// The driver's error.
        #[source]
        source: Option<Arc<dyn std::error::Error + Send + Sync>>,
    },
    /// The rows that a transaction would change are larger than its caller allows. Nothing is changed.
    #[error("the tasks that are changed together have {bytes} bytes, expected at most {most}")]
    TooLarge {
        /// Bytes of their payloads and results, before the change and after it.
        bytes: u64,
        /// How many the caller allows.
        most: u64,
    },
    /// The request is invalid.
    #[error("{0}")]
    Invalid(String),
}

impl LedgerError {
    /// True if the same call may succeed later.
    pub fn is_transient(&self) -> bool {
        match self {
            Self::Unavailable { .. } | Self::Locked { .. } => true,
            Self::Refused { .. }
            | Self::Unfit { .. }
            | Self::TooLarge { .. }
            | Self::Invalid(_) => false,
        }
    }

    /// True if the data itself is refused. Every other error may pass in time: a renamed table, a full disk, a missing
    /// privilege.
    pub fn is_about_data(&self) -> bool {
        matches!(
            self,
            Self::Unfit { .. } | Self::TooLarge { .. } | Self::Invalid(_)
        )
    }

    /// True if one row of a batch may be the reason, so that the others might succeed without it.
    pub fn is_about_a_row(&self) -> bool {
        !matches!(self, Self::Unavailable { .. })
    }
}

//! The seam to whoever says how many tasks of a route may start now, over all daemons.
//!
//! A limiter counts starts and nothing else: it knows no task and no ledger. What it grants may be lost (a claim that
//! another daemon won, a daemon that dies), so that a little less than the rate may start, but never more.

#[cfg(feature = "mysql")]
pub mod ledger_limiter;
mod memory;
pub mod redis_limiter;

use async_trait::async_trait;

pub use self::memory::MemoryLimiter;
use crate::task::{Grant, Rate};

/// Grants starts.
///
/// # If we crash right after a call
/// What was granted is lost, and the bucket fills again at its rate.
#[async_trait]
pub trait RateLimiter: Send + Sync + std::fmt::Debug + 'static {
    /// Takes at most so many starts of this route. Answers within the time that its kind allows itself, or fails.
    ///
    /// # Errors
    /// When whoever counts does not answer; the starts may be taken.
    async fn take(&self, route: &str, rate: Rate, wanted: u32) -> Result<Grant, LimiterError>;
}

/// Why starts could not be asked for.
#[derive(Debug, thiserror::Error)]
#[error("{message}")]
pub struct LimiterError {
    message: &'static str,
    #[source]
    source: Option<Box<dyn std::error::Error + Send + Sync>>,
}

impl LimiterError {
    /// An error with its cause kept.
    pub fn new(
        message: &'static str,
        source: impl Into<Box<dyn std::error::Error + Send + Sync>>,
    ) -> Self {
        Self {
            message,
            source: Some(source.into()),
        }
    }

    /// No answer within the time it may take.
    pub fn silence() -> Self {
        Self {
            message: "no answer in time",
            source: None,
        }
    }
}

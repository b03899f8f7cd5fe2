//! The seam to rate limiters: how many tasks of a route may start now, over all daemons.
//!
//! A limiter counts starts and nothing else. It knows no tasks and no ledger. Granted starts may be lost (another
//! daemon wins the claim, a daemon dies), so slightly fewer tasks than the rate may start, never more.

#[cfg(feature = "mysql")]
pub mod ledger_limiter;
mod memory;
pub mod redis_limiter;

use async_trait::async_trait;

pub use self::memory::MemoryLimiter;
use crate::task::{Grant, Rate};

/// Grants starts of tasks.
///
/// # If we crash right after a call
/// The granted starts are lost. The bucket refills at its rate.
#[async_trait]
pub trait RateLimiter: Send + Sync + std::fmt::Debug + 'static {
    /// Takes at most `wanted` starts of this route. Returns within the adapter's own time limit.
    ///
    /// # Errors
    /// If the limiter does not reply. The starts may have been taken.
    async fn take(&self, route: &str, rate: Rate, wanted: u32) -> Result<Grant, LimiterError>;
}

/// Error of a rate limiter.
#[derive(Debug, thiserror::Error)]
#[error("{message}")]
pub struct LimiterError {
    message: &'static str,
    #[source]
    source: Option<Box<dyn std::error::Error + Send + Sync>>,
}

impl LimiterError {
    /// Creates an error that keeps its cause.
    pub fn new(
        message: &'static str,
        source: impl Into<Box<dyn std::error::Error + Send + Sync>>,
    ) -> Self {
        Self {
            message,
            source: Some(source.into()),
        }
    }

    /// Creates the error for a missing reply.
    pub fn silence() -> Self {
        Self {
            message: "no answer in time",
            source: None,
        }
    }
}

//! Buckets that all daemons of a ledger share, in the ledger: where there is no Redis to keep them.

use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;

use super::{LimiterError, RateLimiter};
use crate::ledger::mysql::MysqlLedger;
use crate::task::{Grant, Rate};

/// When a ledger that did not answer is asked again.
const ASK_AGAIN_AFTER: Duration = Duration::from_millis(200);

/// Buckets in the table of rates beside the tasks', on the ledger's clock.
#[derive(Debug)]
pub struct LedgerLimiter(Arc<MysqlLedger>);

impl LedgerLimiter {
    /// Does no I/O.
    pub fn new(ledger: Arc<MysqlLedger>) -> Self {
        Self(ledger)
    }
}

#[async_trait]
impl RateLimiter for LedgerLimiter {
    async fn take(&self, route: &str, rate: Rate, wanted: u32) -> Result<Grant, LimiterError> {
        match self.0.take_starts(route, rate, wanted).await {
            Ok(grant) => Ok(grant),
            // Nothing can be claimed meanwhile: no daemon needs a share of its own.
            Err(error) if error.is_transient() => Ok(Grant {
                granted: 0,
                next_in: ASK_AGAIN_AFTER,
            }),
            Err(error) => Err(LimiterError::new(
                "cannot count starts in the table of rates",
                error,
            )),
        }
    }
}

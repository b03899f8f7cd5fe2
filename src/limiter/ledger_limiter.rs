//! Token buckets in the ledger, for deployments without Redis.

use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;

use super::{LimiterError, RateLimiter};
use crate::ledger::mysql::MysqlLedger;
use crate::task::{Grant, Rate};

/// Wait after a ledger that did not reply.
const ASK_AGAIN_AFTER: Duration = Duration::from_millis(200);

/// Buckets in the rates table, on the ledger's clock. All daemons of the ledger share them.
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
            // Nothing can be claimed meanwhile, so a local share is of no use.
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

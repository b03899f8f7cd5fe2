//! Calling off many tasks.

use std::ops::ControlFlow;
use std::time::Duration;

use tokio::time::Instant;

use super::{ClientError, TaskClient};
use crate::ledger::CancelFilter;

/// What calling off many came to.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, serde::Serialize)]
pub struct CancelReport {
    /// So many will not start any more.
    pub cancelled: u64,
    /// So many are being run; no further attempt will start.
    pub running: u64,
    /// So many are as they were: another session has locked their rows. Ask again.
    pub locked: u64,
}

/// What calling off many would come to.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct WouldCancel {
    /// At least so many.
    pub report: CancelReport,
    /// Counting ended before all were looked at.
    pub is_part: bool,
}

impl TaskClient {
    /// Calls off all tasks that fit, each as [`cancel`](Self::cancel) would. None of them starts after the answer;
    /// what is created meanwhile may be left out. Redis failing is no error: a key that is left signals in vain.
    ///
    /// ```no_run
    /// # async fn example(tasks: &lapsed::TaskClient) -> Result<(), lapsed::ClientError> {
    /// use lapsed::ledger::CancelFilter;
    ///
    /// let report = tasks.cancel_where(&CancelFilter::tag("shop-7")).await?;
    /// println!("{} cancelled, {} running", report.cancelled, report.running);
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # Errors
    /// [`ClientError`]: a filter that fits everything, or the ledger; some may have been called off then.
    ///
    /// # Cancel safety
    /// Safe to drop; some may have been called off then.
    pub async fn cancel_where(&self, filter: &CancelFilter) -> Result<CancelReport, ClientError> {
        self.cancel_each(filter, |_| ControlFlow::Continue(()))
            .await
    }

    /// As [`cancel_where`](Self::cancel_where), and says after each page how many it has been so far; `progress` may end it
    /// there.
    ///
    /// # Errors
    /// As [`cancel_where`](Self::cancel_where).
    ///
    /// # Cancel safety
    /// As [`cancel_where`](Self::cancel_where).
    pub async fn cancel_each(
        &self,
        filter: &CancelFilter,
        mut progress: impl FnMut(&CancelReport) -> ControlFlow<()>,
    ) -> Result<CancelReport, ClientError> {
        let mut report = CancelReport::default();
        let (mut before, mut redis_answers) = (None, true);
        let mut page = self.ledger.cancel_page(filter, None, false).await?;
        loop {
            report.count(&page);
            let mut keys = std::mem::take(&mut page.cancelled);
            // Behind a run there may be a newer arming.
            keys.append(&mut page.running);
            std::mem::swap(&mut before, &mut page.next);
            let disarm = async {
                if !redis_answers || keys.is_empty() {
                    return redis_answers;
                }
                let disarmed = self.timer.disarm(&keys).await;
                if let Err(error) = &disarmed {
                    tracing::debug!(%error, "could not delete the keys of cancelled tasks: their events will lead to nothing");
                }
                disarmed.is_ok()
            };
            let stops = progress(&report).is_break();
            let Some(cursor) = before.take().filter(|_| !stops) else {
                disarm.await;
                return Ok(report);
            };
            // The next ones are called off while the keys of these are deleted.
            let next = self.ledger.cancel_page(filter, Some(cursor), false);
            let (next, answers) = tokio::join!(next, disarm);
            (page, redis_answers) = (next?, answers);
        }
    }

    /// What [`cancel_where`](Self::cancel_where) would do now. Counting ends after about a second; the answer says so.
    ///
    /// # Errors
    /// As there.
    pub async fn would_cancel(&self, filter: &CancelFilter) -> Result<WouldCancel, ClientError> {
        const LONGEST: Duration = Duration::from_secs(1);
        let until = Instant::now() + LONGEST;
        let mut would = WouldCancel::default();
        let mut before = None;
        loop {
            let page = self.ledger.cancel_page(filter, before, true).await?;
            would.report.count(&page);
            before = page.next;
            would.is_part = before.is_some() && Instant::now() >= until;
            if before.is_none() || would.is_part {
                return Ok(would);
            }
        }
    }
}

impl CancelReport {
    fn count(&mut self, page: &crate::ledger::CancelPage) {
        self.cancelled += (page.cancelled.len() + page.malformed) as u64;
        self.running += page.running.len() as u64;
        self.locked += page.locked as u64;
    }
}

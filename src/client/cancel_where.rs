//! Cancels many tasks.

use std::ops::ControlFlow;
use std::time::Duration;

use tokio::time::Instant;

use super::{ClientError, TaskClient};
use crate::ledger::ListFilter;

/// The result of [`TaskClient::cancel_where`].
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, serde::Serialize)]
pub struct CancelReport {
    /// Number of tasks that will not start.
    pub cancelled: u64,
    /// Number of tasks that are running. No further attempt of them will start.
    pub running: u64,
    /// Number of tasks that are unchanged, since another session has locked their rows. Call again for these.
    pub locked: u64,
}

/// The result of [`TaskClient::would_cancel`].
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct WouldCancel {
    /// The tasks counted.
    pub report: CancelReport,
    /// True if counting ended early: there may be more.
    pub is_part: bool,
}

impl TaskClient {
    /// Cancels all tasks that match, as [`cancel`](Self::cancel) does. None of them starts after this returns. Tasks that
    /// are created meanwhile may be left out. A failure of Redis is not an error: the event of a key that is left has no
    /// effect.
    ///
    /// ```no_run
    /// # async fn example(tasks: &lapsed::TaskClient) -> Result<(), lapsed::ClientError> {
    /// use lapsed::ledger::ListFilter;
    ///
    /// let report = tasks.cancel_where(&ListFilter::tag("shop-7")).await?;
    /// println!("{} cancelled, {} running", report.cancelled, report.running);
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # Errors
    /// [`ClientError`]: a filter that matches everything or finished tasks, or a failure of the ledger; some tasks may be
    /// cancelled.
    ///
    /// # Cancel safety
    /// Safe to drop: some tasks may be cancelled.
    pub async fn cancel_where(&self, filter: &ListFilter) -> Result<CancelReport, ClientError> {
        self.cancel_each(filter, |_| ControlFlow::Continue(()))
            .await
    }

    /// As [`cancel_where`](Self::cancel_where). Calls `progress` after each page with the numbers so far, and stops if it
    /// breaks.
    ///
    /// # Errors
    /// As [`cancel_where`](Self::cancel_where).
    ///
    /// # Cancel safety
    /// As [`cancel_where`](Self::cancel_where).
    pub async fn cancel_each(
        &self,
        filter: &ListFilter,
        mut progress: impl FnMut(&CancelReport) -> ControlFlow<()>,
    ) -> Result<CancelReport, ClientError> {
        let mut report = CancelReport::default();
        let (mut filter, mut redis_answers) = (filter.clone(), true);
        let mut page = self.ledger.cancel_page(&filter, false).await?;
        loop {
            report.count(&page);
            let mut keys = std::mem::take(&mut page.cancelled);
            // A running task may have a newer arming.
            keys.append(&mut page.running);
            filter.cursor = page.next.take();
            let disarm = async {
                if !redis_answers || keys.is_empty() {
                    return redis_answers;
                }
                let disarmed = self.alarms.disarm(&keys).await;
                if let Err(error) = &disarmed {
                    tracing::debug!(%error, "could not delete the keys of cancelled tasks: their events will lead to nothing");
                }
                disarmed.is_ok()
            };
            let stops = progress(&report).is_break();
            if stops || filter.cursor.is_none() {
                disarm.await;
                return Ok(report);
            }
            // The next page is cancelled while the keys of this one are deleted.
            let next = self.ledger.cancel_page(&filter, false);
            let (next, answers) = tokio::join!(next, disarm);
            (page, redis_answers) = (next?, answers);
        }
    }

    /// Counts the tasks that [`cancel_where`](Self::cancel_where) would cancel now, for about a second at most: see
    /// [`WouldCancel::is_part`].
    ///
    /// # Errors
    /// As [`cancel_where`](Self::cancel_where).
    ///
    /// # Cancel safety
    /// Cancel safe.
    pub async fn would_cancel(&self, filter: &ListFilter) -> Result<WouldCancel, ClientError> {
        const LONGEST: Duration = Duration::from_secs(1);
        let until = Instant::now() + LONGEST;
        let mut would = WouldCancel::default();
        let mut filter = filter.clone();
        loop {
            let page = self.ledger.cancel_page(&filter, true).await?;
            would.report.count(&page);
            filter.cursor = page.next;
            would.is_part = filter.cursor.is_some() && Instant::now() >= until;
            if filter.cursor.is_none() || would.is_part {
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

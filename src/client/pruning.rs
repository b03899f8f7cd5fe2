//! Deletes or archives finished tasks on request.

use std::ops::ControlFlow;
use std::time::Duration;

use tokio::time::sleep;

use super::pace::{BATCH_MAX, Pace};
use super::{ClientError, TaskClient};
use crate::ledger::pruning::{end_cancelled, next_page, pages_without_keys};
use crate::ledger::{Prune, Retention};
use crate::task::{State, TaskKey};
use crate::timer::{AlarmStore, Remaining};

/// Number of pages whose keys are checked together, before the first of them is deleted. It starts small, so that the
/// first progress is reported soon, and doubles each time.
const PAGES_FIRST: usize = 4;
const PAGES_MAX: usize = 40;

/// The finished tasks that [`TaskClient::prune`] deletes or archives: those that match `older_than`, and those that match `keep`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Pruning {
    /// Done, dead or cancelled.
    pub state: State,
    /// Tasks that have been finished, and due, for at least this time.
    pub older_than: Option<Duration>,
    /// All tasks except this number of those that fell due last. A task that finished within the last minute is kept.
    pub keep: Option<u64>,
    /// Move them to the archive instead of deleting them.
    pub archive: bool,
    /// Only count them.
    pub dry_run: bool,
}

impl TaskClient {
    /// Deletes or archives finished tasks whose keys are gone, in batches at this pace. Returns their number. Pending tasks are never
    /// deleted.
    ///
    /// # Errors
    /// [`ClientError`], also if Redis does not answer for the keys; the batches before are deleted.
    ///
    /// # Cancel safety
    /// Cancel safe: dropping the future stops between two batches.
    pub async fn prune(&self, pruning: Pruning, pace: Pace) -> Result<u64, ClientError> {
        self.prune_each(pruning, pace, |_| ControlFlow::Continue(()))
            .await
    }

    /// As [`prune`](Self::prune). Calls `progress` after each batch with the number so far, and stops if it breaks. In a
    /// dry run it is not called after the last batch.
    ///
    /// # Errors
    /// As [`prune`](Self::prune).
    ///
    /// # Cancel safety
    /// As [`prune`](Self::prune).
    pub async fn prune_each(
        &self,
        pruning: Pruning,
        pace: Pace,
        mut progress: impl FnMut(u64) -> ControlFlow<()>,
    ) -> Result<u64, ClientError> {
        let ledger: &dyn Retention = &*self.ledger;
        let Pruning {
            state,
            older_than,
            keep,
            archive,
            dry_run,
        } = pruning;
        if state == State::Cancelled && !dry_run {
            end_cancelled(ledger).await?;
        }
        let surplus = match keep {
            Some(keep) => ledger.surplus(state, keep).await?,
            None => None,
        };
        if older_than.is_none() && surplus.is_none() {
            return Ok(0);
        }
        let mut prune = Prune {
            state,
            age: older_than,
            surplus,
            after: None,
            limit: BATCH_MAX,
            archive,
            dry_run: true,
        };
        let (mut count, mut pages_max) = (0, PAGES_FIRST);
        loop {
            if dry_run {
                count += next_page(ledger, &mut prune).await?.len() as u64;
                if prune.after.is_none() || progress(count).is_break() {
                    return Ok(count);
                }
                continue;
            }
            let are_gone = |keys| are_gone(&*self.alarms, keys);
            let pages = pages_without_keys(ledger, &mut prune, pages_max, are_gone).await?;
            pages_max = PAGES_MAX.min(pages_max * 2);
            for page in pages {
                let deleted = ledger.prune_rows(&prune, &page).await?;
                count += deleted;
                if progress(count).is_break() {
                    return Ok(count);
                }
                let rows = u32::try_from(deleted).unwrap_or(BATCH_MAX);
                sleep(pace.interval(rows)).await;
            }
            if prune.after.is_none() {
                return Ok(count);
            }
        }
    }
}

async fn are_gone(alarms: &dyn AlarmStore, keys: Vec<TaskKey>) -> Result<Vec<bool>, ClientError> {
    let remaining = alarms.remaining(&keys).await?;
    let is_gone = |remaining: Remaining| !matches!(remaining, Remaining::Ms(_));
    Ok(remaining.into_iter().map(is_gone).collect())
}

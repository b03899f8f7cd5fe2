//! Forgetting finished tasks by hand.

use std::ops::ControlFlow;
use std::time::Duration;

use tokio::time::sleep;

use super::maintenance::{BATCH_MAX, Pace};
use super::{ClientError, TaskClient};
use crate::ledger::{Prune, Pruned, Retention};
use crate::task::{State, TaskKey};
use crate::timer::Remaining;

/// Pages of rows whose keys are asked for together, before the first of them is deleted: few to begin with, then twice as
/// many each time.
const PAGES_FIRST: usize = 4;
const PAGES_MAX: usize = 40;

/// By then the events of keys that Redis has just dropped were judged.
pub(super) const EVENTS_TAKE: Duration = Duration::from_secs(2);

/// Which finished tasks [`TaskClient::prune`] forgets.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Pruning {
    /// Done, dead or cancelled.
    pub state: State,
    /// Those that have been finished, and due, for at least so long.
    pub older_than: Option<Duration>,
    /// All but so many, those that fell due last; nothing goes for this that finished within the last minute.
    pub keep: Option<u64>,
    /// Only count.
    pub dry_run: bool,
}

/// Rows of one page, with their keys.
type Rows = Vec<(u64, Option<TaskKey>)>;

impl TaskClient {
    /// Forgets finished tasks whose keys are gone, in small batches at this pace; answers how many. What is pending is never
    /// touched.
    ///
    /// # Errors
    /// [`ClientError`], also when Redis does not answer for the keys; what was deleted before is gone.
    ///
    /// # Cancel safety
    /// Cancel safe: dropping it stops it between two batches.
    pub async fn prune(&self, pruning: Pruning, pace: Pace) -> Result<u64, ClientError> {
        self.prune_each(pruning, pace, |_| ControlFlow::Continue(()))
            .await
    }

    /// As [`prune`](Self::prune), and says after each batch how many it has been so far; `progress` may end it there. A dry
    /// run says nothing after its last batch.
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
            dry_run,
        } = pruning;
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
            dry_run: true,
        };
        let (mut count, mut pages_max) = (0, PAGES_FIRST);
        loop {
            let pages = match dry_run {
                true => {
                    count += next_page(ledger, &mut prune).await?.len() as u64;
                    Vec::new()
                }
                false => {
                    self.pages_without_keys(ledger, &mut prune, pages_max)
                        .await?
                }
            };
            pages_max = PAGES_MAX.min(pages_max * 2);
            for page in pages {
                let gone = self.whose_keys_are_gone(page).await?;
                let deleted = ledger.prune_rows(&prune, &gone).await?;
                count += deleted;
                if progress(count).is_break() {
                    return Ok(count);
                }
                let rows = u32::try_from(deleted).unwrap_or(BATCH_MAX);
                sleep(pace.apart(rows)).await;
            }
            if prune.after.is_none() || (dry_run && progress(count).is_break()) {
                return Ok(count);
            }
        }
    }

    /// The next pages of rows, once Redis was asked for their keys, which makes it drop those that are due, and the events
    /// of these have arrived: then their rows said that they have finished.
    async fn pages_without_keys(
        &self,
        ledger: &dyn Retention,
        prune: &mut Prune,
        pages_max: usize,
    ) -> Result<Vec<Rows>, ClientError> {
        let (mut pages, mut gone) = (Vec::new(), 0);
        for _ in 0..pages_max {
            let page = next_page(ledger, prune).await?;
            gone += self.whose_keys_are_gone(page.clone()).await?.len();
            if !page.is_empty() {
                pages.push(page);
            }
            if prune.after.is_none() {
                break;
            }
        }
        if gone > 0 {
            sleep(EVENTS_TAKE).await;
        }
        Ok(pages)
    }

    /// A row outlives its key: what Redis says late of that finds that its task has finished.
    async fn whose_keys_are_gone(&self, rows: Rows) -> Result<Vec<u64>, ClientError> {
        let keys: Vec<TaskKey> = rows.iter().filter_map(|(_, key)| key.clone()).collect();
        let mut remaining = self.timer.remaining(&keys).await?.into_iter();
        let gone = rows.into_iter().filter(|(_, key)| {
            key.is_none() || !matches!(remaining.next(), Some(Remaining::Ms(_)))
        });
        Ok(gone.map(|(row, _)| row).collect())
    }
}

/// The next page of what is to be forgotten; behind the last one `after` is `None`.
async fn next_page(ledger: &dyn Retention, prune: &mut Prune) -> Result<Rows, ClientError> {
    let Pruned {
        rows: _,
        found,
        next,
    } = ledger.prune(prune).await?;
    prune.after = next;
    Ok(found)
}

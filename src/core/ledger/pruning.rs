//! Pruning in pages: finds finished rows whose keys are gone.

use std::time::Duration;

use tokio::time::sleep;

use super::{LedgerError, Prune, Pruned, Retention};
use crate::task::TaskKey;

/// Time after which every daemon has handled the event of a key that Redis has just dropped.
pub const EVENTS_HANDLED_AFTER: Duration = Duration::from_secs(2);

/// A page of finished rows, with their keys. A row without a key has one that cannot be read.
type Rows = Vec<(u64, Option<TaskKey>)>;

/// Reads the next page of finished rows, and moves `prune` behind it. After the last page [`Prune::after`] is `None`.
pub async fn next_page(ledger: &dyn Retention, prune: &mut Prune) -> Result<Rows, LedgerError> {
    let dry_run = Prune {
        dry_run: true,
        ..*prune
    };
    let Pruned {
        rows: _,
        found,
        next,
    } = ledger.prune(&dry_run).await?;
    prune.after = next;
    Ok(found)
}

/// Rest between two pages of [`end_cancelled`].
const REST: Duration = Duration::from_millis(20);

/// Ends all tasks that were cancelled during a run whose lease has run out since, so that they can be pruned.
pub async fn end_cancelled(ledger: &dyn Retention) -> Result<u64, LedgerError> {
    let (mut ended, mut after) = (0, None);
    loop {
        let (count, next) = ledger.end_cancelled(after).await?;
        ended += count;
        if next.is_none() {
            return Ok(ended);
        }
        after = next;
        sleep(REST).await;
    }
}

/// Reads up to `pages_max` pages of finished rows, and returns the rows that may be deleted: those whose keys are gone. A
/// row outlives its key, so that the event of a key that Redis drops late finds that its task has finished.
///
/// `are_gone` answers for the keys of a page, in their order. To ask makes Redis drop the keys that are due; their events
/// have been handled when this returns.
///
/// # Errors
/// Those of the ledger and of `are_gone`.
pub async fn pages_without_keys<E, F>(
    ledger: &dyn Retention,
    prune: &mut Prune,
    pages_max: usize,
    are_gone: impl Fn(Vec<TaskKey>) -> F,
) -> Result<Vec<Vec<u64>>, E>
where
    E: From<LedgerError>,
    F: Future<Output = Result<Vec<bool>, E>>,
{
    let mut pages = Vec::new();
    for _ in 0..pages_max {
        let rows = next_page(ledger, prune).await?;
        let keys: Vec<TaskKey> = rows.iter().filter_map(|(_, key)| key.clone()).collect();
        let mut gone = are_gone(keys).await?.into_iter();
        let page: Vec<u64> = rows
            .into_iter()
            .filter(|(_, key)| key.is_none() || gone.next() == Some(true))
            .map(|(row, _)| row)
            .collect();
        if !page.is_empty() {
            pages.push(page);
        }
        if prune.after.is_none() {
            break;
        }
    }
    if !pages.is_empty() {
        sleep(EVENTS_HANDLED_AFTER).await;
    }
    Ok(pages)
}

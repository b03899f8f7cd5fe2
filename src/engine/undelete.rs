//! Undelete for legacy writers: rows that a program marked as deleted and then armed again without clearing the mark.

use std::time::Duration;

use super::deps::Deps;
use crate::ledger::{DueScan, LedgerError, Upcoming, Window};
use crate::task::{Arming, TaskKey, UnixMs};
use crate::timer::{Alarm, Remaining};

/// Rows of one page, and maximum number of pages of one pass.
const PAGE: u32 = 1_000;
const PAGES_MAX: usize = 32;

/// Maximum difference between a key's remaining time and its row's due time: a second for programs that count in
/// seconds, and some for the transmission.
const FITS: Duration = Duration::from_secs(2);

/// Time for which the evidence of a new creation must last.
const DELETION_TAKES: Duration = Duration::from_millis(100);

/// Timeout for the evidence from Redis: the look-ahead waits for it.
const EVIDENCE_PATIENCE: Duration = Duration::from_millis(250);

/// Undeletes rows whose keys are armed for their due times.
///
/// A program that knows only the first six columns deletes with `sts = 1`, and never clears it when it creates the
/// task again. Only Redis can tell which of the two a row means: a key that is armed for this row's due time is
/// evidence of a new creation.
pub async fn undelete_armed(deps: &Deps, span: Duration) -> Result<usize, LedgerError> {
    // An entry that stays after a deletion is no evidence.
    if deps.timer.keeps_entries() {
        return Ok(0);
    }
    let (mut after, mut revived) = (None, 0);
    for _ in 0..PAGES_MAX {
        let page = deps
            .ledger
            .scan(DueScan {
                window: Window::Deleted {
                    back: FITS,
                    ahead: span,
                },
                after,
                limit: PAGE,
            })
            .await?;
        after = page.next;
        revived += undelete_page(deps, page.rows).await?;
        if after.is_none() {
            break;
        }
    }
    Ok(revived)
}

async fn undelete_page(deps: &Deps, rows: Vec<Upcoming>) -> Result<usize, LedgerError> {
    if rows.is_empty() {
        return Ok(0);
    }
    let mut armed = armed_for_their_rows(deps, rows).await;
    if !armed.is_empty() {
        // A deletion writes the row first and the key after that: a key seen between the two is no evidence.
        tokio::time::sleep(DELETION_TAKES).await;
        armed = armed_for_their_rows(deps, armed).await;
    }
    let mut revived = Vec::new();
    for row in armed {
        if deps.ledger.undelete(row.arming).await? {
            revived.push(Alarm::from(row));
        }
    }
    let count = revived.len();
    if count > 0 {
        tracing::info!(
            tasks = count,
            "revived tasks that were deleted and armed again by another program"
        );
        deps.rearm(revived);
    }
    Ok(count)
}

/// Undeletes a row whose key expired at its due time. The task was created again too shortly before to be seen armed:
/// a key that is deleted with its row does not expire.
pub async fn undelete_expired(deps: &Deps, arming: Arming) -> Result<bool, LedgerError> {
    let now = deps.ledger.clock().now();
    let fits = arming.due <= now.plus(FITS) && now <= arming.due.plus(FITS);
    Ok(fits && deps.ledger.undelete(arming).await?)
}

/// Returns the rows whose keys are armed for their due times. Without Redis there is no evidence, and the deletion
/// counts.
async fn armed_for_their_rows(deps: &Deps, rows: Vec<Upcoming>) -> Vec<Upcoming> {
    let keys: Vec<TaskKey> = rows.iter().map(|row| row.key.clone()).collect();
    let asked = tokio::time::timeout(EVIDENCE_PATIENCE, deps.timer.remaining(&keys));
    let Ok(Ok(remaining)) = asked.await else {
        return Vec::new();
    };
    let now = deps.ledger.clock().now();
    let rows = rows.into_iter().zip(remaining);
    rows.filter(|(row, remaining)| fits(row.arming.due, *remaining, now))
        .map(|(row, _)| row)
        .collect()
}

/// True if a key with this remaining time expires when its row is due, also if the row is overdue.
fn fits(due: UnixMs, remaining: Remaining, now: UnixMs) -> bool {
    match remaining {
        Remaining::Ms(remaining_ms) => {
            let expires = now.plus(Duration::from_millis(remaining_ms));
            Duration::from_millis(expires.0.abs_diff(due.0)) <= FITS
        }
        Remaining::Missing | Remaining::Forever => false,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_key_that_expires_at_another_time_than_its_overdue_row_is_no_evidence() {
        let now = UnixMs(1_900_000_000_000);
        let cases = [
            // The row is due in, the key expires in.
            (5_000, 5_000, true),
            (5_000, 6_999, true),
            (5_000, 2_999, false),
            (0, 1_999, true),
            (-1_500, 500, true),
            (-1_500, 501, false),
            (-1_999, 2_000, false),
        ];
        for (due_in_ms, remaining_ms, expected) in cases {
            let due = UnixMs(now.0 + due_in_ms);
            let found = fits(due, Remaining::Ms(remaining_ms), now);
            assert_eq!(found, expected, "{due_in_ms} {remaining_ms}");
        }
        assert!(!fits(now, Remaining::Missing, now));
    }
}

//! Cancellation, by key and by filter.

use super::store::{At, Columns, Parts, ReverseRange, RowStore, Stored};
use super::{Result, update};
use crate::ledger::cancellation::end_of_prefix;
use crate::ledger::row::Status;
use crate::ledger::{CancelAnswer, CancelCursor, CancelFilter, CancelPage};
use crate::task::TaskKey;

/// Index entries of one page. Other callers wait while a page is written.
const PAGE: usize = 2_000;

/// A page ends behind the row with which its payloads and results reach this size: whoever changes a row writes them, too.
const PAGE_BYTES: u64 = 8 << 20;

/// As [`Producer::cancel`](crate::ledger::Producer::cancel).
pub fn cancel(store: &mut dyn RowStore, keys: &[TaskKey]) -> Result<Vec<CancelAnswer>> {
    let mut cancel = |key: &TaskKey| {
        let answer = update(
            store,
            At::Key(key),
            Columns::Brief,
            |row, now| row.cancel(now),
            |answer| !matches!(answer, CancelAnswer::Finished(_)),
        )?;
        Ok(answer.unwrap_or(CancelAnswer::Unknown))
    };
    keys.iter().map(&mut cancel).collect()
}

/// As [`Producer::cancel_page`](crate::ledger::Producer::cancel_page).
pub(super) fn page(
    store: &mut dyn RowStore,
    filter: &CancelFilter,
    before: Option<CancelCursor>,
    dry_run: bool,
) -> Result<CancelPage> {
    let now = store.now();
    // A page is cheap however many of its rows have finished.
    let ids = store.ids_before(&range(filter, before), PAGE)?;
    let is_full = ids.len() == PAGE;
    let mut page = CancelPage::default();
    let (mut bytes, mut last, mut is_whole) = (0, None, true);
    for (row, place) in ids {
        if bytes >= PAGE_BYTES {
            is_whole = false;
            break;
        }
        let found = store.row(At::Row(row), Parts::Brief)?;
        last = Some(place);
        let Some(mut stored) = found.filter(|stored| fits(stored, filter)) else {
            continue;
        };
        let answer = match dry_run {
            true if stored.row.leased(now) => CancelAnswer::Running,
            true => CancelAnswer::Cancelled,
            false => stored.row.cancel(now),
        };
        if !dry_run {
            bytes += stored.bytes;
            store.save(&stored.row, Columns::Brief)?;
        }
        match (answer, stored.key()) {
            (CancelAnswer::Running, Some(key)) => page.running.push(key),
            (_, key) => page.count(key),
        }
    }
    page.next = last.filter(|_| is_full || !is_whole);
    Ok(page)
}

/// Returns the range of an index that has all rows that may match.
fn range(filter: &CancelFilter, before: Option<CancelCursor>) -> ReverseRange {
    match &filter.tag {
        Some(tag) => ReverseRange::Tagged {
            tag: tag.clone(),
            before: match before {
                Some(CancelCursor::Row(row)) => row,
                _ => u64::MAX,
            },
        },
        None => {
            let prefix = filter.common_prefix();
            ReverseRange::Keys {
                before: match before {
                    Some(CancelCursor::Key(key)) => key,
                    _ => end_of_prefix(&prefix),
                },
                from: prefix,
            }
        }
    }
}

fn fits(stored: &Stored, filter: &CancelFilter) -> bool {
    let row = &stored.row;
    let key_fits = match &stored.malformed {
        None => filter.fits_key(&row.key),
        // It has no class. The range of the search has its prefix.
        Some(_) => filter.class.is_none(),
    };
    let prefix_fits = match (&stored.malformed, &filter.prefix) {
        (Some(key), Some(prefix)) => key.starts_with(prefix.as_str()),
        _ => true,
    };
    row.status == Status::Unprocessed
        && key_fits
        && prefix_fits
        && (filter.tag.is_none() || row.contents.tag == filter.tag)
}

//! Cancellation, by key and by filter.

use std::ops::ControlFlow::Continue;

use super::search::{begin, fits};
use super::store::{At, Columns, DueRange, Parts, ReverseRange, RowStore, Stored};
use super::{Result, update};
use crate::ledger::row::Status;
use crate::ledger::{CancelAnswer, CancelPage, ListCursor, ListFilter};
use crate::task::{TaskKey, UnixMs};

/// `status` and `sts` of a row that is neither finished nor cancelled.
const PENDING: (u8, bool) = (0, false);

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
    filter: &ListFilter,
    dry_run: bool,
) -> Result<CancelPage> {
    let now = store.now();
    let ids = places(store, filter)?;
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
        let fits =
            |stored: &Stored| stored.row.status == Status::Unprocessed && fits(stored, filter, now);
        let Some(mut stored) = found.filter(fits) else {
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

/// Returns the next rows that may match, with their places, from an index alone: a page is cheap however many of its rows
/// have finished. The index of tags and that of keys are read backwards, so that the pages do not follow tasks that are
/// created meanwhile.
fn places(store: &mut dyn RowStore, filter: &ListFilter) -> Result<Vec<(u64, ListCursor)>> {
    match (&filter.tag, &filter.class, &filter.prefix) {
        (Some(tag), _, _) => {
            let before = match filter.cursor {
                Some(ListCursor::Row(row)) => row,
                _ => u64::MAX,
            };
            let tag = tag.clone();
            store.ids_before(&ReverseRange::Tagged { tag, before }, PAGE)
        }
        (None, None, None) => unfinished(store, filter),
        _ => {
            let (from, end) = filter.key_range();
            let before = match &filter.cursor {
                Some(ListCursor::Key(key)) => key.clone(),
                _ => end,
            };
            store.ids_before(&ReverseRange::Keys { from, before }, PAGE)
        }
    }
}

/// Returns unfinished rows that are not cancelled, by due time.
fn unfinished(store: &mut dyn RowStore, filter: &ListFilter) -> Result<Vec<(u64, ListCursor)>> {
    let mut range = DueRange::all(PENDING.0, PENDING.1);
    if let Some(from) = begin(filter, PENDING.0, PENDING.1) {
        range.from = from;
    }
    if let Some(before) = filter.due_before {
        range.to = UnixMs(before.0 - 1);
    }
    let mut ids = Vec::new();
    let _end = store.places(range, PAGE, &mut |(due_at, row)| {
        let cursor = ListCursor::Due {
            status: PENDING.0,
            deleted: PENDING.1,
            due_at,
            row,
        };
        ids.push((row, cursor));
        Continue(())
    })?;
    Ok(ids)
}

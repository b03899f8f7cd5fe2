//! Cancellation, by key and by filter.

use rusqlite::Result;

use super::rows::{Stored, row_id, save_brief, some, text};
use super::session::{Session, id};
use crate::ledger::cancellation::end_of_prefix;
use crate::ledger::row::Status;
use crate::ledger::{CancelAnswer, CancelCursor, CancelFilter, CancelPage};
use crate::task::TaskKey;

/// Index entries of one page. Other callers wait while a page is written.
const PAGE: usize = 2_000;

/// A page ends behind the row with which its payloads and results reach this size: whoever changes a row writes them, too.
const PAGE_BYTES: u64 = 8 << 20;

/// As [`Producer::cancel`](crate::ledger::Producer::cancel).
pub(super) fn cancel(session: &Session<'_>, keys: &[TaskKey]) -> Result<Vec<CancelAnswer>> {
    let mut find = session.prepare(&session.queries.row_by_key)?;
    let mut write = session.prepare(&session.queries.save_brief)?;
    let mut cancel = |key: &TaskKey| {
        let Some(mut stored) = some(&mut find, [key.as_str()], true)? else {
            return Ok(CancelAnswer::Unknown);
        };
        let answer = stored.row.cancel(session.now);
        if !matches!(answer, CancelAnswer::Finished(_)) {
            save_brief(&mut write, &stored.row)?;
        }
        Ok(answer)
    };
    keys.iter().map(&mut cancel).collect()
}

/// As [`Producer::cancel_page`](crate::ledger::Producer::cancel_page).
pub(super) fn page(
    session: &Session<'_>,
    filter: &CancelFilter,
    before: Option<CancelCursor>,
    dry_run: bool,
) -> Result<CancelPage> {
    let ids = ids(session, filter, before)?;
    let is_full = ids.len() == PAGE;
    let mut find = session.prepare(&session.queries.row_by_id)?;
    let mut write = session.prepare(&session.queries.save_brief)?;
    let mut page = CancelPage::default();
    let (mut bytes, mut last, mut is_whole) = (0, None, true);
    for (row, place) in ids {
        if bytes >= PAGE_BYTES {
            is_whole = false;
            break;
        }
        let found = some(&mut find, [row], true)?;
        last = Some(place);
        let Some(mut stored) = found.filter(|stored| fits(stored, filter)) else {
            continue;
        };
        let answer = match dry_run {
            true if stored.row.leased(session.now) => CancelAnswer::Running,
            true => CancelAnswer::Cancelled,
            false => stored.row.cancel(session.now),
        };
        if !dry_run {
            bytes += stored.bytes;
            save_brief(&mut write, &stored.row)?;
        }
        match (answer, stored.key()) {
            (CancelAnswer::Running, Some(key)) => page.running.push(key),
            (_, key) => page.count(key),
        }
    }
    page.next = last.filter(|_| is_full || !is_whole);
    Ok(page)
}

/// Finds rows that may match in the index alone, each with its place: a page is cheap however many of its rows have finished.
fn ids(
    session: &Session<'_>,
    filter: &CancelFilter,
    before: Option<CancelCursor>,
) -> Result<Vec<(i64, CancelCursor)>> {
    let mut ids = Vec::new();
    match &filter.tag {
        Some(tag) => {
            let before = match before {
                Some(CancelCursor::Row(row)) => id(row),
                _ => i64::MAX,
            };
            let mut walk = session.prepare(&session.queries.ids_of_tag)?;
            let mut found = walk.query((tag, before, PAGE as i64))?;
            while let Some(row) = found.next()? {
                let row = row_id(row, 0)?;
                ids.push((id(row), CancelCursor::Row(row)));
            }
        }
        None => {
            let prefix = filter.common_prefix();
            let end = match before {
                Some(CancelCursor::Key(key)) => key,
                _ => end_of_prefix(&prefix),
            };
            let mut walk = session.prepare(&session.queries.ids_of_keys)?;
            let mut found = walk.query((prefix, end, PAGE as i64))?;
            while let Some(row) = found.next()? {
                let key = text(row, 1)?.unwrap_or_default();
                let place = CancelCursor::Key(key.into_owned());
                ids.push((id(row_id(row, 0)?), place));
            }
        }
    }
    Ok(ids)
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
        && (filter.tag.is_none() || row.tag == filter.tag)
}

//! Lists of rows, read in the order of an index and within a time limit.
//!
//! A filter may match few of many rows, and no index covers most of its fields. So a search walks along one index, and stops
//! when the page is full or [`SEARCH_MAX`] has passed. The cursor says where.

use std::cmp::Ordering;
use std::ops::ControlFlow::{Break, Continue};
use std::time::Duration;

use tokio::time::Instant;

use super::Result;
use super::store::{Direction, DueRange, END, Parts, Range, RowStore, START, Store, Stored};
use crate::ledger::{DuePlace, ListCursor, ListFilter, ListOrder, StateFilter};
use crate::task::UnixMs;

/// How long a search continues while its page is not full.
const SEARCH_MAX: Duration = Duration::from_millis(700);

/// How many rows are read between two looks at the clock.
const LOOK_EVERY: u64 = 256;

/// Result of a search.
#[derive(Default)]
pub struct Found {
    pub rows: Vec<Stored>,
    pub next: Option<ListCursor>,
    /// If the search took too long: the number of rows it has read.
    pub searched: Option<u64>,
}

/// Searches in the table or the archive, as the filter says.
pub fn search(store: &mut dyn Store, filter: &ListFilter) -> Result<Found> {
    if !filter.archived {
        return search_in(store, filter);
    }
    let mut found = Found::default();
    store.in_archive(&mut |archive| {
        found = search_in(archive, filter)?;
        Ok(())
    })?;
    Ok(found)
}

/// Searches until the page is full, the end is reached, or the time limit has passed.
fn search_in(store: &mut dyn RowStore, filter: &ListFilter) -> Result<Found> {
    let (now, limit) = (store.now(), filter.limit as usize);
    let (mut found, mut read) = (Found::default(), 0);
    if limit == 0 {
        return Ok(found);
    }
    let until = Instant::now() + SEARCH_MAX;
    for range in ranges(filter, now) {
        let parts = Parts::of(filter.brief);
        let ended = store.walk(&range, parts, usize::MAX, &mut |stored| {
            read += 1;
            if fits(&stored, filter, now) {
                let is_full = found.rows.len() + 1 == limit;
                found.next = is_full.then(|| cursor(filter, &range, &stored));
                found.rows.push(stored);
                if is_full {
                    return Break(());
                }
            } else if read % LOOK_EVERY == 0 && Instant::now() >= until {
                found.next = Some(cursor(filter, &range, &stored));
                found.searched = Some(read);
                return Break(());
            }
            Continue(())
        })?;
        if ended.is_break() {
            break;
        }
    }
    Ok(found)
}

/// True if the row matches the filter.
pub(super) fn fits(stored: &Stored, filter: &ListFilter, now: UnixMs) -> bool {
    let Some(key) = &stored.malformed else {
        return stored.row.fits(filter, now);
    };
    // Such a key has no class or method, but a beginning.
    let begins = |prefix: &String| key.starts_with(prefix.as_str());
    let open = ListFilter {
        prefix: None,
        except: Vec::new(),
        ..filter.clone()
    };
    filter.only.is_empty()
        && filter.class.is_none()
        && filter.method.is_none()
        && filter.prefix.as_ref().is_none_or(begins)
        && stored.row.fits(&open, now)
}

/// Returns the ranges to search, in order. Leaves out those before the cursor.
fn ranges(filter: &ListFilter, now: UnixMs) -> Vec<Range> {
    match filter.order() {
        ListOrder::Row => {
            let after = match filter.cursor {
                Some(ListCursor::Row(row)) => row,
                _ => 0,
            };
            vec![match &filter.tag {
                Some(tag) => Range::Tagged {
                    tag: tag.clone(),
                    after,
                },
                None if filter.recurring => Range::Recurring { after },
                None => Range::All { after },
            }]
        }
        ListOrder::Key => {
            let (from, before) = filter.key_range();
            let after = match &filter.cursor {
                Some(ListCursor::Key(key)) => (key.clone(), u64::MAX),
                Some(ListCursor::Archived(key, row)) => (key.clone(), *row),
                _ => (String::new(), 0),
            };
            vec![Range::Keys {
                from,
                before,
                after,
            }]
        }
        ListOrder::Due if filter.is_newest_first() => {
            let to = filter
                .due_after
                .map(|after| UnixMs(after.0.saturating_sub(1)));
            let end = filter.due_before.map_or(END, |before| (before, 0));
            let statuses = filter.statuses().into_iter();
            let range = |(status, deleted)| {
                Some(Range::Due(DueRange {
                    direction: Direction::Down,
                    from: begin_at(filter, end, status, deleted)?,
                    to: to.unwrap_or(START.0),
                    ..DueRange::all(status, deleted)
                }))
            };
            statuses.filter_map(range).collect()
        }
        ListOrder::Due => {
            let overdue = matches!(filter.states[..], [StateFilter::Overdue]);
            let before = filter.due_before.map(|before| UnixMs(before.0 - 1));
            let to = before.unwrap_or(END.0).min(match overdue {
                true => now,
                false => END.0,
            });
            let statuses = filter.statuses().into_iter();
            let range = |(status, deleted)| {
                Some(Range::Due(DueRange {
                    from: begin(filter, status, deleted)?,
                    to,
                    ..DueRange::all(status, deleted)
                }))
            };
            statuses.filter_map(range).collect()
        }
    }
}

/// Returns where the search begins in the range of a `status` and `sts`; `None` if the cursor is after it.
pub(super) fn begin(filter: &ListFilter, status: u8, deleted: bool) -> Option<DuePlace> {
    let first = match filter.due_after {
        Some(after) => (UnixMs(after.0.saturating_sub(1)), u64::MAX),
        None => START,
    };
    begin_at(filter, first, status, deleted)
}

/// As [`begin`], in a range that begins at `first`.
fn begin_at(filter: &ListFilter, first: DuePlace, status: u8, deleted: bool) -> Option<DuePlace> {
    let Some(ListCursor::Due {
        status: at,
        deleted: of,
        due_at,
        row,
    }) = &filter.cursor
    else {
        return Some(first);
    };
    match (status, deleted).cmp(&(*at, *of)) {
        Ordering::Less => None,
        Ordering::Equal => Some((*due_at, *row)),
        Ordering::Greater => Some(first),
    }
}

fn cursor(filter: &ListFilter, range: &Range, at: &Stored) -> ListCursor {
    match range {
        Range::All { .. } | Range::Tagged { .. } | Range::Recurring { .. } => {
            ListCursor::Row(at.row.id)
        }
        Range::Keys { .. } if filter.archived => {
            ListCursor::Archived(at.key_text().to_owned(), at.row.id)
        }
        Range::Keys { .. } => ListCursor::Key(at.key_text().to_owned()),
        Range::Due(range) => ListCursor::Due {
            status: range.status,
            deleted: range.deleted,
            due_at: at.row.due_at(),
            row: at.row.id,
        },
    }
}

#[cfg(test)]
mod tests;

//! Lists of rows, read in the order of an index and within a time limit.
//!
//! A filter may match few of many rows, and no index covers most of its fields. So a search walks along one index, and stops
//! when the page is full or [`SEARCH_MAX`] has passed. The cursor says where.

use std::cmp::Ordering;
use std::time::Duration;

use rusqlite::{CachedStatement, Result, Rows};
use tokio::time::Instant;

use super::rows::{self, Stored};
use super::session::{Session, id};
use super::walk::{Direction, END, START, Walk};
use crate::ledger::{DuePlace, ListCursor, ListFilter, ListOrder, StateFilter};
use crate::task::UnixMs;

/// How long a search continues while its page is not full.
const SEARCH_MAX: Duration = Duration::from_millis(700);

/// How many rows are read between two looks at the clock.
const LOOK_EVERY: u64 = 256;

/// Result of a search.
#[derive(Default)]
pub(super) struct Found {
    pub rows: Vec<Stored>,
    pub next: Option<ListCursor>,
    /// If the search took too long: the number of rows it has read.
    pub searched: Option<u64>,
}

/// A range of an index, in the order of a list.
enum Part {
    /// All rows after an id.
    All(u64),
    /// Those with a tag, after an id.
    Tagged(String, u64),
    /// Those with a recurrence, after an id.
    Recurring(u64),
    /// Those with keys from the first text on, before the second, after the third.
    Keys(String, String, String),
    /// Those of one `status` and `sts`.
    Due(Walk),
}

/// Searches until the page is full, the end is reached, or the time limit has passed.
pub(super) fn search(session: &Session<'_>, filter: &ListFilter) -> Result<Found> {
    let limit = filter.limit as usize;
    let (mut found, mut read) = (Found::default(), 0);
    if limit == 0 {
        return Ok(found);
    }
    let until = Instant::now() + SEARCH_MAX;
    for part in parts(filter, session.now) {
        let mut statement = part.statement(session)?;
        let mut walk = part.begin(&mut statement)?;
        while let Some(row) = walk.next()? {
            let stored = rows::read_some(row, filter.brief)?;
            let cursor = || part.cursor(&stored);
            read += 1;
            let full = found.rows.len() + 1 == limit;
            if fits(&stored, filter, session.now) {
                found.next = full.then(cursor);
                found.rows.push(stored);
                if full {
                    return Ok(found);
                }
            } else if read % LOOK_EVERY == 0 && Instant::now() >= until {
                found.next = Some(cursor());
                found.searched = Some(read);
                return Ok(found);
            }
        }
    }
    Ok(found)
}

fn fits(stored: &Stored, filter: &ListFilter, now: UnixMs) -> bool {
    let Some(key) = &stored.malformed else {
        return stored.row.fits(filter, now);
    };
    // Such a key has no class or method, but a beginning.
    let begins = |prefix: &String| key.starts_with(prefix.as_str());
    let open = ListFilter {
        prefix: None,
        class: None,
        method: None,
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
fn parts(filter: &ListFilter, now: UnixMs) -> Vec<Part> {
    match filter.order() {
        ListOrder::Row => {
            let after = match filter.cursor {
                Some(ListCursor::Row(row)) => row,
                _ => 0,
            };
            vec![match &filter.tag {
                Some(tag) => Part::Tagged(tag.clone(), after),
                None if filter.recurring => Part::Recurring(after),
                None => Part::All(after),
            }]
        }
        ListOrder::Key => {
            let (begin, end) = filter.key_range();
            let after = match &filter.cursor {
                Some(ListCursor::Key(key)) => key.clone(),
                _ => String::new(),
            };
            vec![Part::Keys(begin, end, after)]
        }
        ListOrder::Due => {
            let overdue = matches!(filter.states[..], [StateFilter::Overdue]);
            let before = filter.due_before.map(|before| UnixMs(before.0 - 1));
            let to = before.unwrap_or(END.0).min(match overdue {
                true => now,
                false => END.0,
            });
            let statuses = filter.statuses().into_iter();
            let part = |(status, deleted)| {
                Some(Part::Due(Walk {
                    status,
                    deleted,
                    direction: Direction::Up,
                    from: begin(filter, status, deleted)?,
                    to,
                }))
            };
            statuses.filter_map(part).collect()
        }
    }
}

/// Returns where the search begins in the range of a `status` and `sts`; `None` if the cursor is after it.
fn begin(filter: &ListFilter, status: u8, deleted: bool) -> Option<DuePlace> {
    let first = match filter.due_after {
        Some(after) => (UnixMs(after.0.saturating_sub(1)), u64::MAX),
        None => START,
    };
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

impl Part {
    fn statement<'a>(&self, session: &Session<'a>) -> Result<CachedStatement<'a>> {
        let queries = session.queries;
        let text = match self {
            Self::All(_) => &queries.list_by_id,
            Self::Tagged(..) => &queries.list_by_tag,
            Self::Recurring(_) => {
                // Until `lapsed migrate` has added the index. The order, and so the cursor, is the same.
                let by_index = session.prepare(&queries.list_recurring);
                return by_index.or_else(|_| session.prepare(&queries.list_by_id));
            }
            Self::Keys(..) => &queries.list_by_key,
            Self::Due(_) => &queries.list_by_due,
        };
        session.prepare(text)
    }

    fn begin<'a>(&self, statement: &'a mut CachedStatement<'_>) -> Result<Rows<'a>> {
        match self {
            Self::All(after) | Self::Recurring(after) => statement.query([id(*after)]),
            Self::Tagged(tag, after) => statement.query((tag, id(*after))),
            Self::Keys(begin, end, after) => statement.query((begin, end, after)),
            Self::Due(walk) => statement.query(walk.values()),
        }
    }

    fn cursor(&self, at: &Stored) -> ListCursor {
        match self {
            Self::All(_) | Self::Tagged(..) | Self::Recurring(_) => ListCursor::Row(at.row.id),
            Self::Keys(..) => ListCursor::Key(match &at.malformed {
                Some(key) => key.clone(),
                None => at.row.key.to_string(),
            }),
            Self::Due(walk) => ListCursor::Due {
                status: walk.status,
                deleted: walk.deleted,
                due_at: at.row.due_at(),
                row: at.row.id,
            },
        }
    }
}

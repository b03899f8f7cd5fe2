//! Lists of rows, read in the order of an index and within a time limit.
//!
//! A filter may match few of many rows, and no index covers most of its fields. So a search proceeds in strides: it finds
//! the end of the next [`STRIDE`] rows in the index alone, reads those of them that match, and continues until the page is
//! full or [`SEARCH_MAX`] has passed. The cursor says where it stopped.

mod part;

use std::time::Duration;

use sqlx::mysql::MySqlRow;
use tokio::time::Instant;

use self::part::{Part, Place, place_of};
use super::connection::{Conn, Statement, covered, statement};
use super::error::error;
use super::error_numbers::is_missing_index;
use super::filter::Conditions;
use super::queries::{self, Queries};
use super::scans::END;
use super::{MysqlLedger, decode};
use lapsed_core::ledger::{
    LedgerError, ListCursor, ListFilter, ListOrder, ListPage, Picked, StateFilter, TaskRecord,
};
use lapsed_core::task::{State, UnixMs};

/// Maximum number of rows of a stride. The first one is shorter, since often all of its rows match.
const STRIDE: u32 = 20_000;

/// Minimum number of rows of a stride.
const STRIDE_MIN: u32 = 500;

/// How long a search continues while its page is not full.
const SEARCH_MAX: Duration = Duration::from_millis(700);

/// Result of a search.
#[derive(Default)]
struct Found {
    rows: Vec<MySqlRow>,
    next: Option<ListCursor>,
    /// If the search took too long: the least number of rows it has read.
    searched: Option<u64>,
}

impl MysqlLedger {
    pub(super) async fn list_page(&self, filter: &ListFilter) -> Result<ListPage, LedgerError> {
        filter.check_cursor()?;
        let mut conn = self.pools.acquire().await?;
        let template = match filter.brief {
            true => queries::RECORD_BRIEF,
            false => queries::RECORD,
        };
        let found =
            self.search(&mut conn, template, filter)
                .await
                .map_err(|failure| match filter.archived {
                    true => self.archive_error(failure),
                    false => error(failure),
                })?;
        let mut page = ListPage {
            next: found.next,
            searched: found.searched,
            ..ListPage::default()
        };
        for row in &found.rows {
            match decode::record(row).map_err(error)? {
                Some(task) => page.tasks.push(TaskRecord {
                    archived: filter.archived,
                    ..task
                }),
                None => page.malformed.push(decode::malformed(row).map_err(error)?),
            }
        }
        Ok(page)
    }

    pub(super) async fn pick(&self, filter: &ListFilter) -> Result<Picked, LedgerError> {
        let dead = ListFilter {
            states: vec![StateFilter::Is(State::Dead)],
            ..filter.clone()
        };
        dead.check_live()?;
        dead.check_cursor()?;
        let mut conn = self.pools.acquire().await?;
        let found = self
            .search(&mut conn, queries::PLACE, &dead)
            .await
            .map_err(error)?;
        let ids = found.rows.iter().map(decode::id);
        Ok(Picked {
            rows: ids.collect::<Result<_, _>>().map_err(error)?,
            next: found.next,
        })
    }

    /// Returns the ids of unfinished rows that match, except cancelled ones, by due time.
    pub(super) async fn unfinished_ids(
        &self,
        filter: &ListFilter,
        limit: usize,
    ) -> Result<(Vec<u64>, Option<ListCursor>), LedgerError> {
        let filter = ListFilter {
            limit: u32::try_from(limit).unwrap_or(u32::MAX),
            ..filter.clone()
        };
        let pending = Part::Due {
            status: 0,
            deleted: false,
            overdue: false,
            before: filter.due_before.unwrap_or(END.0),
        };
        let mut conn = self.pools.acquire().await?;
        let found = self.search_in(&mut conn, queries::PLACE, &filter, vec![pending]);
        let Found { rows, next, .. } = found.await.map_err(error)?;
        let ids = rows.iter().map(decode::id).collect::<Result<_, _>>();
        Ok((ids.map_err(error)?, next))
    }

    /// Searches until the page is full, the end is reached, or the time limit has passed.
    async fn search(
        &self,
        conn: &mut Conn,
        template: &str,
        filter: &ListFilter,
    ) -> sqlx::Result<Found> {
        let parts = parts(filter);
        let by_series = matches!(parts[..], [Part::Recurring]);
        match self.search_in(conn, template, filter, parts).await {
            // Until `lapsed migrate` has added the index. The order, and so the cursor, is the same.
            Err(error) if by_series && is_missing_index(&error) => {
                let all = vec![Part::All];
                self.search_in(conn, template, filter, all).await
            }
            found => found,
        }
    }

    async fn search_in(
        &self,
        conn: &mut Conn,
        template: &str,
        filter: &ListFilter,
        parts: Vec<Part>,
    ) -> sqlx::Result<Found> {
        let limit = filter.limit as usize;
        let queries = match filter.archived {
            true => &self.archive,
            false => &self.queries,
        };
        let mut found = Found::default();
        if limit == 0 {
            return Ok(found);
        }
        let (until, mut searched) = (Instant::now() + SEARCH_MAX, 0);
        let mut stride = filter.limit.saturating_mul(4).clamp(STRIDE_MIN, STRIDE);
        for part in parts {
            let Some(mut place) = part.begin(filter) else {
                continue;
            };
            loop {
                let began = Instant::now();
                let end = stride_end(conn, queries, &part, &place, stride).await?;
                let left = u32::try_from(limit - found.rows.len()).unwrap_or(u32::MAX);
                let page = fitting(queries, template, &part, &place, end.as_ref(), filter, left);
                found.rows.extend(conn.fetch(page).await?);
                if let (true, Some(last)) = (found.rows.len() == limit, found.rows.last()) {
                    found.next = Some(part.cursor(place_of(&part, last)?));
                    return Ok(found);
                }
                let Some(end) = end else {
                    break;
                };
                searched += u64::from(stride);
                let now = Instant::now();
                stride = next_stride(stride, now - began, until.saturating_duration_since(now));
                if now >= until {
                    found.next = Some(part.cursor(end));
                    found.searched = Some(searched);
                    return Ok(found);
                }
                place = end;
            }
        }
        Ok(found)
    }
}

/// Returns the number of rows of the stride after one of `rows` that took so long, with so much time left. Rows that are not in
/// memory take a hundred times as long as others: a stride ends about when the time does.
fn next_stride(rows: u32, took: Duration, left: Duration) -> u32 {
    let fitting = f64::from(rows) * (left.as_secs_f64() / took.as_secs_f64().max(1e-6));
    let longest = rows.saturating_mul(4).min(STRIDE);
    // A number beyond the range becomes its end.
    (fitting as u32).clamp(STRIDE_MIN, longest.max(STRIDE_MIN))
}

/// Returns the end of a stride of this many rows; `None` if the range ends first.
async fn stride_end(
    conn: &mut Conn,
    queries: &Queries,
    part: &Part,
    from: &Place,
    rows: u32,
) -> sqlx::Result<Option<Place>> {
    let text = format!(
        "{}{} ORDER BY {} LIMIT ?, 1",
        part.select(queries, queries::PLACE),
        part.conditions(),
        part.order()
    );
    let question = from.bind(part.bind(covered(text))).bind(rows - 1);
    let found = conn.fetch(question).await?;
    found.first().map(|row| place_of(part, row)).transpose()
}

fn fitting(
    queries: &Queries,
    template: &str,
    part: &Part,
    from: &Place,
    end: Option<&Place>,
    filter: &ListFilter,
    limit: u32,
) -> Statement<'static> {
    let conditions = Conditions::of(filter);
    let text = format!(
        "{}{}{}{} ORDER BY {} LIMIT ?",
        part.select(queries, template),
        part.conditions(),
        end.map_or("", |end| part.until(end)),
        conditions.text(),
        part.order()
    );
    let question = from.bind(part.bind(statement(text)));
    let question = match end {
        Some(end) => end.bind_end(question),
        None => question,
    };
    conditions.bind(question).bind(limit)
}

/// Returns the ranges to search, in order.
fn parts(filter: &ListFilter) -> Vec<Part> {
    match filter.order() {
        ListOrder::Row => vec![match &filter.tag {
            Some(tag) => Part::Tagged(tag.clone()),
            None if filter.recurring => Part::Recurring,
            None => Part::All,
        }],
        ListOrder::Key => {
            let (begin, end) = filter.key_range();
            vec![match filter.archived {
                true => Part::ArchivedKeys(begin, end),
                false => Part::Keys(begin, end),
            }]
        }
        ListOrder::Due if filter.is_newest_first() => {
            let parts = filter.statuses().into_iter();
            let part = |(status, deleted)| Part::DueDown {
                status,
                deleted,
                from: filter.due_after.unwrap_or(UnixMs(0)),
            };
            parts.map(part).collect()
        }
        ListOrder::Due => {
            let overdue = matches!(filter.states[..], [StateFilter::Overdue]);
            let parts = filter.statuses().into_iter();
            let part = |(status, deleted)| Part::Due {
                status,
                deleted,
                overdue,
                before: filter.due_before.unwrap_or(END.0),
            };
            parts.map(part).collect()
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_stride_grows_as_long_as_it_fits_into_the_time_that_is_left() {
        let ms = Duration::from_millis;
        assert_eq!(next_stride(500, ms(1), ms(699)), 2_000);
        assert_eq!(next_stride(8_000, ms(20), ms(600)), STRIDE);
        // 0.2 ms a row, from a disk: 500 ms are enough for 2,500 rows.
        assert_eq!(next_stride(1_000, ms(200), ms(500)), 2_500);
        assert_eq!(next_stride(2_000, ms(400), ms(100)), STRIDE_MIN);
        assert_eq!(next_stride(500, Duration::ZERO, ms(700)), 2_000);
        assert_eq!(next_stride(500, ms(900), Duration::ZERO), STRIDE_MIN);
    }
}

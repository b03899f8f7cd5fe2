//! Administration: find, list, run now, redrive, discard.

use std::time::Duration;

use async_trait::async_trait;
use rusqlite::Result;

use super::rows::{Stored, one, save, save_brief, some};
use super::search::search;
use super::session::{Session, id};
use super::{ROWS_MAX, SqliteLedger};
use super::{detailed_stats, pauses};
use crate::ledger::row::{Row, Status};
use crate::ledger::{
    Admin, DetailedStats, DetailedStatsLimits, LedgerError, ListFilter, ListPage, Picked,
    RunNowAnswer, StateFilter, TaskRecord,
};
use crate::task::{Paused, State, TaskKey, UnixMs};

#[async_trait]
impl Admin for SqliteLedger {
    async fn find(&self, key: &TaskKey) -> Result<Option<TaskRecord>, LedgerError> {
        let key = key.clone();
        self.read(move |session| {
            let mut find = session.prepare(&session.queries.row_by_key)?;
            let found = one(&mut find, [key.as_str()])?;
            Ok(found.map(|stored| stored.row.record(session.now)))
        })
        .await
    }

    async fn list(&self, filter: &ListFilter) -> Result<ListPage, LedgerError> {
        filter.check_cursor()?;
        let filter = filter.clone();
        self.read_long(move |session| {
            let found = search(session, &filter)?;
            let mut page = ListPage {
                next: found.next,
                searched: found.searched,
                ..ListPage::default()
            };
            for stored in found.rows {
                match stored.as_malformed(session.now) {
                    Some(row) => page.malformed.push(row),
                    None => page.tasks.push(stored.row.record(session.now)),
                }
            }
            Ok(page)
        })
        .await
    }

    async fn overdue_for(&self) -> Result<Duration, LedgerError> {
        self.read(detailed_stats::overdue_for).await
    }

    async fn detailed_stats(
        &self,
        limits: DetailedStatsLimits,
    ) -> Result<DetailedStats, LedgerError> {
        self.read_long(move |session| detailed_stats::of(session, limits))
            .await
    }

    async fn run_now(&self, key: &TaskKey) -> Result<RunNowAnswer, LedgerError> {
        let key = key.clone();
        self.write_untold(move |session| {
            let paused = Paused::of(&pauses::all(session)?);
            let held_before = paused.held_before_of(&key);
            make_due(session, &key, |row, now| row.run_now(held_before, now))
        })
        .await
    }

    async fn redrive(&self, key: &TaskKey) -> Result<RunNowAnswer, LedgerError> {
        let key = key.clone();
        self.write_untold(move |session| make_due(session, &key, Row::redrive))
            .await
    }

    async fn pick_dead(&self, filter: &ListFilter) -> Result<Picked, LedgerError> {
        let dead = ListFilter {
            states: vec![StateFilter::Is(State::Dead)],
            brief: true,
            ..filter.clone()
        };
        dead.check_cursor()?;
        self.read_long(move |session| {
            let found = search(session, &dead)?;
            Ok(Picked {
                rows: found.rows.iter().map(|stored| stored.row.id).collect(),
                next: found.next,
            })
        })
        .await
    }

    async fn redrive_rows(&self, rows: &[u64]) -> Result<u64, LedgerError> {
        let mut count = 0;
        for rows in rows.chunks(ROWS_MAX) {
            let rows = rows.to_vec();
            let redriven = self.write_long(move |session| {
                let mut write = session.prepare(&session.queries.save_brief)?;
                of_rows(session, &rows, |stored| {
                    let redriven = stored.row.redrive(session.now);
                    if redriven {
                        save_brief(&mut write, &stored.row)?;
                    }
                    Ok(redriven)
                })
            });
            count += self.untold(redriven.await)?;
        }
        Ok(count)
    }

    async fn dead_keys(&self, rows: &[u64]) -> Result<Vec<TaskKey>, LedgerError> {
        let rows = rows.to_vec();
        self.read_long(move |session| {
            let mut keys = Vec::new();
            of_rows(session, &rows, |stored| {
                let dead = stored.row.status == Status::Dead;
                keys.extend(stored.key().filter(|_| dead));
                Ok(dead)
            })?;
            Ok(keys)
        })
        .await
    }

    async fn discard_rows(&self, rows: &[u64]) -> Result<u64, LedgerError> {
        let mut count = 0;
        for rows in rows.chunks(ROWS_MAX) {
            let rows = rows.to_vec();
            let discarded = self.write_long(move |session| {
                let mut delete = session.prepare(&session.queries.delete)?;
                of_rows(session, &rows, |stored| {
                    let dead = stored.row.status == Status::Dead;
                    if dead {
                        delete.execute([id(stored.row.id)])?;
                    }
                    Ok(dead)
                })
            });
            count += discarded.await?;
        }
        Ok(count)
    }
}

/// Applies `change` to the row of a key. `change` returns false if the state of the row does not allow it.
fn make_due(
    session: &Session<'_>,
    key: &TaskKey,
    change: impl FnOnce(&mut Row, UnixMs) -> bool,
) -> Result<RunNowAnswer> {
    let mut find = session.prepare(&session.queries.row_by_key)?;
    let Some(mut stored) = one(&mut find, [key.as_str()])? else {
        return Ok(RunNowAnswer::Unknown);
    };
    let row = &mut stored.row;
    if !change(row, session.now) {
        return Ok(RunNowAnswer::Refused(row.state(session.now)));
    }
    save(&mut *session.prepare(&session.queries.save)?, row)?;
    Ok(RunNowAnswer::Due(row.arming()))
}

/// Reads rows by id, without payload and result. Returns for how many of them `act` returned true.
pub(super) fn of_rows(
    session: &Session<'_>,
    rows: &[u64],
    mut act: impl FnMut(&mut Stored) -> Result<bool>,
) -> Result<u64> {
    let mut find = session.prepare(&session.queries.row_by_id)?;
    let mut count = 0;
    for row in rows {
        if let Some(mut stored) = some(&mut find, [id(*row)], true)? {
            count += u64::from(act(&mut stored)?);
        }
    }
    Ok(count)
}

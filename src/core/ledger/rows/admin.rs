//! Administration: find, list, run now, redrive, discard.

use std::collections::BTreeMap;
use std::ops::ControlFlow;
use std::time::Duration;

use async_trait::async_trait;

use super::search::search;
use super::store::{At, Columns, DueRange, Parts, RowStore, Store};
use super::{Length, ROWS_MAX, Result, RowLedger, stats, update, update_if};
use crate::ledger::row::{Row, Status};
use crate::ledger::{
    Admin, DetailedStats, DetailedStatsLimits, Forecast, ForecastRange, ListFilter, ListPage,
    Picked, RunNowAnswer, StateFilter, TaskRecord,
};
use crate::task::{Paused, State, TaskKey, UnixMs};

#[async_trait]
impl<L: RowLedger> Admin for L {
    async fn find(&self, key: &TaskKey) -> Result<Option<TaskRecord>> {
        let key = key.clone();
        self.read(Length::Short, move |store| {
            let found = store.row(At::Key(&key), Parts::Whole)?;
            Ok(found.map(|stored| stored.row.record(store.now())))
        })
        .await
    }

    async fn find_archived(&self, key: &TaskKey) -> Result<Option<TaskRecord>> {
        let key = key.clone();
        self.read(Length::Short, move |store| {
            let mut found = None;
            store.in_archive(&mut |archive| {
                found = archive.row(At::Key(&key), Parts::Whole)?;
                Ok(())
            })?;
            Ok(found.map(|stored| archived(stored.row.record(store.now()))))
        })
        .await
    }

    async fn list(&self, filter: &ListFilter) -> Result<ListPage> {
        filter.check_cursor()?;
        let filter = filter.clone();
        self.read(Length::Long, move |store| {
            let (found, now) = (search(store, &filter)?, store.now());
            let mut page = ListPage {
                next: found.next,
                searched: found.searched,
                ..ListPage::default()
            };
            for stored in found.rows {
                match stored.as_malformed(now) {
                    Some(row) => page.malformed.push(row),
                    None if filter.archived => page.tasks.push(archived(stored.row.record(now))),
                    None => page.tasks.push(stored.row.record(now)),
                }
            }
            Ok(page)
        })
        .await
    }

    async fn overdue_for(&self) -> Result<Duration> {
        self.read(Length::Short, |store| stats::overdue_for(store))
            .await
    }

    async fn detailed_stats(&self, limits: DetailedStatsLimits) -> Result<DetailedStats> {
        self.read(Length::Long, move |store| stats::of(store, limits))
            .await
    }

    async fn forecast(&self, range: ForecastRange) -> Result<Forecast> {
        let ahead = DueRange {
            from: (range.from, 0),
            to: UnixMs(range.until().0.saturating_sub(1)),
            ..DueRange::all(Status::Unprocessed.number(), false)
        };
        let most = usize::try_from(range.entries).unwrap_or(usize::MAX);
        self.read(Length::Long, move |store| {
            let mut counted = BTreeMap::new();
            let _ = store.places(ahead, most.saturating_add(1), &mut |(due_at, _)| {
                *counted.entry(range.step_of(due_at)).or_default() += 1;
                ControlFlow::Continue(())
            })?;
            let counted: Vec<(u64, u64)> = counted.into_iter().collect();
            Ok(Forecast::of(&range, &counted))
        })
        .await
    }

    async fn run_now(&self, key: &TaskKey) -> Result<RunNowAnswer> {
        let key = key.clone();
        let run = self.write(Length::Short, move |store: &mut dyn Store| {
            let held_before = Paused::of(&store.pauses()?).held_before_of(&key);
            make_due(store, &key, |row, now| row.run_now(held_before, now))
        });
        let answer = run.await;
        self.note_unsignalled();
        answer
    }

    async fn redrive(&self, key: &TaskKey) -> Result<RunNowAnswer> {
        let key = key.clone();
        let redrive = self.write(Length::Short, move |store| {
            make_due(store, &key, Row::redrive)
        });
        let answer = redrive.await;
        self.note_unsignalled();
        answer
    }

    async fn pick_dead(&self, filter: &ListFilter) -> Result<Picked> {
        let dead = ListFilter {
            states: vec![StateFilter::Is(State::Dead)],
            brief: true,
            ..filter.clone()
        };
        dead.check_live()?;
        dead.check_cursor()?;
        self.read(Length::Long, move |store| {
            let found = search(store, &dead)?;
            Ok(Picked {
                rows: found.rows.iter().map(|stored| stored.row.id).collect(),
                next: found.next,
            })
        })
        .await
    }

    async fn redrive_rows(&self, rows: &[u64]) -> Result<u64> {
        let redriven = update_rows(self, rows, Row::redrive).await;
        self.note_unsignalled();
        redriven
    }

    async fn dead_keys(&self, rows: &[u64]) -> Result<Vec<TaskKey>> {
        let rows = rows.to_vec();
        self.read(Length::Long, move |store| {
            let mut keys = Vec::new();
            for row in rows {
                let found = store.row(At::Row(row), Parts::Brief)?;
                let dead = found.filter(|stored| stored.row.status == Status::Dead);
                keys.extend(dead.and_then(|stored| stored.key()));
            }
            Ok(keys)
        })
        .await
    }

    async fn discard_rows(&self, rows: &[u64]) -> Result<u64> {
        let mut count = 0;
        for rows in rows.chunks(ROWS_MAX) {
            let rows = rows.to_vec();
            let discard = self.write(Length::Long, move |store| {
                delete_rows(store, &rows, |row| row.status == Status::Dead)
            });
            count += discard.await?;
        }
        Ok(count)
    }
}

fn archived(record: TaskRecord) -> TaskRecord {
    TaskRecord {
        archived: true,
        ..record
    }
}

/// Applies `change` to the row of a key. `change` returns false if the state of the row does not allow it.
fn make_due(
    store: &mut dyn RowStore,
    key: &TaskKey,
    change: impl FnOnce(&mut Row, UnixMs) -> bool,
) -> Result<RunNowAnswer> {
    let answer = update(
        store,
        At::Key(key),
        Columns::Brief,
        |row, now| match change(row, now) {
            true => RunNowAnswer::Due(row.arming()),
            false => RunNowAnswer::Refused(row.state(now)),
        },
        |answer| matches!(answer, RunNowAnswer::Due(_)),
    )?;
    Ok(answer.unwrap_or(RunNowAnswer::Unknown))
}

/// Applies `act` to rows, of which it writes those for which it returns true. Returns how many.
pub(super) async fn update_rows(
    ledger: &impl RowLedger,
    rows: &[u64],
    act: fn(&mut Row, UnixMs) -> bool,
) -> Result<u64> {
    let mut count = 0;
    for rows in rows.chunks(ROWS_MAX) {
        let rows = rows.to_vec();
        let update = ledger.write(Length::Long, move |store| {
            let mut count = 0;
            for row in rows {
                count += u64::from(update_if(store, At::Row(row), act)?);
            }
            Ok(count)
        });
        count += update.await?;
    }
    Ok(count)
}

/// Deletes those of these rows that are `obsolete`. Returns how many.
pub(super) fn delete_rows(
    store: &mut dyn RowStore,
    rows: &[u64],
    obsolete: impl Fn(&Row) -> bool,
) -> Result<u64> {
    let mut count = 0;
    for row in rows {
        let found = store.row(At::Row(*row), Parts::Brief)?;
        if found.is_some_and(|stored| obsolete(&stored.row)) {
            store.delete(*row)?;
            count += 1;
        }
    }
    Ok(count)
}

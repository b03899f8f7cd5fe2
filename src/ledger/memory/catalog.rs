//! The verbs of people who look and mend, in memory.

use std::time::Duration;

use async_trait::async_trait;

use super::MemoryLedger;
use super::row::{NEVER, Row, Status};
use crate::ledger::{
    Catalog, LedgerError, ListFilter, ListPage, NudgeAnswer, Picked, Prune, PruneCursor, Pruned,
    StateFilter, Stats, Survey, SurveyLimits, TaskRecord,
};
use crate::task::{Origin, Paused, Recurrence, State, TaskKey, UnixMs};

#[async_trait]
impl Catalog for MemoryLedger {
    async fn find(&self, key: &TaskKey) -> Result<Option<TaskRecord>, LedgerError> {
        let now = self.clock.now();
        Ok(self.book().of_key(key).map(|row| row.record(now)))
    }

    async fn list(&self, filter: &ListFilter) -> Result<ListPage, LedgerError> {
        let now = self.clock.now();
        let book = self.book();
        let limit = filter.limit as usize;
        let rows = book
            .rows
            .range(filter.cursor.unwrap_or(0).saturating_add(1)..)
            .map(|(_, row)| row);
        let rows: Vec<&Row> = rows
            .filter(|row| row.fits(filter, now))
            .take(limit)
            .collect();
        let next = rows
            .last()
            .map(|row| row.id)
            .filter(|_| rows.len() == limit);
        Ok(ListPage {
            tasks: rows.iter().map(|row| row.record(now)).collect(),
            next,
        })
    }

    async fn stats(&self) -> Result<Stats, LedgerError> {
        let now = self.clock.now();
        let mut stats = Stats::default();
        for row in self.book().rows.values() {
            let count = match row.state(now) {
                State::Pending => &mut stats.pending,
                State::Waiting => &mut stats.waiting,
                State::Running => &mut stats.running,
                State::Done => &mut stats.done,
                State::Dead => &mut stats.dead,
                State::Cancelled => &mut stats.cancelled,
            };
            *count += 1;
            if row.free_and_due(now) {
                stats.overdue += 1;
                let overdue = now.since(row.due_at()).as_millis();
                stats.overdue_ms_max = stats
                    .overdue_ms_max
                    .max(u64::try_from(overdue).unwrap_or(u64::MAX));
            }
        }
        Ok(stats)
    }

    async fn survey(&self, _: SurveyLimits) -> Result<Survey, LedgerError> {
        Ok(self.survey_of(self.stats().await?))
    }

    async fn run_now(&self, key: &TaskKey) -> Result<NudgeAnswer, LedgerError> {
        let held_before = Paused::of(&self.book().pauses).held_before_of(key);
        Ok(self.mend(key, |row, now| {
            let pending = matches!(row.state(now), State::Pending | State::Waiting);
            if pending {
                row.changed_at = now;
                if row.recurrence.is_some() {
                    row.start_time = now;
                }
                if row.end_time > now {
                    let before = UnixMs(row.end_time.0 - 1);
                    let one_more = |recurrence: Recurrence| recurrence.moved(before);
                    row.recurrence = row.recurrence.take().map(one_more);
                }
                let held = held_before.is_some_and(|before| row.end_time < before);
                if row.end_time > now || held {
                    row.origin = Origin::Row;
                    row.end_time = now;
                }
                row.retry_at = NEVER;
            }
            pending
        }))
    }

    async fn redrive(&self, key: &TaskKey) -> Result<NudgeAnswer, LedgerError> {
        Ok(self.mend(key, Row::redrive))
    }

    async fn pick_dead(&self, filter: &ListFilter) -> Result<Picked, LedgerError> {
        let dead = ListFilter {
            states: vec![StateFilter::Is(State::Dead)],
            ..filter.clone()
        };
        let now = self.clock.now();
        let book = self.book();
        let behind = filter.cursor.unwrap_or(0).saturating_add(1);
        let rows = book.rows.range(behind..);
        let rows = rows.filter(|(_, row)| row.fits(&dead, now));
        let rows: Vec<u64> = rows
            .map(|(id, _)| *id)
            .take(filter.limit as usize)
            .collect();
        let next = rows
            .last()
            .copied()
            .filter(|_| rows.len() == filter.limit as usize);
        Ok(Picked { rows, next })
    }

    async fn redrive_rows(&self, rows: &[u64]) -> Result<u64, LedgerError> {
        let now = self.clock.now();
        let mut book = self.book();
        let mut redrive = |id: &u64| book.rows.get_mut(id).is_some_and(|row| row.redrive(now));
        Ok(rows.iter().filter(|id| redrive(id)).count() as u64)
    }

    async fn discard_rows(&self, rows: &[u64]) -> Result<u64, LedgerError> {
        let mut book = self.book();
        let mut discard = |id: &u64| {
            let dead = book
                .rows
                .get(id)
                .is_some_and(|row| row.status == Status::Dead);
            dead && book.remove(*id)
        };
        Ok(rows.iter().filter(|id| discard(id)).count() as u64)
    }

    async fn prune(&self, prune: &Prune) -> Result<Pruned, LedgerError> {
        let now = self.clock.now();
        let status = match prune.state {
            State::Done => Status::Processed,
            State::Dead => Status::Dead,
            State::Cancelled => Status::Cancelled,
            State::Pending | State::Waiting | State::Running => return Ok(Pruned::default()),
        };
        let mut book = self.book();
        let since = |row: &Row| row.due_at().max(row.finished());
        let mut rows: Vec<(UnixMs, u64, UnixMs)> = book
            .rows
            .values()
            .filter(|row| row.status == status && !row.is_standing())
            .map(|row| (row.due_at(), row.id, since(row)))
            .collect();
        rows.sort_unstable();
        let after = prune.after.map(|after| (after.due_at, after.row));
        rows.retain(|(due_at, id, _)| after.is_none_or(|after| (*due_at, *id) > after));
        let more = rows.len() > prune.limit as usize;
        rows.truncate(prune.limit as usize);
        let mut pruned = Pruned {
            next: rows
                .last()
                .filter(|_| more)
                .map(|(due_at, row, _)| PruneCursor {
                    deleted: false,
                    due_at: *due_at,
                    row: *row,
                }),
            ..Pruned::default()
        };
        for (_, id, since) in rows {
            let age = now.since(since);
            let spare = since <= now && age >= Prune::AGE_MIN && pruned.surplus < prune.surplus;
            let old = since <= now && prune.age.is_some_and(|limit| age >= limit);
            if !spare && !old {
                continue;
            }
            if prune.dry_run {
                let key = book.rows.get(&id).map(|row| row.key.clone());
                pruned.found.push((id, key));
            }
            if prune.dry_run || book.remove(id) {
                pruned.rows += 1;
                pruned.surplus += u64::from(spare);
            }
        }
        Ok(pruned)
    }

    async fn prune_rows(&self, prune: &Prune, rows: &[u64]) -> Result<u64, LedgerError> {
        let now = self.clock.now();
        let mut book = self.book();
        let youngest = Prune::AGE_MIN.min(prune.age.unwrap_or(Duration::MAX));
        let mut forget = |id: &u64| {
            let goes = book.rows.get(id).is_some_and(|row| {
                row.status != Status::Unprocessed
                    && row.state(now) == prune.state
                    && !row.is_standing()
                    && now.since(row.finished()) >= youngest
            });
            goes && book.remove(*id)
        };
        Ok(rows.iter().filter(|id| forget(id)).count() as u64)
    }

    async fn count_finished(&self, state: State) -> Result<u64, LedgerError> {
        let now = self.clock.now();
        let book = self.book();
        let rows = book.rows.values();
        let finished = rows.filter(|row| row.status != Status::Unprocessed);
        Ok(finished.filter(|row| row.state(now) == state).count() as u64)
    }
}

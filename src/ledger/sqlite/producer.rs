//! Creation of tasks, and the rows of series.

use std::collections::HashSet;
use std::sync::Arc;

use async_trait::async_trait;
use rusqlite::Result;

use super::cancel;
use super::change;
use super::rows::{insert, one, save};
use super::session::{Session, id};
use super::{ROWS_MAX, SqliteLedger};
use crate::ledger::row::Row;
use crate::ledger::{
    CancelAnswer, CancelCursor, CancelFilter, CancelPage, Changed, Created, Decide, IfPending,
    LedgerError, NewTask, Producer, RescheduleAnswer, See, SeriesRow,
};
use crate::task::{Arming, TaskKey, UnixMs};

#[async_trait]
impl Producer for SqliteLedger {
    async fn create(&self, tasks: &[NewTask]) -> Result<Vec<Created>, LedgerError> {
        let tasks = tasks.to_vec();
        self.write(move |session| create(session, &tasks)).await
    }

    async fn series(&self, key: &TaskKey) -> Result<Option<SeriesRow>, LedgerError> {
        let key = key.clone();
        self.read(move |session| {
            let mut find = session.prepare(&session.queries.row_by_key)?;
            let found = one(&mut find, [key.as_str()])?;
            Ok(found.map(|stored| stored.row.series(session.now)))
        })
        .await
    }

    async fn standing(&self, keys: &[TaskKey], see: Arc<dyn See>) -> Result<(), LedgerError> {
        let (keys, is_long) = (keys.to_vec(), keys.len() > 1);
        let look = move |session: &Session<'_>| change::standing(session, &keys, &*see);
        match is_long {
            true => self.read_long(look).await,
            false => self.read(look).await,
        }
    }

    async fn change(
        &self,
        keys: &[TaskKey],
        see: Arc<dyn See>,
        decide: Arc<Decide>,
    ) -> Result<Vec<Changed>, LedgerError> {
        let (keys, is_long) = (keys.to_vec(), keys.len() > 1);
        let change = move |session: &Session<'_>| change::change(session, &keys, &*see, &*decide);
        match is_long {
            true => self.write_long(change).await?,
            false => self.write(change).await?,
        }
    }

    async fn write_series(
        &self,
        task: &NewTask,
        over: Option<&SeriesRow>,
    ) -> Result<Option<Arming>, LedgerError> {
        let (task, over) = (task.clone(), over.cloned());
        self.write(move |session| write_series(session, &task, over.as_ref()))
            .await
    }

    async fn mark_configured(&self, seen: &SeriesRow) -> Result<bool, LedgerError> {
        let seen = seen.clone();
        let row = seen.lookup.arming.row;
        self.change_row(row, move |row, _| row.mark_configured(&seen))
            .await
    }

    async fn reschedule(
        &self,
        key: &TaskKey,
        due: UnixMs,
    ) -> Result<RescheduleAnswer, LedgerError> {
        let key = key.clone();
        self.write(move |session| reschedule(session, &key, due))
            .await
    }

    async fn cancel(&self, keys: &[TaskKey]) -> Result<Vec<CancelAnswer>, LedgerError> {
        let mut answers = Vec::with_capacity(keys.len());
        for part in keys.chunks(ROWS_MAX) {
            let part = part.to_vec();
            let cancel = move |session: &Session<'_>| cancel::cancel(session, &part);
            answers.extend(match keys {
                [_] => self.write(cancel).await?,
                _ => self.write_long(cancel).await?,
            });
        }
        Ok(answers)
    }

    async fn cancel_page(
        &self,
        filter: &CancelFilter,
        before: Option<CancelCursor>,
        dry_run: bool,
    ) -> Result<CancelPage, LedgerError> {
        filter.check()?;
        let filter = filter.clone();
        let page = move |session: &Session<'_>| cancel::page(session, &filter, before, dry_run);
        match dry_run {
            true => self.read_long(page).await,
            false => self.write_long(page).await,
        }
    }
}

/// As [`Producer::create`].
pub(super) fn create(session: &Session<'_>, tasks: &[NewTask]) -> Result<Vec<Created>> {
    let mut write_new = session.prepare(&session.queries.insert)?;
    let mut created: Vec<Option<Created>> = vec![None; tasks.len()];
    for policy in IfPending::ALL {
        let wanted = tasks.iter().zip(&mut created);
        for (task, created) in wanted.filter(|(task, _)| task.if_pending == policy) {
            let mut row = Row::new(0, task, session.now);
            *created = match insert(&mut write_new, &row)? {
                true => {
                    row.id = inserted_id(session);
                    Some(row.created(task, session.now))
                }
                false => create_over(session, task)?,
            };
        }
    }
    let mut keys = HashSet::with_capacity(tasks.len());
    if !tasks.iter().all(|task| keys.insert(&task.key)) {
        // A later request for the same key may have changed its row.
        return tasks.iter().map(|task| answer(session, task)).collect();
    }
    let created = created.into_iter();
    Ok(created
        .map(|created| created.expect("each policy is one of all"))
        .collect())
}

/// Applies the request to the existing row. `None` is never returned for a key that has one.
fn create_over(session: &Session<'_>, task: &NewTask) -> Result<Option<Created>> {
    let mut find = session.prepare(&session.queries.row_by_key)?;
    let Some(mut stored) = one(&mut find, [task.key.as_str()])? else {
        return Ok(None);
    };
    let row = &mut stored.row;
    row.create_over(task, session.now);
    save(&mut *session.prepare(&session.queries.save)?, row)?;
    Ok(Some(row.created(task, session.now)))
}

fn answer(session: &Session<'_>, task: &NewTask) -> Result<Created> {
    let mut find = session.prepare(&session.queries.row_by_key)?;
    let stored = one(&mut find, [task.key.as_str()])?.expect("just created");
    Ok(stored.row.created(task, session.now))
}

fn write_series(
    session: &Session<'_>,
    task: &NewTask,
    over: Option<&SeriesRow>,
) -> Result<Option<Arming>> {
    let mut find = session.prepare(&session.queries.row_by_key)?;
    Ok(match (one(&mut find, [task.key.as_str()])?, over) {
        (None, None) => {
            let mut row = Row::new(0, task, session.now);
            insert(&mut *session.prepare(&session.queries.insert)?, &row)?;
            row.id = inserted_id(session);
            Some(row.arming())
        }
        (Some(mut stored), Some(over)) => {
            let row = &mut stored.row;
            let written = row.write_series(task, over, session.now);
            if written {
                save(&mut *session.prepare(&session.queries.save)?, row)?;
            }
            written.then(|| row.arming())
        }
        _ => None,
    })
}

fn reschedule(session: &Session<'_>, key: &TaskKey, due: UnixMs) -> Result<RescheduleAnswer> {
    let mut find = session.prepare(&session.queries.row_by_key)?;
    let Some(mut stored) = one(&mut find, [key.as_str()])? else {
        return Ok(RescheduleAnswer::Unknown);
    };
    let answer = stored.row.reschedule(due, session.now);
    if let RescheduleAnswer::Moved(_) = answer {
        save(&mut *session.prepare(&session.queries.save)?, &stored.row)?;
    }
    Ok(answer)
}

/// Returns the id of the row that was inserted last.
pub(super) fn inserted_id(session: &Session<'_>) -> u64 {
    u64::try_from(session.connection.last_insert_rowid()).unwrap_or_default()
}

impl SqliteLedger {
    /// Applies `change` to a row, and writes it if `change` returns true. Returns false, too, if there is no such row.
    pub(super) async fn change_row(
        &self,
        row: u64,
        change: impl FnOnce(&mut Row, UnixMs) -> bool + Send + 'static,
    ) -> Result<bool, LedgerError> {
        self.write(move |session| {
            let mut find = session.prepare(&session.queries.row_by_id)?;
            let Some(mut stored) = one(&mut find, [id(row)])? else {
                return Ok(false);
            };
            let changed = change(&mut stored.row, session.now);
            if changed {
                save(&mut *session.prepare(&session.queries.save)?, &stored.row)?;
            }
            Ok(changed)
        })
        .await
    }
}

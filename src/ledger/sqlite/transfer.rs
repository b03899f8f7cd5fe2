//! Moves between ledgers.

use async_trait::async_trait;
use rusqlite::Result;

use super::SqliteLedger;
use super::producer::inserted_id;
use super::rows::{self, insert, one, save};
use super::session::Session;
use super::walk::{Direction, END, START, Walk};
use crate::ledger::LedgerError;
use crate::ledger::row::{Arrival, Row};
use crate::ledger::transfer::{GiveUp, MovePage, MovePlace, MovingTask, Rows, Staged, Transfers};
use crate::task::{TaskKey, UnixMs};

#[async_trait]
impl Transfers for SqliteLedger {
    fn identity(&self) -> Option<String> {
        let (device, inode) = self.file.identity().database?;
        Some(format!("{device} {inode} {}", self.file.table))
    }

    async fn whole_rows(
        &self,
        which: Rows,
        after: Option<MovePlace>,
        limit: u32,
    ) -> Result<MovePage, LedgerError> {
        self.read_long(move |session| page(session, which, after, limit))
            .await
    }

    async fn stage(&self, tasks: &[MovingTask]) -> Result<Vec<Staged>, LedgerError> {
        let tasks = tasks.to_vec();
        self.write_long(move |session| tasks.iter().map(|task| stage(session, task)).collect())
            .await
    }

    async fn freeze(&self, tasks: &[MovingTask]) -> Result<Vec<bool>, LedgerError> {
        let tasks = tasks.to_vec();
        self.write_long(move |session| {
            let freeze = |task: &MovingTask| {
                change(session, task.key(), |row, now| row.freeze(&task.row, now))
                    .map(Option::unwrap_or_default)
            };
            tasks.iter().map(freeze).collect()
        })
        .await
    }

    async fn admit(&self, keys: &[TaskKey]) -> Result<(), LedgerError> {
        let keys = keys.to_vec();
        self.write_long(move |session| each(session, &keys, Row::admit))
            .await
    }

    async fn unstage(&self, keys: &[TaskKey]) -> Result<(), LedgerError> {
        let keys = keys.to_vec();
        self.write_long(move |session| each(session, &keys, Row::unstage))
            .await
    }

    async fn give_up(
        &self,
        keys: &[TaskKey],
        how: GiveUp,
        note: &str,
    ) -> Result<Vec<TaskKey>, LedgerError> {
        let (keys, note) = (keys.to_vec(), note.to_owned());
        self.write_long(move |session| {
            let mut held = Vec::new();
            for key in &keys {
                let is_held = change(session, key, |row, now| row.give_up(how, &note, now))?;
                held.extend((is_held == Some(true)).then(|| key.clone()));
            }
            Ok(held)
        })
        .await
    }

    async fn copy(&self, tasks: &[MovingTask]) -> Result<u64, LedgerError> {
        let tasks = tasks.to_vec();
        self.write_long(move |session| {
            let mut copied = 0;
            for task in &tasks {
                copied += u64::from(write_new(session, &task.row)?);
            }
            Ok(copied)
        })
        .await
    }
}

fn page(
    session: &Session<'_>,
    which: Rows,
    after: Option<MovePlace>,
    limit: u32,
) -> Result<MovePage> {
    let statuses = match which {
        Rows::Unfinished => 0..=0,
        Rows::Finished => 1..=3,
    };
    let mut page = MovePage::default();
    let mut count = 0;
    for (status, deleted) in statuses.flat_map(|status| [(status, false), (status, true)]) {
        let from = match after {
            Some(after) if (status, deleted) < (after.status, after.deleted) => continue,
            Some(after) if (status, deleted) == (after.status, after.deleted) => {
                (after.due_at, after.row)
            }
            _ => START,
        };
        let walk = Walk {
            status,
            deleted,
            direction: Direction::Up,
            from,
            to: END.0,
        };
        let mut list = session.prepare(&session.queries.list_by_due)?;
        let mut found = list.query(walk.values())?;
        while let Some(row) = found.next()? {
            let stored = rows::read(row)?;
            count += 1;
            let place = MovePlace {
                status,
                deleted,
                due_at: stored.row.due_at(),
                row: stored.row.id,
            };
            match stored.malformed {
                None => page.tasks.push(MovingTask { row: stored.row }),
                Some(_) => page.foreign += 1,
            }
            if count == limit {
                page.next = Some(place);
                return Ok(page);
            }
        }
    }
    Ok(page)
}

fn stage(session: &Session<'_>, task: &MovingTask) -> Result<Staged> {
    let mut find = session.prepare(&session.queries.row_by_key)?;
    let over = one(&mut find, [task.key().as_str()])?.map(|stored| stored.row);
    Ok(match task.row.arrive(over.as_ref(), session.now) {
        Arrival::Known => Staged::Known,
        Arrival::Busy => Staged::Busy,
        Arrival::Write => {
            match &over {
                Some(over) => {
                    let row = task.row.staged(over.id, Some(over));
                    save(&mut *session.prepare(&session.queries.save)?, &row)?;
                }
                None => {
                    write_new(session, &task.row.staged(0, None))?;
                }
            }
            Staged::Held
        }
    })
}

/// Writes a whole row, unless its key has one. Returns whether it did.
fn write_new(session: &Session<'_>, row: &Row) -> Result<bool> {
    let written = insert(&mut *session.prepare(&session.queries.insert)?, row)?;
    if written {
        let row = Row {
            id: inserted_id(session),
            ..row.clone()
        };
        save(&mut *session.prepare(&session.queries.save)?, &row)?;
    }
    Ok(written)
}

fn each(session: &Session<'_>, keys: &[TaskKey], act: fn(&mut Row, UnixMs)) -> Result<()> {
    for key in keys {
        change(session, key, act)?;
    }
    Ok(())
}

/// Applies `act` to the row of a key, and writes it. `None`: the key has no row.
fn change<T>(
    session: &Session<'_>,
    key: &TaskKey,
    act: impl FnOnce(&mut Row, UnixMs) -> T,
) -> Result<Option<T>> {
    let mut find = session.prepare(&session.queries.row_by_key)?;
    let Some(mut stored) = one(&mut find, [key.as_str()])? else {
        return Ok(None);
    };
    let done = act(&mut stored.row, session.now);
    save(&mut *session.prepare(&session.queries.save)?, &stored.row)?;
    Ok(Some(done))
}

//! Moves between ledgers.

use std::collections::{HashMap, HashSet};

use async_trait::async_trait;

use super::connection::{Conn, Statement, statement};
use super::decode::origin_number;
use super::error::error;
use super::error_numbers::is_about_data;
use super::queries::{self, padded};
use super::{BATCH_MAX, MysqlLedger, decode, retried};
use lapsed_core::ledger::LedgerError;
use lapsed_core::ledger::row::{Arrival, Row};
use lapsed_core::ledger::transfer::{
    GiveUp, HeldTask, MovePage, MovePlace, MovingTask, Rows, Staged, Transfers,
};
use lapsed_core::task::{AttemptError, Contents, TaskKey, UnixMs};

#[async_trait]
impl Transfers for MysqlLedger {
    fn identity(&self) -> Option<String> {
        self.identity.get().cloned()
    }

    async fn whole_rows(
        &self,
        which: Rows,
        after: Option<MovePlace>,
        limit: u32,
    ) -> Result<MovePage, LedgerError> {
        let (first, last) = match which {
            Rows::Unfinished => (0, 0),
            Rows::Finished => (1, 3),
        };
        let after = after.unwrap_or(MovePlace {
            status: first,
            deleted: false,
            due_at: UnixMs(0),
            row: 0,
        });
        let question = || {
            statement(self.queries.whole_page())
                .bind(i64::from(after.status))
                .bind(i64::from(after.deleted))
                .bind(after.due_at.0)
                .bind(after.row)
                .bind(after.due_at.0)
                .bind(limit)
        };
        let found = retried!(self, |conn| conn.fetch(question()))?;
        let mut page = MovePage::default();
        for row in &found {
            match decode::whole(row).map_err(error)? {
                Some(row) => page.tasks.push(MovingTask { row }),
                None => page.foreign += 1,
            }
        }
        page.next = match (found.last(), after.deleted) {
            (Some(last), deleted) if found.len() == limit as usize => {
                let (due_at, row) = decode::place(last).map_err(error)?;
                Some(MovePlace {
                    status: after.status,
                    deleted,
                    due_at,
                    row,
                })
            }
            (_, false) => Some(start_of(after.status, true)),
            (_, true) if after.status < last => Some(start_of(after.status + 1, false)),
            (_, true) => None,
        };
        Ok(page)
    }

    async fn stage(&self, tasks: &[MovingTask]) -> Result<Vec<Staged>, LedgerError> {
        let keys: Vec<TaskKey> = tasks.iter().map(|task| task.key().clone()).collect();
        let mut conn = self.pools.acquire().await?;
        let existing = self.whole_rows(&mut conn, &keys).await.map_err(error)?;
        let now = self.clock.now();
        let (mut answers, mut new) = (Vec::with_capacity(tasks.len()), Vec::new());
        for task in tasks {
            let over = existing.get(task.key());
            let staged = || task.row.staged(0, over);
            answers.push(match (task.row.arrive(over, now), over) {
                (Arrival::Known, _) => Staged::Known,
                (Arrival::Busy, _) => Staged::Busy,
                (Arrival::Write, None) => {
                    new.push(staged());
                    Staged::Held
                }
                (Arrival::Write, Some(over)) => {
                    let update = self.update_whole(&staged(), over);
                    match conn.execute(update).await {
                        Ok(_) => Staged::Held,
                        Err(failure) if is_about_data(&failure) => {
                            Staged::Unfit(error(failure).to_string())
                        }
                        Err(failure) => return Err(error(failure)),
                    }
                }
            });
        }
        let unfit = self.insert_whole(&mut conn, new).await?;
        let held = self
            .held_keys(&mut conn, &held(tasks))
            .await
            .map_err(error)?;
        for (task, answer) in tasks.iter().zip(&mut answers) {
            if let Some(why) = unfit.get(task.key()) {
                *answer = Staged::Unfit(why.clone());
            } else if *answer == Staged::Held && !held.contains(task.key()) {
                // Another session has written the row meanwhile.
                *answer = Staged::Busy;
            }
        }
        Ok(answers)
    }

    async fn freeze(&self, tasks: &[MovingTask]) -> Result<Vec<bool>, LedgerError> {
        if tasks.is_empty() {
            return Ok(Vec::new());
        }
        let rows: Vec<&Row> = tasks.iter().map(|task| &task.row).collect();
        let mut conn = self.pools.acquire().await?;
        let frozen = self.locks.skip_locked(
            &mut conn,
            &self.queries,
            &rows,
            |row| row.id,
            |conn, batch| Box::pin(conn.execute(self.freezing(batch))),
        );
        frozen.await.map_err(error)?;
        let held = self
            .held_keys(&mut conn, &held(tasks))
            .await
            .map_err(error)?;
        Ok(tasks.iter().map(|task| held.contains(task.key())).collect())
    }

    async fn admit(&self, tasks: &[HeldTask]) -> Result<(), LedgerError> {
        self.each_of(queries::MARK_ADMITTED, tasks).await?;
        self.each_of(queries::REVIVE, tasks).await?;
        self.each_of(queries::END_HOLD, tasks).await
    }

    async fn unstage(&self, tasks: &[HeldTask]) -> Result<(), LedgerError> {
        self.each_of(queries::UNSTAGE, tasks).await?;
        self.end_other_holds(tasks).await
    }

    async fn give_up(
        &self,
        tasks: &[HeldTask],
        how: GiveUp,
        note: &str,
    ) -> Result<Vec<HeldTask>, LedgerError> {
        if tasks.is_empty() {
            return Ok(Vec::new());
        }
        match how {
            GiveUp::Moved => {
                let give_up = || {
                    let update = self.of_tasks(queries::GIVE_UP, tasks);
                    bind_tasks(statement(update).bind(note.to_owned()), tasks)
                };
                retried!(self, |conn| conn.execute(give_up()))?;
                self.end_other_holds(tasks).await?;
            }
            GiveUp::Cancelled => self.each_of(queries::END_CANCELLED_HOLD, tasks).await?,
        }
        let mut conn = self.pools.acquire().await?;
        let held = self.held_keys(&mut conn, tasks).await.map_err(error)?;
        let tasks = tasks.iter().filter(|task| held.contains(&task.key));
        Ok(tasks.cloned().collect())
    }

    async fn copy(&self, tasks: &[MovingTask]) -> Result<u64, LedgerError> {
        let keys: Vec<TaskKey> = tasks.iter().map(|task| task.key().clone()).collect();
        let mut conn = self.pools.acquire().await?;
        let existing = self.whole_rows(&mut conn, &keys).await.map_err(error)?;
        let missing = tasks
            .iter()
            .filter(|task| !existing.contains_key(task.key()));
        let missing: Vec<Row> = missing.map(|task| task.row.clone()).collect();
        let count = missing.len();
        let unfit = self.insert_whole(&mut conn, missing).await?;
        Ok((count - unfit.len()) as u64)
    }
}

impl MysqlLedger {
    async fn whole_rows(
        &self,
        conn: &mut Conn,
        keys: &[TaskKey],
    ) -> sqlx::Result<HashMap<TaskKey, Row>> {
        if keys.is_empty() {
            return Ok(HashMap::new());
        }
        let question = self.queries.whole_keys(padded(&refs(keys)).len());
        let found = conn.fetch(bind_keys(statement(question), keys)).await?;
        let rows = found
            .iter()
            .filter_map(|row| decode::whole(row).transpose());
        rows.map(|row| row.map(|row| (row.key.clone(), row)))
            .collect()
    }

    async fn held_keys(
        &self,
        conn: &mut Conn,
        tasks: &[HeldTask],
    ) -> sqlx::Result<HashSet<TaskKey>> {
        if tasks.is_empty() {
            return Ok(HashSet::new());
        }
        let question = self.of_tasks(queries::HELD_KEYS, tasks);
        let found = conn.fetch(bind_tasks(statement(question), tasks)).await?;
        let held = found.iter().filter_map(|row| decode::key(row).transpose());
        held.collect()
    }

    async fn each_of(&self, template: &str, tasks: &[HeldTask]) -> Result<(), LedgerError> {
        if tasks.is_empty() {
            return Ok(());
        }
        let update = || bind_tasks(statement(self.of_tasks(template, tasks)), tasks);
        retried!(self, |conn| conn.execute(update()))?;
        Ok(())
    }

    async fn end_other_holds(&self, tasks: &[HeldTask]) -> Result<(), LedgerError> {
        if tasks.is_empty() {
            return Ok(());
        }
        let keys: Vec<TaskKey> = tasks.iter().map(|task| task.key.clone()).collect();
        let update = || {
            let update = self.of_tasks(queries::END_OTHER_HOLD, tasks);
            bind_keys(statement(update), &keys)
        };
        retried!(self, |conn| conn.execute(update()))?;
        Ok(())
    }

    /// A statement with lists of keys and tokens.
    fn of_tasks(&self, template: &str, tasks: &[HeldTask]) -> String {
        let tasks: Vec<&HeldTask> = tasks.iter().collect();
        self.queries.with_keys(template, padded(&tasks).len())
    }

    fn freezing(&self, rows: &[&Row]) -> Statement<'static> {
        let rows = padded(rows);
        let update = statement(self.queries.freeze(rows.len()));
        let update = rows.iter().fold(update, |update, row| update.bind(row.id));
        rows.iter().fold(update, |update, row| {
            update
                .bind(row.id)
                .bind(row.start_time.0)
                .bind(row.end_time.0)
                .bind(row.changed_at.0)
                .bind(row.run_end.0)
                .bind(row.retry_at.0)
                .bind(row.attempt)
        })
    }

    fn update_whole(&self, row: &Row, over: &Row) -> Statement<'static> {
        let update = statement(self.queries.plain(queries::UPDATE_WHOLE));
        bind_whole(update, row)
            .bind(over.id)
            .bind(over.end_time.0)
            .bind(over.status.number())
            .bind(over.deleted)
            .bind(over.owner.map(|owner| owner.0.to_vec()))
            .bind(over.changed_at.0)
            .bind(over.lease_until.0)
            .bind(over.attempt)
            .bind(over.retry_at.0)
    }

    /// Inserts rows, some at a time. Returns those that the server refuses, with its reason.
    async fn insert_whole(
        &self,
        conn: &mut Conn,
        rows: Vec<Row>,
    ) -> Result<HashMap<TaskKey, String>, LedgerError> {
        let mut unfit = HashMap::new();
        let packet_max = conn.packet_max();
        let (rows, too_long): (Vec<Row>, Vec<Row>) = rows.into_iter().partition(|row| {
            let what = format!("task `{}`", row.key);
            packet_max.too_long(&what, of_row(row)).is_none()
        });
        for row in too_long {
            let what = format!("task `{}`", row.key);
            let why = packet_max.too_long(&what, of_row(&row));
            unfit.extend(why.map(|why| (row.key, why)));
        }
        let parts = packet_max.parts(&rows, BATCH_MAX, of_row);
        let mut parts: Vec<Vec<Row>> = parts.into_iter().map(<[Row]>::to_vec).collect();
        while let Some(mut part) = parts.pop() {
            let insert = statement(self.queries.insert_whole(part.len()));
            let insert = part.iter().fold(insert, bind_whole);
            match conn.execute(insert).await {
                Ok(_) => {}
                Err(failure) if is_about_data(&failure) && part.len() > 1 => {
                    let half = part.split_off(part.len() / 2);
                    parts.extend([part, half]);
                }
                Err(failure) if is_about_data(&failure) => {
                    unfit.insert(part[0].key.clone(), error(failure).to_string());
                }
                Err(failure) => return Err(error(failure)),
            }
        }
        Ok(unfit)
    }
}

fn start_of(status: u8, deleted: bool) -> MovePlace {
    MovePlace {
        status,
        deleted,
        due_at: UnixMs(0),
        row: 0,
    }
}

fn refs(keys: &[TaskKey]) -> Vec<&TaskKey> {
    keys.iter().collect()
}

fn bind_keys(about: Statement<'static>, keys: &[TaskKey]) -> Statement<'static> {
    let keys = padded(&refs(keys));
    keys.iter()
        .fold(about, |about, key| about.bind(key.to_string()))
}

/// The keys, then the tokens.
fn bind_tasks(about: Statement<'static>, tasks: &[HeldTask]) -> Statement<'static> {
    let tasks: Vec<&HeldTask> = tasks.iter().collect();
    let tasks = padded(&tasks);
    let about = tasks
        .iter()
        .fold(about, |about, task| about.bind(task.key.to_string()));
    tasks
        .iter()
        .fold(about, |about, task| about.bind(task.token().0.to_vec()))
}

fn held(tasks: &[MovingTask]) -> Vec<HeldTask> {
    tasks.iter().map(MovingTask::held).collect()
}

fn bind_whole(into: Statement<'static>, row: &Row) -> Statement<'static> {
    let Row {
        id: _,
        key,
        status,
        deleted,
        start_time,
        end_time,
        owner,
        daemon,
        lease_until,
        run_end,
        retry_at,
        attempt,
        crashes,
        contents:
            Contents {
                payload,
                tag,
                max_attempts,
            },
        recurrence,
        last_error,
        reason,
        history,
        result,
        finished_at,
        changed_at,
        origin,
        claimed_at,
        // Of a run, and nothing that runs is moved.
        progress: _,
    } = row;
    let history: Vec<String> = history.iter().map(AttemptError::to_line).collect();
    into.bind(key.to_string())
        .bind(status.number())
        .bind(deleted)
        .bind(start_time.0)
        .bind(end_time.0)
        .bind(owner.map(|owner| owner.0.to_vec()))
        .bind(daemon.clone())
        .bind(lease_until.0)
        .bind(run_end.0)
        .bind(retry_at.0)
        .bind(attempt)
        .bind(crashes)
        .bind(max_attempts)
        .bind(origin_number(*origin))
        .bind(tag.clone())
        .bind(payload.clone())
        .bind(recurrence.as_ref().map(ToString::to_string))
        .bind(last_error.clone())
        .bind(reason.map(|reason| reason.to_string()))
        .bind((!history.is_empty()).then(|| history.join("\n")))
        .bind(result.clone())
        .bind(finished_at.map(|at| at.0))
        .bind(changed_at.0)
        .bind(claimed_at.0)
}

/// Length of the texts of a row.
fn of_row(row: &Row) -> usize {
    let texts = [&row.contents.payload, &row.result, &row.last_error];
    let texts: usize = texts.into_iter().flatten().map(String::len).sum();
    let history = row
        .history
        .iter()
        .map(|attempt_error| attempt_error.to_line().len());
    row.key.as_str().len() + texts + history.sum::<usize>()
}

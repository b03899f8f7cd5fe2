//! Changes of several tasks in one transaction.

use std::collections::HashMap;
use std::sync::Arc;

use super::connection::{Conn, statement};
use super::error::error;
use super::error_numbers::is_duplicate;
use super::queries::{self, padded};
use super::{BATCH_MAX, MysqlLedger, decode, retried, sizes};
use lapsed_core::ledger::{Change, Changed, Decide, LedgerError, Lookup, NewTask, See};
use lapsed_core::task::{Arming, State, TaskKey, UnixMs};

/// Attempts to write tasks while others write tasks of the same keys.
const DUPLICATE_ATTEMPTS: u32 = 5;

/// Rows that are read with their values by a statement: 4 MiB at most.
const ROWS_READ: usize = 64;

impl MysqlLedger {
    pub(super) async fn rows_of(&self, keys: &[TaskKey], see: &dyn See) -> Result<(), LedgerError> {
        let mut conn = self.pools.acquire().await?;
        let read = self.read_rows_of(&mut conn, keys, "", see).await;
        read.map(|_| ()).map_err(error)
    }

    /// Runs in a task of its own: a transaction that ends midway would keep its locks until its connection is closed.
    pub(super) async fn change_in_one(
        &self,
        keys: &[TaskKey],
        see: Arc<dyn See>,
        decide: Arc<Decide>,
    ) -> Result<Vec<Changed>, LedgerError> {
        self.now().await?;
        let named: Vec<&TaskKey> = keys.iter().collect();
        self.refuse_unfit(&named).await?;
        let (ledger, keys) = (self.clone(), keys.to_vec());
        let change = async move {
            retried!(ledger, |conn| ledger
                .change_once(conn, &keys, &*see, &*decide))
        };
        tokio::spawn(change).await.unwrap_or_else(|_| {
            Err(LedgerError::Unavailable {
                message: "the runtime that was writing has ended".to_owned(),
                source: None,
            })
        })
    }

    async fn change_once(
        &self,
        conn: &mut Conn,
        keys: &[TaskKey],
        see: &dyn See,
        decide: &Decide,
    ) -> sqlx::Result<Vec<Changed>> {
        let mut attempt = 1;
        loop {
            conn.command("START TRANSACTION").await?;
            let error = match self.change_within(conn, keys, see, decide).await {
                Ok(changed) => {
                    conn.command("COMMIT").await?;
                    return Ok(changed);
                }
                Err(error) => error,
            };
            if error.as_database_error().is_some() {
                conn.command("ROLLBACK").await?;
            }
            // Another session has created a task since it was read.
            if !is_duplicate(&error) || attempt == DUPLICATE_ATTEMPTS {
                return Err(error);
            }
            attempt += 1;
        }
    }

    async fn change_within(
        &self,
        conn: &mut Conn,
        keys: &[TaskKey],
        see: &dyn See,
        decide: &Decide,
    ) -> sqlx::Result<Vec<Changed>> {
        let rows = self.read_rows_of(conn, keys, " FOR UPDATE", see).await?;
        let changes = decide(self.clock.now());
        let mut cancelled: Vec<&str> = Vec::new();
        let (mut new, mut over): (Vec<&NewTask>, Vec<&NewTask>) = (Vec::new(), Vec::new());
        let mut changed = vec![Changed::Kept; keys.len()];
        for (index, change) in changes.iter().enumerate() {
            let (key, row) = (&keys[index], rows[index].as_ref());
            match (change, row) {
                (Change::Keep, _) | (Change::Cancel | Change::Move(_), None) => {}
                (Change::Cancel, Some(_)) => {
                    cancelled.push(key.as_str());
                    changed[index] = Changed::Cancelled;
                }
                (Change::Move(due), Some(row)) => {
                    if self.move_row(conn, key, *due).await? {
                        let row = row.arming.row;
                        changed[index] = Changed::Armed(Arming { row, due: *due });
                    }
                }
                (Change::Write(task), None) => new.push(task),
                (Change::Write(task), Some(row)) => {
                    // A frozen run of the same due time must not complete what takes its place. One that goes on is of an
                    // older arming, or keeps its row.
                    if row.arming.due == task.due && row.state != State::Running {
                        cancelled.push(key.as_str());
                    }
                    over.push(task);
                }
            }
        }
        self.cancel_keys(conn, &mut cancelled).await?;
        self.insert_new(conn, &mut new).await?;
        let over: Vec<NewTask> = over.into_iter().map(NewTask::over_any).collect();
        let over: Vec<&NewTask> = over.iter().collect();
        for part in conn
            .packet_max()
            .parts(&over, BATCH_MAX, |task| sizes::of_task(task))
        {
            for (sql, tasks) in self.creations(part) {
                conn.execute(self.creation(sql, &tasks)).await?;
            }
        }
        let written: Vec<&str> = changes
            .iter()
            .zip(keys)
            .filter(|(change, _)| matches!(change, Change::Write(_)))
            .map(|(_, key)| key.as_str())
            .collect();
        let lookups = self.look_up_rows(conn, &written).await?;
        for (key, changed) in keys.iter().zip(&mut changed) {
            if let Some(row) = lookups.get(key.as_str()) {
                *changed = Changed::Armed(row.arming);
            }
        }
        Ok(changed)
    }

    /// Reads rows, and locks them if `lock` says so. Returns their states in the order of `keys`.
    async fn read_rows_of(
        &self,
        conn: &mut Conn,
        keys: &[TaskKey],
        lock: &str,
        see: &dyn See,
    ) -> sqlx::Result<Vec<Option<Lookup>>> {
        let texts: Vec<&str> = keys.iter().map(TaskKey::as_str).collect();
        let charset = self.charset_for(conn, &texts).await?;
        let mut places: HashMap<&str, usize> = HashMap::with_capacity(texts.len());
        let mut rows: Vec<Option<Lookup>> = Vec::with_capacity(texts.len());
        for (place, key) in texts.iter().enumerate() {
            rows.push(None);
            if charset.holds(key) {
                places.insert(key, place);
            }
        }
        let fitting = texts.iter().filter(|key| places.contains_key(*key));
        let fitting: Vec<&str> = fitting.copied().collect();
        for part in fitting.chunks(ROWS_READ) {
            let part = padded(part);
            let question = self.queries.rows(part.len()) + lock;
            let question = part.iter().fold(statement(question), |question, key| {
                question.bind((*key).to_owned())
            });
            for row in conn.fetch(question).await? {
                let key = decode::LookupRow::read(&row)?.key;
                if let Some(&place) = places.get(key.as_str()) {
                    let row = decode::series(&row)?;
                    rows[place] = Some(row.lookup.clone());
                    see.see(place, Some(row));
                }
            }
        }
        let missing = rows.iter().enumerate().filter(|(_, row)| row.is_none());
        missing.for_each(|(place, _)| see.see(place, None));
        Ok(rows)
    }

    async fn move_row(&self, conn: &mut Conn, key: &TaskKey, due: UnixMs) -> sqlx::Result<bool> {
        let update = statement(self.queries.plain(queries::RESCHEDULE)).bind(due.0);
        Ok(conn.execute(update.bind(key.to_string())).await? > 0)
    }

    async fn cancel_keys(&self, conn: &mut Conn, keys: &mut [&str]) -> sqlx::Result<()> {
        keys.sort_unstable();
        for part in keys.chunks(BATCH_MAX) {
            let part = padded(part);
            let update = statement(self.queries.with_keys(queries::CANCEL, part.len()));
            let bind = |update: super::connection::Statement<'static>, key: &&str| {
                update.bind((*key).to_owned())
            };
            conn.execute(part.iter().fold(update, bind)).await?;
        }
        Ok(())
    }

    /// Inserts tasks whose keys have no rows. A number of rows that is a power of two, since each number is a prepared
    /// statement.
    ///
    /// # Errors
    /// A duplicate key: another session has created one of them.
    async fn insert_new(&self, conn: &mut Conn, tasks: &mut [&NewTask]) -> sqlx::Result<()> {
        tasks.sort_unstable_by(|one, other| one.key.cmp(&other.key));
        let mut rest = &tasks[..];
        while !rest.is_empty() {
            let packet_max = conn.packet_max();
            let most = packet_max.first(rest, BATCH_MAX, |task| sizes::of_task(task));
            let count = power_of_two_within(most);
            let (part, more) = rest.split_at(count);
            conn.execute(self.creation(self.queries.insert(count), part))
                .await?;
            rest = more;
        }
        Ok(())
    }
}

/// The largest power of two that is at most `most`, which is at least 1.
fn power_of_two_within(most: usize) -> usize {
    (most / 2 + 1).next_power_of_two()
}

#[cfg(test)]
mod tests {
    use super::power_of_two_within;

    #[test]
    fn a_part_is_the_largest_power_of_two_that_fits() {
        let parts = [1, 2, 3, 4, 5, 7, 8, 500, 512].map(power_of_two_within);
        assert_eq!(parts, [1, 2, 2, 4, 4, 4, 8, 256, 512]);
    }
}

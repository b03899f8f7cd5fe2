//! Batches that skip rows locked by another session.
//!
//! InnoDB makes a whole statement wait for one locked row. When that happens, a query asks which rows of the batch are free
//! (`SKIP LOCKED`, only as a hint), and the statement runs again for those. If the hint finds no locked row (a server may
//! ignore it), the batch is halved until the locked row is alone. For a while after a lock was met, batches ask first, so
//! that a transaction that stays open for minutes does not cost every batch a second.

use std::collections::HashSet;
use std::sync::Mutex;
use std::time::Duration;

use futures_util::future::BoxFuture;
use sqlx::Row as _;
use tokio::time::Instant;

use super::connection::{Conn, about_rows};
use super::error_numbers::{is_deadlock, is_locked};
use super::queries::{EXISTING, Queries, UNLOCKED};

/// How long batches ask first after a lock was met.
const ASK_FIRST_FOR: Duration = Duration::from_secs(10);

/// Number of retries after a deadlock.
const DEADLOCK_RETRIES: u32 = 3;

/// Remembers when a lock was met last.
#[derive(Debug, Default)]
pub(super) struct Locks {
    met: Mutex<Option<Instant>>,
}

/// Result of [`Locks::skip_locked`].
#[derive(Debug)]
pub(super) struct SkippedLocked<T> {
    /// Number of rows that the statements matched.
    pub matched: u64,
    /// Items whose rows were locked. Nothing was done to them.
    pub locked: Vec<T>,
}

impl Locks {
    /// Runs `act` over `items`, each of which names one row, ordered by row. Leaves out those that another session has
    /// locked.
    pub async fn skip_locked<T, F>(
        &self,
        conn: &mut Conn,
        queries: &Queries,
        items: &[T],
        row: fn(&T) -> u64,
        act: F,
    ) -> sqlx::Result<SkippedLocked<T>>
    where
        T: Clone + Send + Sync,
        F: for<'a> Fn(&'a mut Conn, &'a [T]) -> BoxFuture<'a, sqlx::Result<u64>> + Send + Sync,
    {
        let mut items = items.to_vec();
        items.sort_by_key(row);
        let mut done = SkippedLocked {
            matched: 0,
            locked: Vec::new(),
        };
        if self.has_met_lock() {
            let (free, locked) = self.part(conn, queries, items, row).await?;
            items = free;
            done.locked = locked;
        }
        let mut batches = vec![items];
        let mut retries = 0;
        while let Some(batch) = batches.pop() {
            if batch.is_empty() {
                continue;
            }
            match act(conn, &batch).await {
                Ok(matched) => done.matched += matched,
                Err(error) if is_deadlock(&error) && retries < DEADLOCK_RETRIES => {
                    retries += 1;
                    batches.push(batch);
                }
                Err(error) if is_locked(&error) => {
                    self.met();
                    self.divide(conn, queries, batch, row, &mut batches, &mut done.locked)
                        .await?;
                }
                Err(error) => return Err(error),
            }
        }
        Ok(done)
    }

    /// Runs `act` on one row. `None` if another session has locked it: then nothing waits, unless the server cannot tell.
    pub async fn without_waiting<F>(
        &self,
        conn: &mut Conn,
        queries: &Queries,
        row: u64,
        act: F,
    ) -> sqlx::Result<Option<u64>>
    where
        F: for<'a> FnOnce(&'a mut Conn) -> BoxFuture<'a, sqlx::Result<u64>> + Send,
    {
        let (_, locked) = self.part(conn, queries, vec![row], |row| *row).await?;
        if !locked.is_empty() {
            return Ok(None);
        }
        match act(conn).await {
            Ok(matched) => Ok(Some(matched)),
            Err(error) if is_locked(&error) => Ok(None),
            Err(error) => Err(error),
        }
    }

    async fn divide<T: Clone + Send>(
        &self,
        conn: &mut Conn,
        queries: &Queries,
        batch: Vec<T>,
        row: fn(&T) -> u64,
        batches: &mut Vec<Vec<T>>,
        locked: &mut Vec<T>,
    ) -> sqlx::Result<()> {
        if batch.len() == 1 {
            locked.extend(batch);
            return Ok(());
        }
        let (free, held) = self.part(conn, queries, batch, row).await?;
        if held.is_empty() {
            let (left, right) = free.split_at(free.len() / 2);
            batches.push(right.to_vec());
            batches.push(left.to_vec());
        } else {
            locked.extend(held);
            batches.push(free);
        }
        Ok(())
    }

    /// Divides items into free and locked ones. All are free if the server does not know `SKIP LOCKED`.
    pub async fn part<T: Clone>(
        &self,
        conn: &mut Conn,
        queries: &Queries,
        items: Vec<T>,
        row: fn(&T) -> u64,
    ) -> sqlx::Result<(Vec<T>, Vec<T>)> {
        if items.is_empty() {
            return Ok((items, Vec::new()));
        }
        let free = match ids(conn, queries, UNLOCKED, &items, row).await {
            Ok(free) => free,
            Err(error) if error.as_database_error().is_some() => return Ok((items, Vec::new())),
            Err(error) => return Err(error),
        };
        let (mut free, held): (Vec<T>, Vec<T>) = items
            .into_iter()
            .partition(|item| free.contains(&row(item)));
        if held.is_empty() {
            return Ok((free, held));
        }
        // A row that is gone is not locked. Taken for locked, it would be tried again without end.
        let existing = ids(conn, queries, EXISTING, &held, row).await?;
        let (held, gone): (Vec<T>, Vec<T>) = held
            .into_iter()
            .partition(|item| existing.contains(&row(item)));
        free.extend(gone);
        free.sort_by_key(row);
        if !held.is_empty() {
            self.met();
        }
        Ok((free, held))
    }

    fn met(&self) {
        *self.met.lock().expect("nothing panics while holding it") = Some(Instant::now());
    }

    fn has_met_lock(&self) -> bool {
        let met = *self.met.lock().expect("nothing panics while holding it");
        met.is_some_and(|met| met.elapsed() < ASK_FIRST_FOR)
    }
}

/// Returns the ids of those items that a query returns.
async fn ids<T>(
    conn: &mut Conn,
    queries: &Queries,
    template: &str,
    items: &[T],
    row: fn(&T) -> u64,
) -> sqlx::Result<HashSet<u64>> {
    let ids: Vec<u64> = items.iter().map(row).collect();
    let rows = conn.fetch(about_rows(queries, template, &ids)).await?;
    rows.iter().map(|row| row.try_get_unchecked(0)).collect()
}

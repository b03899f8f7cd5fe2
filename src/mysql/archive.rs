//! The archive of finished tasks: rows are copied and deleted in one transaction.

use std::sync::Arc;
use std::time::Duration;

use sqlx::Row as _;

use super::connection::{Conn, about_rows};
use super::error::error;
use super::error_numbers::{is_duplicate, is_missing_table};
use super::migrate::{self, MigrateError};
use super::{MysqlLedger, queries};
use lapsed_core::ledger::{ArchiveMaintenance, LedgerError};

impl MysqlLedger {
    /// Moves those of `rows` that are prunable to the archive. Skips rows that another session has locked. Returns how many.
    ///
    /// # Cancel safety
    /// The move continues in a task of its own: a connection with an open transaction must not return to the pool.
    pub(super) async fn archive_rows(
        &self,
        rows: &[u64],
        status: i64,
        age_ms: i64,
    ) -> Result<u64, LedgerError> {
        let (ledger, rows) = (Arc::new(self.clone()), rows.to_vec());
        let archived = tokio::spawn(async move {
            let mut conn = ledger.pools.acquire().await?;
            let done = ledger.locks.skip_locked(
                &mut conn,
                &ledger.queries,
                &rows,
                |id| *id,
                |conn, ids| {
                    let ledger = Arc::clone(&ledger);
                    let batch =
                        async move { ledger.archive_batch(conn, ids, status, age_ms).await };
                    Box::pin(batch)
                },
            );
            let done = done.await;
            Ok(done.map_err(|error| ledger.archive_error(error))?.matched)
        });
        archived.await.unwrap_or_else(|_| {
            Err(LedgerError::Unavailable {
                message: "the runtime that was archiving has ended".to_owned(),
                source: None,
            })
        })
    }

    async fn archive_batch(
        &self,
        conn: &mut Conn,
        ids: &[u64],
        status: i64,
        age_ms: i64,
    ) -> sqlx::Result<u64> {
        let within = self.archive_once(conn, ids, status, age_ms, queries::ARCHIVE_ROWS);
        match within.await {
            // A ledger that was restored from a dump has rows that its archive has, too.
            Err(error) if is_duplicate(&error) => {
                let others = queries::ARCHIVE_OTHERS;
                self.archive_once(conn, ids, status, age_ms, others).await
            }
            archived => archived,
        }
    }

    async fn archive_once(
        &self,
        conn: &mut Conn,
        ids: &[u64],
        status: i64,
        age_ms: i64,
        copy: &str,
    ) -> sqlx::Result<u64> {
        conn.command("START TRANSACTION").await?;
        match self.archive_within(conn, ids, status, age_ms, copy).await {
            Ok(archived) => {
                conn.command("COMMIT").await?;
                Ok(archived)
            }
            Err(error) => {
                if error.as_database_error().is_some() {
                    conn.command("ROLLBACK").await?;
                }
                Err(error)
            }
        }
    }

    async fn archive_within(
        &self,
        conn: &mut Conn,
        ids: &[u64],
        status: i64,
        age_ms: i64,
        copy: &str,
    ) -> sqlx::Result<u64> {
        let lock = about_rows(&self.queries, queries::LOCK_PRUNABLE, ids);
        let locked = conn.fetch(lock.bind(status).bind(age_ms)).await?;
        let ids = locked.iter().map(|row| row.try_get_unchecked(0));
        let ids: Vec<u64> = ids.collect::<sqlx::Result<_>>()?;
        if ids.is_empty() {
            return Ok(0);
        }
        conn.execute(about_rows(&self.queries, copy, &ids)).await?;
        let delete = about_rows(&self.queries, queries::DELETE_ARCHIVED, &ids);
        conn.execute(delete).await
    }

    /// Converts an error of a statement about the archive. There is none until `lapsed migrate` has created it.
    pub(super) fn archive_error(&self, failure: sqlx::Error) -> LedgerError {
        if !is_missing_table(&failure) {
            return error(failure);
        }
        LedgerError::Refused {
            message: self.no_archive(),
            source: Some(Arc::new(failure)),
        }
    }

    fn no_archive(&self) -> String {
        format!(
            "there is no table `{}`: set `archive = true` in `[retention]`, and run `lapsed migrate`",
            self.table.archive()
        )
    }

    /// As [`Retention::maintain_archive`](lapsed_core::ledger::Retention::maintain_archive).
    pub(super) async fn maintain_partitions(
        &self,
        keep: Option<Duration>,
    ) -> Result<ArchiveMaintenance, LedgerError> {
        let mut connection = self.connection().await?;
        let maintained = migrate::maintain_archive(&mut connection, &self.table, keep).await;
        maintained.map_err(|error| LedgerError::Refused {
            message: self.why_not_maintained(&error),
            source: Some(Arc::new(error)),
        })
    }

    fn why_not_maintained(&self, error: &MigrateError) -> String {
        match error {
            MigrateError::Denied {
                step, privileges, ..
            } => {
                let archive = self.table.archive();
                format!(
                    "cannot {step}: grant {privileges} on `{archive}` to this user, or run `lapsed migrate` each month as a user who \
                     has them; tasks are archived meanwhile"
                )
            }
            MigrateError::Absent { .. } => self.no_archive(),
            other => other.to_string(),
        }
    }
}

//! Scans of leases and of claimable rows, and the end of leases of dead daemons.

use std::collections::BTreeMap;
use std::time::Duration;

use super::connection::{about_rows, covered, statement};
use super::error::error;
use super::queries::{self, padded};
use super::scans::{END, PAGE_ROWS};
use super::{BATCH_MAX, MysqlLedger, decode};
use lapsed_core::ledger::{DuePlace, FoundLease, LeasePage, LedgerError, Upcoming};

impl MysqlLedger {
    /// Finds the end of the page in the index alone, then reads the leases up to there.
    pub(super) async fn lease_page(
        &self,
        after: Option<DuePlace>,
        ahead: Duration,
    ) -> Result<LeasePage, LedgerError> {
        let (due, row) = after.unwrap_or_default();
        let mut conn = self.pools.acquire().await?;
        let overdue_ms = -(ahead.as_millis() as i64);
        let question = covered(self.queries.plain(queries::PAGE_END_OLDEST)).bind(overdue_ms);
        let question = question.bind(due.0).bind(due.0).bind(row);
        let end = conn
            .fetch(question.bind(PAGE_ROWS - 1))
            .await
            .map_err(error)?;
        let next = decode::places(&end).map_err(error)?.first().copied();
        let (end_due, end_row) = next.unwrap_or(END);
        let question = statement(self.queries.plain(queries::LEASES));
        let question = question.bind(due.0).bind(due.0).bind(row);
        let question = question.bind(end_due.0).bind(end_due.0).bind(end_row);
        let question = question.bind(overdue_ms);
        let found = conn.fetch(question).await.map_err(error)?;
        let leases = found
            .iter()
            .filter_map(|row| decode::found_lease(row).transpose());
        Ok(LeasePage {
            leases: leases.collect::<Result<_, _>>().map_err(error)?,
            next,
        })
    }

    /// Ends leases, with a statement for each daemon.
    pub(super) async fn end_leases_of_daemons(
        &self,
        leases: &[FoundLease],
    ) -> Result<u64, LedgerError> {
        let mut of_daemons: BTreeMap<&str, Vec<&FoundLease>> = BTreeMap::new();
        for lease in leases {
            of_daemons.entry(&lease.daemon).or_default().push(lease);
        }
        let mut conn = self.pools.acquire().await?;
        let mut ended = 0;
        for (daemon, leases) in of_daemons {
            let update = |leases: &[&FoundLease]| {
                let leases = padded(leases);
                let update = statement(self.queries.with_rows(queries::END_LEASES, leases.len()));
                let ids = leases.iter().map(|lease| lease.row);
                let update = ids.fold(update, |update, id| update.bind(id));
                let owners = leases.iter().map(|lease| (lease.row, lease.owner));
                let update = owners.fold(update, |update, (row, owner)| {
                    update.bind(row).bind(owner.0.to_vec())
                });
                update.bind(daemon.to_owned())
            };
            for batch in leases.chunks(BATCH_MAX) {
                let done = self.locks.skip_locked(
                    &mut conn,
                    &self.queries,
                    batch,
                    |lease| lease.row,
                    |conn, batch| Box::pin(conn.execute(update(batch))),
                );
                ended += done.await.map_err(error)?.matched;
            }
        }
        Ok(ended)
    }

    pub(super) async fn claimable_rows(&self, ids: &[u64]) -> Result<Vec<Upcoming>, LedgerError> {
        let mut free = Vec::with_capacity(ids.len());
        let mut conn = self.pools.acquire().await?;
        for batch in ids.chunks(BATCH_MAX) {
            let question = about_rows(&self.queries, queries::CLAIMABLE, batch);
            let found = conn.fetch(question).await.map_err(error)?;
            free.extend(decode::due_page(&found, u32::MAX).map_err(error)?.rows);
        }
        Ok(free)
    }
}

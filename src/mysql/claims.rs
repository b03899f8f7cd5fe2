//! Claims: lookups, leases and settlements in batches.

use std::time::Duration;

use async_trait::async_trait;

use super::connection::statement;
use super::decode::LookupRow;
use super::error::error;
use super::{BATCH_MAX, MysqlLedger, queries};
use lapsed_core::ledger::{
    Claim, Claimant, Claims, FoundLease, Lease, LedgerError, Lookup, Progress, Renewal, Settled,
    Settlement,
};
use lapsed_core::task::{Arming, SUSPECT_CRASHES, TaskKey};

#[async_trait]
impl Claims for MysqlLedger {
    async fn look_up(&self, keys: &[TaskKey]) -> Result<Vec<Option<Lookup>>, LedgerError> {
        let mut conn = self.pools.acquire().await?;
        let mut found = Vec::with_capacity(keys.len());
        let texts: Vec<&str> = keys.iter().map(TaskKey::as_str).collect();
        for batch in texts.chunks(BATCH_MAX) {
            let lookups = self.look_up_rows(&mut conn, batch).await.map_err(error)?;
            found.extend(
                batch
                    .iter()
                    .map(|key| lookups.get(*key).map(LookupRow::lookup)),
            );
        }
        Ok(found)
    }

    async fn claim(&self, armings: &[Arming], by: &Claimant) -> Result<Vec<Claim>, LedgerError> {
        let mut claims = Vec::with_capacity(armings.len());
        for batch in armings.chunks(BATCH_MAX) {
            claims.extend(self.claim_batch(batch, by).await?);
        }
        Ok(claims)
    }

    async fn renew(&self, leases: &[Lease], length: Duration) -> Result<Vec<Renewal>, LedgerError> {
        let unreported: Vec<_> = leases.iter().map(|lease| (*lease, None)).collect();
        self.renew_all(&unreported, length).await
    }

    async fn report(
        &self,
        reports: &[(Lease, Progress)],
        length: Duration,
    ) -> Result<Vec<Renewal>, LedgerError> {
        let line =
            |(lease, progress): &(Lease, Progress)| (*lease, Some(progress.to_line(lease.owner)));
        let reported: Vec<_> = reports.iter().map(line).collect();
        self.renew_all(&reported, length).await
    }

    async fn settle(&self, settlements: &[Settlement]) -> Result<Vec<Settled>, LedgerError> {
        let mut settled = Vec::with_capacity(settlements.len());
        for batch in settlements.chunks(BATCH_MAX) {
            settled.extend(self.settle_batch(batch).await?);
        }
        Ok(settled)
    }

    async fn pardon(&self, lease: &Lease) -> Result<Renewal, LedgerError> {
        let mut conn = self.pools.acquire().await?;
        let Lease { arming, owner } = *lease;
        let pardon = statement(self.queries.plain(queries::PARDON));
        let pardon = pardon.bind(SUSPECT_CRASHES - 1).bind(arming.row);
        let pardon = pardon.bind(owner.0.to_vec()).bind(arming.due.0);
        match conn.execute(pardon).await.map_err(error)? {
            0 => Ok(Renewal::Lost),
            _ => Ok(Renewal::Held),
        }
    }

    async fn end_leases(&self, leases: &[FoundLease]) -> Result<u64, LedgerError> {
        self.end_leases_of_daemons(leases).await
    }
}

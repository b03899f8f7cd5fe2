//! Claims in memory.

use std::time::Duration;

use async_trait::async_trait;
use tokio::time::Instant;

use super::MemoryLedger;
use crate::ledger::{
    Claim, Claimant, Claims, FoundLease, Lease, LedgerError, Lookup, Owner, Renewal, Settled,
    Settlement,
};
use crate::task::{Arming, TaskKey};

#[async_trait]
impl Claims for MemoryLedger {
    async fn look_up(&self, keys: &[TaskKey]) -> Result<Vec<Option<Lookup>>, LedgerError> {
        let now = self.clock.now();
        let mut table = self.table();
        let mut lookup = |key: &TaskKey| table.of_key(key).map(|row| row.lookup(now));
        Ok(keys.iter().map(&mut lookup).collect())
    }

    async fn claim(&self, armings: &[Arming], by: &Claimant) -> Result<Vec<Claim>, LedgerError> {
        let (now, claimed, owner) = (self.clock.now(), Instant::now(), Owner::random());
        let mut table = self.table();
        let mut claims = Vec::new();
        for arming in armings {
            let Some(row) = table.rows.get_mut(&arming.row) else {
                continue;
            };
            if !row.free_and_due(now) {
                continue;
            }
            row.claim(by, owner, now);
            claims.push(row.claimed(owner, claimed));
        }
        Ok(claims)
    }

    async fn renew(&self, leases: &[Lease], length: Duration) -> Result<Vec<Renewal>, LedgerError> {
        let now = self.clock.now();
        let mut table = self.table();
        let mut renew = |lease: &Lease| match table.rows.get_mut(&lease.arming.row) {
            Some(row) => row.renew(lease.owner, length, now),
            None => Renewal::Lost,
        };
        Ok(leases.iter().map(&mut renew).collect())
    }

    async fn settle(&self, settlements: &[Settlement]) -> Result<Vec<Settled>, LedgerError> {
        let now = self.clock.now();
        let mut table = self.table();
        let mut settle =
            |settlement: &Settlement| match table.rows.get_mut(&settlement.lease.arming.row) {
                Some(row) => row.settle(settlement, now),
                None => Settled::Fenced,
            };
        Ok(settlements.iter().map(&mut settle).collect())
    }

    async fn pardon(&self, lease: &Lease) -> Result<Renewal, LedgerError> {
        let now = self.clock.now();
        let mut table = self.table();
        let row = table.rows.get_mut(&lease.arming.row);
        Ok(row.map_or(Renewal::Lost, |row| row.pardon(lease, now)))
    }

    async fn end_leases(&self, leases: &[FoundLease]) -> Result<u64, LedgerError> {
        let now = self.clock.now();
        let mut table = self.table();
        let mut end = |lease: &FoundLease| {
            let row = table.rows.get_mut(&lease.row);
            row.is_some_and(|row| row.end_lease(lease, now))
        };
        Ok(leases.iter().filter(|lease| end(lease)).count() as u64)
    }
}

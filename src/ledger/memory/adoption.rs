//! Adoption in memory.

use std::time::Duration;

use async_trait::async_trait;

use super::MemoryLedger;
use crate::ledger::{Adopted, Adoption, AdoptionRequest, LedgerError, Withdrawal, Withdrawn};
use crate::task::Arming;

#[async_trait]
impl Adoption for MemoryLedger {
    async fn adopt(&self, keys: &[AdoptionRequest]) -> Result<Vec<Adopted>, LedgerError> {
        let now = self.clock.now();
        let mut table = self.table();
        let mut adopt = |found: &AdoptionRequest| {
            let arming = match (table.of_key(&found.key), &found.over) {
                (None, None) => Some(table.adopt(found).arming()),
                (Some(row), Some(over)) if row.is_unchanged_since(over, now) => {
                    row.adopt(found);
                    Some(row.arming())
                }
                _ => None,
            };
            arming.map_or(Adopted::Overtaken, Adopted::Written)
        };
        Ok(keys.iter().map(&mut adopt).collect())
    }

    async fn withdraw(
        &self,
        withdrawals: &[Withdrawal],
        ahead: Duration,
    ) -> Result<Vec<Withdrawn>, LedgerError> {
        let now = self.clock.now();
        let mut table = self.table();
        let mut withdraw =
            |withdrawal: &Withdrawal| match table.rows.get_mut(&withdrawal.over.arming.row) {
                Some(row) => row.withdraw(withdrawal, ahead, now),
                None => Withdrawn::Left,
            };
        Ok(withdrawals.iter().map(&mut withdraw).collect())
    }

    async fn undelete(&self, arming: Arming) -> Result<bool, LedgerError> {
        let mut table = self.table();
        let row = table.rows.get_mut(&arming.row);
        Ok(row.is_some_and(|row| row.undelete(arming)))
    }
}

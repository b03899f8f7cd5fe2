//! Adoption in memory.

use std::time::Duration;

use async_trait::async_trait;

use super::MemoryLedger;
use crate::ledger::{Adopted, Adoption, AdoptionRequest, LedgerError, Lookup};
use crate::task::{Arming, UnixMs};

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
        seen: &Lookup,
        heard: UnixMs,
        ahead: Duration,
    ) -> Result<bool, LedgerError> {
        let now = self.clock.now();
        let mut table = self.table();
        let row = table.rows.get_mut(&seen.arming.row);
        Ok(row.is_some_and(|row| row.withdraw(seen, heard, ahead, now)))
    }

    async fn undelete(&self, arming: Arming) -> Result<bool, LedgerError> {
        let mut table = self.table();
        let row = table.rows.get_mut(&arming.row);
        Ok(row.is_some_and(|row| row.undelete(arming)))
    }
}

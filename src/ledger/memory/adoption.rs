//! Adoption in memory.

use std::time::Duration;

use async_trait::async_trait;

use super::MemoryLedger;
use super::row::Status;
use crate::ledger::{Adopted, Adoption, AdoptionRequest, LedgerError, Lookup, NewTask};
use crate::task::{Arming, Origin, UnixMs};

#[async_trait]
impl Adoption for MemoryLedger {
    async fn adopt(&self, keys: &[AdoptionRequest]) -> Result<Vec<Adopted>, LedgerError> {
        let now = self.clock.now();
        let mut table = self.table();
        let mut adopt = |found: &AdoptionRequest| {
            let AdoptionRequest {
                key,
                due,
                heard,
                from_key,
                over,
                payload,
            } = found;
            let heard = *heard.min(due);
            match (table.of_key(key), over) {
                (None, None) => {
                    let task = NewTask {
                        payload: payload.clone(),
                        ..NewTask::new(key.clone(), *due)
                    };
                    let id = table.create(&task, heard).id;
                    let row = table.rows.get_mut(&id).expect("just created");
                    row.origin = Origin::Key;
                    Adopted::Written(row.arming())
                }
                (Some(row), Some(over)) if row.is_unchanged_since(over, now) => {
                    row.adopt(*due, heard, *from_key, payload.clone());
                    Adopted::Written(row.arming())
                }
                _ => Adopted::Overtaken,
            }
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
        let row = table.rows.get_mut(&seen.arming.row).filter(|row| {
            row.is_unchanged_since(seen, now)
                && row.origin == Origin::Key
                && row.recurrence.is_none()
                && row.status == Status::Unprocessed
                && !row.deleted
                && row.due_at() > now.plus(ahead)
        });
        Ok(row
            .map(|row| {
                row.cancel(now);
                row.changed_at = heard.max(seen.stamp.changed);
                row.finished_at = Some(row.changed_at);
                row.origin = Origin::DeletedKey;
            })
            .is_some())
    }

    async fn undelete(&self, arming: Arming) -> Result<bool, LedgerError> {
        let mut table = self.table();
        let row = table.rows.get_mut(&arming.row);
        let row = row.filter(|row| {
            let by_lapsed = row.finished_at.is_some_and(|at| at >= row.start_time);
            row.arming() == arming && row.status == Status::Unprocessed && row.deleted && !by_lapsed
        });
        Ok(row.map(|row| row.deleted = false).is_some())
    }
}

//! Adoption: rows on behalf of keys that other programs armed.

use std::time::Duration;

use async_trait::async_trait;

use super::store::{At, Columns, RowStore};
use super::{Length, Result, RowLedger, insert, update, update_if};
use crate::ledger::row::Row;
use crate::ledger::{Adopted, Adoption, AdoptionRequest, CancelByKey, CancelByKeyAnswer};
use crate::task::Arming;

#[async_trait]
impl<L: RowLedger> Adoption for L {
    async fn adopt(&self, keys: &[AdoptionRequest]) -> Result<Vec<Adopted>> {
        let keys = keys.to_vec();
        self.write(Length::Short, move |store| {
            keys.iter().map(|found| adopt(store, found)).collect()
        })
        .await
    }

    async fn cancel_by_key(
        &self,
        cancellations: &[CancelByKey],
        ahead: Duration,
    ) -> Result<Vec<CancelByKeyAnswer>> {
        let cancellations = cancellations.to_vec();
        self.write(Length::Short, move |store| {
            let mut cancel_by_key = |withdrawal: &CancelByKey| {
                let answer = update(
                    store,
                    At::Row(withdrawal.over.arming.row),
                    Columns::Brief,
                    |row, now| row.cancel_by_key(withdrawal, ahead, now),
                    |answer| *answer == CancelByKeyAnswer::Cancelled,
                )?;
                Ok(answer.unwrap_or(CancelByKeyAnswer::Left))
            };
            cancellations.iter().map(&mut cancel_by_key).collect()
        })
        .await
    }

    async fn undelete(&self, arming: Arming) -> Result<bool> {
        self.write(Length::Short, move |store| {
            update_if(store, At::Row(arming.row), |row, _| row.undelete(arming))
        })
        .await
    }
}

fn adopt(store: &mut dyn RowStore, found: &AdoptionRequest) -> Result<Adopted> {
    let adopted = match &found.over {
        None => {
            let mut row = Row::adopted(0, found);
            insert(store, &mut row)?.then(|| row.arming())
        }
        Some(over) => {
            let adopted = update(
                store,
                At::Key(&found.key),
                Columns::All,
                |row, now| {
                    row.is_unchanged_since(over, now).then(|| {
                        row.adopt(found);
                        row.arming()
                    })
                },
                Option::is_some,
            )?;
            adopted.flatten()
        }
    };
    Ok(adopted.map_or(Adopted::Overtaken, Adopted::Written))
}

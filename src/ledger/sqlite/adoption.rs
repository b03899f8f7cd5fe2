//! Adoption: rows on behalf of keys that other programs armed.

use std::time::Duration;

use async_trait::async_trait;
use rusqlite::Result;

use super::SqliteLedger;
use super::producer::inserted_id;
use super::rows::{insert, one, save};
use super::session::{Session, id};
use crate::ledger::row::Row;
use crate::ledger::{Adopted, Adoption, AdoptionRequest, LedgerError, Withdrawal, Withdrawn};
use crate::task::Arming;

#[async_trait]
impl Adoption for SqliteLedger {
    async fn adopt(&self, keys: &[AdoptionRequest]) -> Result<Vec<Adopted>, LedgerError> {
        let keys = keys.to_vec();
        self.write(move |session| keys.iter().map(|found| adopt(session, found)).collect())
            .await
    }

    async fn withdraw(
        &self,
        withdrawals: &[Withdrawal],
        ahead: Duration,
    ) -> Result<Vec<Withdrawn>, LedgerError> {
        let withdrawals = withdrawals.to_vec();
        self.write(move |session| {
            let withdraw = |withdrawal: &Withdrawal| withdraw(session, withdrawal, ahead);
            withdrawals.iter().map(withdraw).collect()
        })
        .await
    }

    async fn undelete(&self, arming: Arming) -> Result<bool, LedgerError> {
        self.change_row(arming.row, move |row, _| row.undelete(arming))
            .await
    }
}

fn withdraw(session: &Session<'_>, withdrawal: &Withdrawal, ahead: Duration) -> Result<Withdrawn> {
    let mut find = session.prepare(&session.queries.row_by_id)?;
    let Some(mut stored) = one(&mut find, [id(withdrawal.over.arming.row)])? else {
        return Ok(Withdrawn::Left);
    };
    let answer = stored.row.withdraw(withdrawal, ahead, session.now);
    if answer == Withdrawn::Cancelled {
        save(&mut *session.prepare(&session.queries.save)?, &stored.row)?;
    }
    Ok(answer)
}

fn adopt(session: &Session<'_>, found: &AdoptionRequest) -> Result<Adopted> {
    let mut find = session.prepare(&session.queries.row_by_key)?;
    Ok(match (one(&mut find, [found.key.as_str()])?, &found.over) {
        (None, None) => {
            let mut row = Row::adopted(0, found);
            insert(&mut *session.prepare(&session.queries.insert)?, &row)?;
            row.id = inserted_id(session);
            Adopted::Written(row.arming())
        }
        (Some(mut stored), Some(over)) if stored.row.is_unchanged_since(over, session.now) => {
            stored.row.adopt(found);
            save(&mut *session.prepare(&session.queries.save)?, &stored.row)?;
            Adopted::Written(stored.row.arming())
        }
        _ => Adopted::Overtaken,
    })
}

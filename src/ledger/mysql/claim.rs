//! Taking leases, and keeping them.

use std::time::Duration;

use tokio::time::Instant;

use super::connection::{self, Conn, about_rows, error, statement};
use super::queries::{self, padded};
use super::{MysqlLedger, rows};
use crate::ledger::{Arming, Claim, Claimant, Lease, LedgerError, Owner, Renewal};

impl MysqlLedger {
    /// One claim: take what is free, then read back what became ours.
    pub(super) async fn claim_batch(
        &self,
        armings: &[Arming],
        by: &Claimant,
    ) -> Result<Vec<Claim>, LedgerError> {
        let owner = Owner::random();
        let mut conn = self.pools.acquire().await?;
        match self.claim_on(&mut conn, armings, by, owner).await {
            Ok(claims) => Ok(claims),
            Err(failure) => {
                // It may have acted all the same, and only its answer got lost.
                self.disown_later(armings, owner, by.lease);
                Err(error(failure))
            }
        }
    }

    async fn claim_on(
        &self,
        conn: &mut Conn,
        armings: &[Arming],
        by: &Claimant,
        owner: Owner,
    ) -> sqlx::Result<Vec<Claim>> {
        let claimed = Instant::now();
        let lease_ms = by.lease.as_millis() as i64;
        let claim = |batch: &[Arming]| {
            let ids = padded(&batch.iter().map(|arming| arming.row).collect::<Vec<_>>());
            let update = statement(self.queries.with_rows(queries::CLAIM, ids.len()));
            let update = update
                .bind(owner.0.to_vec())
                .bind(by.daemon.clone())
                .bind(lease_ms);
            ids.into_iter().fold(update, |update, id| update.bind(id))
        };
        let past = self
            .locks
            .get_past(
                conn,
                &self.queries,
                armings,
                |arming| arming.row,
                |conn, batch| Box::pin(conn.execute(claim(batch))),
            )
            .await?;
        if past.matched == 0 {
            return Ok(Vec::new());
        }
        let question = self
            .of_rows(queries::CLAIMED, armings)
            .bind(owner.0.to_vec());
        let rows = conn.fetch(question).await?;
        rows.iter()
            .filter_map(|row| rows::claim(row, owner, claimed).transpose())
            .collect()
    }

    /// Gives back, when the server answers again, what a claim may have taken whose answer was lost: nobody else
    /// knows its owner, and waiting for the lease to run out would cost the tasks time and a crash. Given up when the
    /// leases have run out by themselves.
    fn disown_later(&self, armings: &[Arming], owner: Owner, lease: Duration) {
        const PAUSE: Duration = Duration::from_secs(1);
        let (ledger, armings) = (self.clone(), armings.to_vec());
        let until = Instant::now() + lease;
        tokio::spawn(async move {
            while Instant::now() < until {
                if let Ok(mut conn) = ledger.pools.acquire().await {
                    let update = ledger
                        .of_rows(queries::DISOWN, &armings)
                        .bind(owner.0.to_vec());
                    if conn.execute(update).await.is_ok() {
                        return;
                    }
                }
                tokio::time::sleep(PAUSE).await;
            }
        });
    }

    /// A statement about rows, with their ids bound.
    fn of_rows(&self, template: &str, armings: &[Arming]) -> connection::Statement<'static> {
        let ids: Vec<u64> = armings.iter().map(|arming| arming.row).collect();
        about_rows(&self.queries, template, &ids)
    }

    /// One renewal: prolong what is ours; read back only if something was missing.
    pub(super) async fn renew_batch(
        &self,
        leases: &[Lease],
        length: Duration,
    ) -> Result<Vec<(Lease, Renewal)>, LedgerError> {
        let mut conn = self.pools.acquire().await?;
        let length_ms = length.as_millis() as i64;
        let past = self
            .locks
            .get_past(
                &mut conn,
                &self.queries,
                leases,
                |lease| lease.arming.row,
                |conn, batch| {
                    let padded = padded(batch);
                    let update = statement(self.queries.with_rows(queries::RENEW, padded.len()))
                        .bind(length_ms);
                    let update = padded
                        .iter()
                        .fold(update, |update, lease| update.bind(lease.arming.row));
                    let update = padded.iter().fold(update, |update, lease| {
                        update.bind(lease.arming.row).bind(lease.owner.0.to_vec())
                    });
                    Box::pin(conn.execute(update))
                },
            )
            .await
            .map_err(error)?;
        let all_matched = past.matched == leases.len() as u64;
        let held = if all_matched {
            Vec::new()
        } else {
            self.held(&mut conn, leases).await.map_err(error)?
        };
        Ok(leases
            .iter()
            .map(|lease| {
                let renewal = match () {
                    () if past.locked.contains(lease) => Renewal::Locked,
                    () if all_matched || held.contains(&(lease.arming.row, lease.owner)) => {
                        Renewal::Held
                    }
                    () => Renewal::Lost,
                };
                (*lease, renewal)
            })
            .collect())
    }

    async fn held(&self, conn: &mut Conn, leases: &[Lease]) -> sqlx::Result<Vec<(u64, Owner)>> {
        let ids: Vec<u64> = leases.iter().map(|lease| lease.arming.row).collect();
        let question = about_rows(&self.queries, queries::RENEWED, &ids);
        conn.fetch(question)
            .await?
            .iter()
            .filter_map(|row| rows::held(row).transpose())
            .collect()
    }
}

//! Claiming rows and renewing leases.

use std::collections::{HashMap, HashSet};
use std::time::Duration;

use tokio::time::Instant;

use super::connection::{self, Conn, about_rows, statement};
use super::error::error;
use super::queries::{self, padded};
use super::{BATCH_MAX, MysqlLedger, decode};
use lapsed_core::ledger::{Claim, Claimant, Lease, LedgerError, Owner, Renewal};
use lapsed_core::task::Arming;

/// A lease to renew, and the line of its progress, if there is news.
type Reported = (Lease, Option<String>);

impl MysqlLedger {
    /// Claims the free rows of a batch, and reads them back.
    pub(super) async fn claim_batch(
        &self,
        armings: &[Arming],
        by: &Claimant,
    ) -> Result<Vec<Claim>, LedgerError> {
        let owner = Owner::random();
        let mut conn = self.pools.acquire().await?;
        match self.claim_on(&mut conn, armings, by, owner).await {
            Ok((claims, unread)) if unread.is_empty() => Ok(claims),
            Ok((claims, unread)) => {
                let message = format!(
                    "{} rows were claimed and cannot be read back: `ledger.url` must lead to one server for every statement, and a proxy must not send SELECT to a replica",
                    unread.len()
                );
                self.disown_later(&unread, owner, by.lease);
                if claims.is_empty() {
                    return Err(LedgerError::Refused {
                        message,
                        source: None,
                    });
                }
                tracing::warn!("{message}; releasing them");
                Ok(claims)
            }
            Err(failure) => {
                // The claim may have acted, and only its answer been lost.
                self.disown_later(armings, owner, by.lease);
                Err(error(failure))
            }
        }
    }

    /// Returns the claims, and the armings that may be claimed but could not be read back.
    async fn claim_on(
        &self,
        conn: &mut Conn,
        armings: &[Arming],
        by: &Claimant,
        owner: Owner,
    ) -> sqlx::Result<(Vec<Claim>, Vec<Arming>)> {
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
        let done = self
            .locks
            .skip_locked(
                conn,
                &self.queries,
                armings,
                |arming| arming.row,
                |conn, batch| Box::pin(conn.execute(claim(batch))),
            )
            .await?;
        if done.matched == 0 {
            return Ok((Vec::new(), Vec::new()));
        }
        let ids: Vec<u64> = armings.iter().map(|arming| arming.row).collect();
        let ids = padded(&ids);
        let question = statement(self.queries.with_rows(queries::CLAIMED, ids.len()));
        let question = question.bind(lease_ms);
        let question = ids.iter().fold(question, |question, id| question.bind(*id));
        let rows = conn.fetch(question.bind(owner.0.to_vec())).await?;
        let mut unread = Vec::new();
        if (rows.len() as u64) < done.matched {
            let read = rows
                .iter()
                .map(decode::id)
                .collect::<sqlx::Result<HashSet<u64>>>()?;
            unread.extend_from_slice(armings);
            unread.retain(|arming| !read.contains(&arming.row));
        }
        let mut claims = Vec::with_capacity(rows.len());
        let mut anew = Vec::new();
        for row in &rows {
            match decode::is_anew(row)? {
                true => anew.push(decode::arming(row)?),
                false => claims.extend(decode::claim(row, owner, claimed)?),
            }
        }
        if !anew.is_empty() {
            // The right to run is for the arming that was claimed. The new one is not due yet, or is claimed by itself.
            let given_back = self.of_rows(queries::DISOWN, &anew);
            let given_back = given_back.bind(owner.0.to_vec());
            if let Err(error) = conn.execute(given_back).await {
                tracing::debug!(%error, rows = anew.len(), "could not release rows that were armed anew; trying again");
                self.disown_later(&anew, owner, by.lease);
            }
        }
        Ok((claims, unread))
    }

    /// Releases what a claim whose answer was lost may have taken, once the server answers again: only this process knows the
    /// owner token, and an expired lease would cost the tasks time and a crash. Repeats this for the length of a lease after
    /// the first answer, since the claim itself may arrive late. Ends when the ledger is closed.
    fn disown_later(&self, armings: &[Arming], owner: Owner, lease: Duration) {
        const PAUSE: Duration = Duration::from_secs(1);
        let (ledger, armings) = (self.clone(), armings.to_vec());
        tokio::spawn(async move {
            let mut first_answer = None;
            while !ledger.pools.is_closed() {
                if ledger.disown(&armings, owner).await.is_ok() {
                    let answered = *first_answer.get_or_insert_with(Instant::now);
                    if answered.elapsed() >= lease {
                        return;
                    }
                }
                tokio::time::sleep(PAUSE).await;
            }
        });
    }

    async fn disown(&self, armings: &[Arming], owner: Owner) -> Result<(), LedgerError> {
        let mut conn = self.pools.acquire().await?;
        let update = self
            .of_rows(queries::DISOWN, armings)
            .bind(owner.0.to_vec());
        conn.execute(update).await.map_err(error)?;
        Ok(())
    }

    /// Builds a statement about the rows of these armings.
    fn of_rows(&self, template: &str, armings: &[Arming]) -> connection::Statement<'static> {
        let ids: Vec<u64> = armings.iter().map(|arming| arming.row).collect();
        about_rows(&self.queries, template, &ids)
    }

    /// Renews leases, in batches. Either all have a line of progress, or none has.
    pub(super) async fn renew_all(
        &self,
        leases: &[Reported],
        length: Duration,
    ) -> Result<Vec<Renewal>, LedgerError> {
        let mut renewals = HashMap::with_capacity(leases.len());
        for batch in leases.chunks(BATCH_MAX) {
            renewals.extend(self.renew_batch(batch, length).await?);
        }
        Ok(leases.iter().map(|(lease, _)| renewals[lease]).collect())
    }

    /// Renews a batch of leases. Reads them back only if fewer rows matched.
    async fn renew_batch(
        &self,
        leases: &[Reported],
        length: Duration,
    ) -> Result<Vec<(Lease, Renewal)>, LedgerError> {
        let mut conn = self.pools.acquire().await?;
        let length_ms = length.as_millis() as i64;
        let done = self
            .locks
            .skip_locked(
                &mut conn,
                &self.queries,
                leases,
                |(lease, _)| lease.arming.row,
                |conn, batch| Box::pin(conn.execute(self.renewal(batch, length_ms))),
            )
            .await
            .map_err(error)?;
        let all_matched = done.matched == leases.len() as u64;
        let held = if all_matched {
            Vec::new()
        } else {
            self.held(&mut conn, leases).await.map_err(error)?
        };
        let locked: HashSet<Lease> = done.locked.iter().map(|(lease, _)| *lease).collect();
        Ok(leases
            .iter()
            .map(|(lease, _)| {
                let renewal = match () {
                    () if locked.contains(lease) => Renewal::Locked,
                    () if all_matched || held.contains(&(lease.arming.row, lease.owner)) => {
                        Renewal::Held
                    }
                    () => Renewal::Lost,
                };
                (*lease, renewal)
            })
            .collect())
    }

    /// Builds the statement that renews these leases.
    fn renewal(&self, batch: &[Reported], length_ms: i64) -> connection::Statement<'static> {
        let padded = padded(batch);
        let template = match padded.first() {
            Some((_, Some(_))) => queries::REPORT,
            _ => queries::RENEW,
        };
        let mut update = statement(self.queries.with_rows(template, padded.len())).bind(length_ms);
        if template == queries::REPORT {
            for (lease, _) in &padded {
                update = update.bind(lease.arming.row);
            }
            for (_, line) in &padded {
                update = update.bind(line.clone());
            }
        }
        for (lease, _) in &padded {
            update = update.bind(lease.arming.row);
        }
        for (lease, _) in &padded {
            update = update.bind(lease.arming.row).bind(lease.owner.0.to_vec());
        }
        update
    }

    async fn held(&self, conn: &mut Conn, leases: &[Reported]) -> sqlx::Result<Vec<(u64, Owner)>> {
        let ids: Vec<u64> = leases.iter().map(|(lease, _)| lease.arming.row).collect();
        let question = about_rows(&self.queries, queries::RENEWED, &ids);
        conn.fetch(question)
            .await?
            .iter()
            .filter_map(|row| decode::held(row).transpose())
            .collect()
    }
}

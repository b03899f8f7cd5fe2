//! Adoption: rows on behalf of keys that other programs armed.

use std::time::Duration;

use async_trait::async_trait;
use futures_util::future::join_all;

use super::MysqlLedger;
use super::adopt_many::of_request;
use super::connection::{Conn, Statement, statement};
use super::decode::origin_number;
use super::error::error;
use super::error_numbers::{is_about_data, is_deadlock, is_duplicate, is_locked};
use super::queries;
use lapsed_core::ledger::{
    Adopted, Adoption, AdoptionRequest, CancelByKey, CancelByKeyAnswer, LedgerError, Lookup,
};
use lapsed_core::task::{Arming, State};

/// Maximum number of connections that write at once. Each statement is a transaction, and transactions that commit
/// together share a write to the server's disk.
const CONNECTIONS_MAX: usize = 4;

/// Number of retries after a deadlock.
const DEADLOCK_RETRIES: u32 = 3;

#[async_trait]
impl Adoption for MysqlLedger {
    async fn adopt(&self, keys: &[AdoptionRequest]) -> Result<Vec<Adopted>, LedgerError> {
        self.adopt_all(keys).await
    }

    async fn cancel_by_key(
        &self,
        cancellations: &[CancelByKey],
        ahead: Duration,
    ) -> Result<Vec<CancelByKeyAnswer>, LedgerError> {
        let share = cancellations.len().div_ceil(CONNECTIONS_MAX).max(1);
        let shares = cancellations.chunks(share);
        let shares = shares.map(|share| self.cancel_by_key_one_by_one(share, ahead));
        let mut answers = Vec::with_capacity(cancellations.len());
        for share in join_all(shares).await {
            answers.extend(share?);
        }
        Ok(answers)
    }

    async fn undelete(&self, arming: Arming) -> Result<bool, LedgerError> {
        let undelete = || {
            statement(self.queries.plain(queries::UNDELETE))
                .bind(arming.row)
                .bind(arming.due.0)
        };
        let mut conn = self.pools.acquire().await?;
        let done = self
            .locks
            .without_waiting(&mut conn, &self.queries, arming.row, |conn| {
                Box::pin(conn.execute(undelete()))
            });
        match done.await.map_err(error)? {
            Some(matched) => Ok(matched > 0),
            None => Err(LedgerError::Locked {
                message: "another session has locked the row".to_owned(),
                source: None,
            }),
        }
    }
}

impl MysqlLedger {
    /// Writes many rows at a time where nothing is in the way, then the others one by one, on several connections.
    async fn adopt_all(&self, keys: &[AdoptionRequest]) -> Result<Vec<Adopted>, LedgerError> {
        let mut together = self.adopt_together(keys).await?;
        let written = |found: &AdoptionRequest| together.remove(&found.key).map(Adopted::Written);
        let mut adopted: Vec<Option<Adopted>> = keys.iter().map(written).collect();
        let left = keys.iter().zip(&adopted);
        let left: Vec<&AdoptionRequest> = left
            .filter(|(_, answer)| answer.is_none())
            .map(|(found, _)| found)
            .collect();
        let share = left.len().div_ceil(CONNECTIONS_MAX).max(1);
        let shares = left.chunks(share).map(|keys| self.adopt_one_by_one(keys));
        let mut answers = Vec::with_capacity(left.len());
        for share in join_all(shares).await {
            answers.extend(share?);
        }
        let mut answers = answers.into_iter();
        for answer in adopted.iter_mut().filter(|answer| answer.is_none()) {
            *answer = answers.next();
        }
        Ok(adopted.into_iter().flatten().collect())
    }

    async fn adopt_one_by_one(
        &self,
        keys: &[&AdoptionRequest],
    ) -> Result<Vec<Adopted>, LedgerError> {
        let mut conn = self.pools.acquire().await?;
        let names: Vec<&str> = keys.iter().map(|found| found.key.as_str()).collect();
        let charset = self.charset_for(&mut conn, &names).await.map_err(error)?;
        let mut adopted = Vec::with_capacity(keys.len());
        for key in keys {
            if !charset.holds(key.key.as_str()) {
                let facts = self.facts_on(&mut conn).await.map_err(error)?;
                adopted.push(Adopted::Unfit(self.why_unfit(&facts)));
                continue;
            }
            let what = format!("task `{}`", key.key);
            let too_long = conn.packet_max().too_long(&what, of_request(key));
            if let Some(why) = too_long {
                adopted.push(Adopted::Refused(why));
                continue;
            }
            // One wait for a lock is enough.
            if adopted.contains(&Adopted::Locked) {
                adopted.push(Adopted::Untried);
                continue;
            }
            let mut retries = 0;
            adopted.push(loop {
                match self.adopt_one(&mut conn, key).await {
                    Ok(answer) => break answer,
                    Err(error) if is_duplicate(&error) => break Adopted::Overtaken,
                    Err(error) if is_deadlock(&error) && retries < DEADLOCK_RETRIES => retries += 1,
                    Err(error) if is_locked(&error) => break Adopted::Locked,
                    // The other keys may still succeed.
                    Err(failure) if is_about_data(&failure) => {
                        self.facts.forget();
                        break Adopted::Refused(error(failure).to_string());
                    }
                    Err(failure) => return Err(error(failure)),
                }
            });
        }
        Ok(adopted)
    }

    async fn adopt_one(&self, conn: &mut Conn, found: &AdoptionRequest) -> sqlx::Result<Adopted> {
        let AdoptionRequest {
            key,
            due,
            heard,
            from_key: _,
            is_entry: _,
            over,
            payload,
        } = found;
        let origin = found.origin().map(origin_number);
        // Created when it was armed: its lateness counts from its due time, however late the row is written.
        let heard = *heard.min(due);
        let Some(over) = over else {
            let insert = statement(self.queries.plain(queries::ADOPT_NEW));
            let insert = insert.bind(key.to_string()).bind(heard.0).bind(due.0);
            let insert = insert.bind(origin).bind(payload.clone());
            let row = conn.insert(insert).await?;
            return Ok(Adopted::Written(Arming { row, due: *due }));
        };
        let Lookup {
            arming,
            state,
            due_at: _,
            deleted,
            cancelling,
            older_run: _,
            interrupted: _,
            origin: _,
            stamp,
        } = over;
        let status = match state {
            State::Pending | State::Waiting | State::Running => 0i64,
            State::Cancelled if *deleted => 0,
            State::Done => 1,
            State::Dead => 2,
            State::Cancelled => 3,
        };
        let update = statement(self.queries.plain(queries::ADOPT_OVER))
            .bind(heard.0)
            .bind(heard.0)
            .bind(origin)
            .bind(payload.clone())
            .bind(due.0)
            .bind(arming.row)
            .bind(arming.due.0)
            .bind(status)
            .bind(i64::from(*deleted || *cancelling))
            .bind(stamp.changed.0)
            .bind(stamp.created.0)
            .bind(i64::from(*state == State::Running));
        let matched = conn.execute(update).await?;
        Ok(match matched {
            0 => Adopted::Overtaken,
            _ => Adopted::Written(Arming {
                row: arming.row,
                due: *due,
            }),
        })
    }

    /// Cancels tasks whose keys were deleted, on one connection. Leaves out the rows that another session has locked; if one is locked after
    /// all, waits once, and tries none of the others.
    async fn cancel_by_key_one_by_one(
        &self,
        cancellations: &[CancelByKey],
        ahead: Duration,
    ) -> Result<Vec<CancelByKeyAnswer>, LedgerError> {
        let mut conn = self.pools.acquire().await?;
        let rows = cancellations.iter().map(|each| each.over.arming.row);
        let parted = self
            .locks
            .part(&mut conn, &self.queries, rows.collect(), |row| *row);
        let (_, locked) = parted.await.map_err(error)?;
        let mut answers = Vec::with_capacity(cancellations.len());
        let mut waited = false;
        for withdrawal in cancellations {
            if waited || locked.contains(&withdrawal.over.arming.row) {
                answers.push(CancelByKeyAnswer::Locked);
                continue;
            }
            let mut retries = 0;
            answers.push(loop {
                match conn.execute(self.withdrawal(withdrawal, ahead)).await {
                    Ok(0) => break CancelByKeyAnswer::Left,
                    Ok(_) => break CancelByKeyAnswer::Cancelled,
                    Err(error) if is_deadlock(&error) && retries < DEADLOCK_RETRIES => retries += 1,
                    Err(error) if is_locked(&error) => {
                        waited = true;
                        break CancelByKeyAnswer::Locked;
                    }
                    Err(failure) => return Err(error(failure)),
                }
            });
        }
        Ok(answers)
    }

    fn withdrawal(&self, withdrawal: &CancelByKey, ahead: Duration) -> Statement<'static> {
        let CancelByKey { over: seen, heard } = withdrawal;
        statement(self.queries.plain(queries::CANCEL_BY_KEY))
            .bind(heard.0)
            .bind(heard.0)
            .bind(seen.arming.row)
            .bind(seen.arming.due.0)
            .bind(seen.stamp.changed.0)
            .bind(seen.stamp.created.0)
            .bind(ahead.as_millis() as i64)
            .bind(ahead.as_millis() as i64)
    }
}

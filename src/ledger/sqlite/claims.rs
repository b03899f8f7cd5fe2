//! Claims: look up, claim, renew, settle, end leases.

use std::time::Duration;

use async_trait::async_trait;
use rusqlite::Result;
use tokio::time::Instant;

use super::SqliteLedger;
use super::rows::{one, save, save_end, save_run};
use super::session::{Session, id};
use crate::ledger::{
    Claim, Claimant, Claims, FoundLease, Lease, LedgerError, Lookup, Owner, Renewal, Settled,
    Settlement,
};
use crate::task::{Arming, TaskKey, Verdict};

#[async_trait]
impl Claims for SqliteLedger {
    async fn look_up(&self, keys: &[TaskKey]) -> Result<Vec<Option<Lookup>>, LedgerError> {
        let keys = keys.to_vec();
        self.read(move |session| look_up(session, &keys)).await
    }

    async fn claim(&self, armings: &[Arming], by: &Claimant) -> Result<Vec<Claim>, LedgerError> {
        let (armings, by) = (armings.to_vec(), by.clone());
        let claimed = Instant::now();
        self.write(move |session| claim(session, &armings, &by, claimed))
            .await
    }

    async fn renew(&self, leases: &[Lease], length: Duration) -> Result<Vec<Renewal>, LedgerError> {
        let leases = leases.to_vec();
        self.write(move |session| renew(session, &leases, length))
            .await
    }

    async fn settle(&self, settlements: &[Settlement]) -> Result<Vec<Settled>, LedgerError> {
        let settlements = settlements.to_vec();
        self.write(move |session| settle(session, &settlements))
            .await
    }

    async fn pardon(&self, lease: &Lease) -> Result<Renewal, LedgerError> {
        let lease = *lease;
        self.write(move |session| pardon(session, &lease)).await
    }

    async fn end_leases(&self, leases: &[FoundLease]) -> Result<u64, LedgerError> {
        let leases = leases.to_vec();
        self.write(move |session| end_leases(session, &leases))
            .await
    }
}

fn look_up(session: &Session<'_>, keys: &[TaskKey]) -> Result<Vec<Option<Lookup>>> {
    let mut find = session.prepare(&session.queries.row_by_key)?;
    let mut look_up = |key: &TaskKey| {
        let found = one(&mut find, [key.as_str()])?;
        Ok(found.map(|stored| stored.row.lookup(session.now)))
    };
    keys.iter().map(&mut look_up).collect()
}

fn claim(
    session: &Session<'_>,
    armings: &[Arming],
    by: &Claimant,
    claimed: Instant,
) -> Result<Vec<Claim>> {
    let mut find = session.prepare(&session.queries.row_by_id)?;
    let mut write = session.prepare(&session.queries.save_run)?;
    let mut write_all = session.prepare(&session.queries.save)?;
    let owner = Owner::random();
    let mut claims = Vec::with_capacity(armings.len());
    for arming in armings {
        let found = one(&mut find, [id(arming.row)])?;
        let Some(stored) = found.filter(|stored| stored.malformed.is_none()) else {
            continue;
        };
        let mut row = stored.row;
        if row.free_and_due(session.now) {
            row.claim(by, owner, session.now);
            match row.deleted {
                // Its last claim: see `Row::claim`.
                true => save(&mut write_all, &row)?,
                false => save_run(&mut write, &row)?,
            }
            claims.push(row.claimed(owner, claimed));
        }
    }
    Ok(claims)
}

fn renew(session: &Session<'_>, leases: &[Lease], length: Duration) -> Result<Vec<Renewal>> {
    let mut find = session.prepare(&session.queries.row_by_id)?;
    let mut write = session.prepare(&session.queries.save_run)?;
    let mut renew = |lease: &Lease| {
        let Some(mut stored) = one(&mut find, [id(lease.arming.row)])? else {
            return Ok(Renewal::Lost);
        };
        let renewal = stored.row.renew(lease.owner, length, session.now);
        if renewal == Renewal::Held {
            save_run(&mut write, &stored.row)?;
        }
        Ok(renewal)
    };
    leases.iter().map(&mut renew).collect()
}

fn settle(session: &Session<'_>, settlements: &[Settlement]) -> Result<Vec<Settled>> {
    let mut find = session.prepare(&session.queries.row_by_id)?;
    let mut write_end = session.prepare(&session.queries.save_end)?;
    let mut write = session.prepare(&session.queries.save)?;
    let mut settle = |settlement: &Settlement| {
        let Some(mut stored) = one(&mut find, [id(settlement.lease.arming.row)])? else {
            return Ok(Settled::Fenced);
        };
        let settled = stored.row.settle(settlement, session.now);
        match settlement.verdict {
            _ if settled == Settled::Fenced => {}
            Verdict::Complete | Verdict::CompleteWith(_) => save_end(&mut write_end, &stored.row)?,
            _ => save(&mut write, &stored.row)?,
        }
        Ok(settled)
    };
    settlements.iter().map(&mut settle).collect()
}

fn pardon(session: &Session<'_>, lease: &Lease) -> Result<Renewal> {
    let mut find = session.prepare(&session.queries.row_by_id)?;
    let mut write = session.prepare(&session.queries.save_run)?;
    let Some(mut stored) = one(&mut find, [id(lease.arming.row)])? else {
        return Ok(Renewal::Lost);
    };
    let renewal = stored.row.pardon(lease, session.now);
    if renewal == Renewal::Held {
        save_run(&mut write, &stored.row)?;
    }
    Ok(renewal)
}

fn end_leases(session: &Session<'_>, leases: &[FoundLease]) -> Result<u64> {
    let mut find = session.prepare(&session.queries.row_by_id)?;
    let mut write = session.prepare(&session.queries.save_run)?;
    let mut ended = 0;
    for lease in leases {
        let Some(mut stored) = one(&mut find, [id(lease.row)])? else {
            continue;
        };
        if stored.row.end_lease(lease, session.now) {
            save_run(&mut write, &stored.row)?;
            ended += 1;
        }
    }
    Ok(ended)
}

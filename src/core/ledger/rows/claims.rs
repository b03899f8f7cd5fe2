//! Claims: look up, claim, renew, settle, end leases.

use std::time::Duration;

use async_trait::async_trait;
use tokio::time::Instant;

use super::store::{At, Columns, Parts, RowStore};
use super::{Length, Result, RowLedger, update};
use crate::ledger::{
    Claim, Claimant, Claims, FoundLease, Lease, Lookup, Owner, Progress, Renewal, Settled,
    Settlement,
};
use crate::task::{Arming, TaskKey, Verdict};

#[async_trait]
impl<L: RowLedger> Claims for L {
    async fn look_up(&self, keys: &[TaskKey]) -> Result<Vec<Option<Lookup>>> {
        let keys = keys.to_vec();
        self.read(Length::Short, move |store| {
            let mut look_up = |key: &TaskKey| {
                let found = store.row(At::Key(key), Parts::Brief)?;
                Ok(found.map(|stored| stored.row.lookup(store.now())))
            };
            keys.iter().map(&mut look_up).collect()
        })
        .await
    }

    async fn claim(&self, armings: &[Arming], by: &Claimant) -> Result<Vec<Claim>> {
        let (armings, by) = (armings.to_vec(), by.clone());
        let claimed = Instant::now();
        self.write(Length::Short, move |store| {
            claim(store, &armings, &by, claimed)
        })
        .await
    }

    async fn renew(&self, leases: &[Lease], length: Duration) -> Result<Vec<Renewal>> {
        let leases = leases.to_vec();
        self.write(Length::Short, move |store| {
            let mut renew = |lease: &Lease| {
                let at = At::Row(lease.arming.row);
                let renewal = update(
                    store,
                    at,
                    Columns::Run,
                    |row, now| row.renew(lease.owner, length, now),
                    |renewal| *renewal == Renewal::Held,
                )?;
                Ok(renewal.unwrap_or(Renewal::Lost))
            };
            leases.iter().map(&mut renew).collect()
        })
        .await
    }

    async fn report(
        &self,
        reports: &[(Lease, Progress)],
        length: Duration,
    ) -> Result<Vec<Renewal>> {
        let reports = reports.to_vec();
        self.write(Length::Short, move |store| {
            let mut report = |(lease, progress): &(Lease, Progress)| {
                let renewal = update(
                    store,
                    At::Row(lease.arming.row),
                    Columns::Run,
                    |row, now| row.report(lease.owner, progress, length, now),
                    |renewal| *renewal == Renewal::Held,
                )?;
                Ok(renewal.unwrap_or(Renewal::Lost))
            };
            reports.iter().map(&mut report).collect()
        })
        .await
    }

    async fn settle(&self, settlements: &[Settlement]) -> Result<Vec<Settled>> {
        let settlements = settlements.to_vec();
        self.write(Length::Short, move |store| {
            let mut settle = |settlement: &Settlement| settle(store, settlement);
            settlements.iter().map(&mut settle).collect()
        })
        .await
    }

    async fn pardon(&self, lease: &Lease) -> Result<Renewal> {
        let lease = *lease;
        self.write(Length::Short, move |store| {
            let renewal = update(
                store,
                At::Row(lease.arming.row),
                Columns::Run,
                |row, now| row.pardon(&lease, now),
                |renewal| *renewal == Renewal::Held,
            )?;
            Ok(renewal.unwrap_or(Renewal::Lost))
        })
        .await
    }

    async fn end_leases(&self, leases: &[FoundLease]) -> Result<u64> {
        let leases = leases.to_vec();
        self.write(Length::Short, move |store| {
            let mut ended = 0;
            for lease in &leases {
                let at = At::Row(lease.row);
                let end = update(
                    store,
                    at,
                    Columns::Run,
                    |row, now| row.end_lease(lease, now),
                    |ended| *ended,
                )?;
                ended += u64::from(end.unwrap_or_default());
            }
            Ok(ended)
        })
        .await
    }
}

fn claim(
    store: &mut dyn RowStore,
    armings: &[Arming],
    by: &Claimant,
    claimed: Instant,
) -> Result<Vec<Claim>> {
    let (now, owner) = (store.now(), Owner::random());
    let mut claims = Vec::with_capacity(armings.len());
    for arming in armings {
        let found = store.row(At::Row(arming.row), Parts::Whole)?;
        let Some(stored) = found.filter(|stored| stored.malformed.is_none()) else {
            continue;
        };
        let mut row = stored.row;
        if row.free_and_due(now) {
            row.claim(by, owner, now);
            store.save(
                &row,
                match row.deleted {
                    // Its last claim: see `Row::claim`.
                    true => Columns::All,
                    false => Columns::Run,
                },
            )?;
            claims.push(row.claimed(owner, claimed));
        }
    }
    Ok(claims)
}

fn settle(store: &mut dyn RowStore, settlement: &Settlement) -> Result<Settled> {
    let columns = match settlement.verdict {
        Verdict::Complete | Verdict::CompleteWith(_) => Columns::End,
        // It has a result.
        Verdict::NextOccurrence { .. } => Columns::All,
        _ => Columns::Brief,
    };
    let settled = update(
        store,
        At::Row(settlement.lease.arming.row),
        columns,
        |row, now| row.settle(settlement, now),
        |settled| *settled != Settled::Fenced,
    )?;
    Ok(settled.unwrap_or(Settled::Fenced))
}

/// Settles the run that holds `lease`, as its handler's own transaction ends. `None`: the claim is lost.
pub fn settle_in(
    store: &mut dyn RowStore,
    lease: Lease,
    ending: crate::ledger::Ending,
    result: Option<String>,
) -> Result<Option<crate::task::Outcome>> {
    let outcome = update(
        store,
        At::Row(lease.arming.row),
        Columns::All,
        |row, now| row.settle_in(lease, ending, result, now),
        Option::is_some,
    )?;
    Ok(outcome.flatten())
}

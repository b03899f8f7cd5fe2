//! Writing how runs ended: one statement for what succeeded, one for what is released, one for each
//! that failed, was snoozed, or has a result; and if fewer rows matched than were sent, a look at what became of them.

use std::collections::{HashMap, HashSet};

use super::MysqlLedger;
use super::connection::{Conn, Statement, error, is_locked, statement};
use super::queries::{self, padded};
use super::rows::SettledRow;
use crate::ledger::{ERROR_BYTES_MAX, Lease, LedgerError, Ruling, Settled, Settlement};
use crate::task::{Mishap, Reason, UnixMs};

impl MysqlLedger {
    pub(super) async fn settle_batch(
        &self,
        settlements: &[Settlement],
    ) -> Result<Vec<Settled>, LedgerError> {
        let mut conn = self.pools.acquire().await?;
        self.settle_on(&mut conn, settlements).await.map_err(error)
    }

    async fn settle_on(
        &self,
        conn: &mut Conn,
        settlements: &[Settlement],
    ) -> sqlx::Result<Vec<Settled>> {
        let leases_of = |ruling: fn(&Ruling) -> bool| -> Vec<Lease> {
            settlements
                .iter()
                .filter(|settlement| ruling(&settlement.ruling))
                .map(|settlement| settlement.lease)
                .collect()
        };
        let mut locked: HashSet<Lease> = HashSet::new();
        let mut matched = 0;
        for (template, leases) in [
            (
                queries::COMPLETE,
                leases_of(|ruling| matches!(ruling, Ruling::Complete)),
            ),
            (
                queries::RELEASE,
                leases_of(|ruling| matches!(ruling, Ruling::Release)),
            ),
        ] {
            let past = self
                .locks
                .get_past(
                    conn,
                    &self.queries,
                    &leases,
                    |lease| lease.arming.row,
                    |conn, batch| Box::pin(conn.execute(self.fenced(template, batch))),
                )
                .await?;
            matched += past.matched;
            locked.extend(past.locked);
        }
        let mut single: Vec<Settlement> = settlements
            .iter()
            .filter(|s| !matches!(s.ruling, Ruling::Complete | Ruling::Release))
            .cloned()
            .collect();
        single.sort_by_key(|settlement| settlement.lease.arming.row);
        for one in single.chunks(1) {
            let past = self
                .locks
                .get_past(
                    conn,
                    &self.queries,
                    one,
                    |settlement| settlement.lease.arming.row,
                    |conn, one| Box::pin(conn.execute(self.single(&one[0]))),
                )
                .await?;
            matched += past.matched;
            locked.extend(past.locked.iter().map(|settlement| settlement.lease));
        }
        let nothing_to_learn = matched == settlements.len() as u64
            && settlements.iter().all(|s| s.ruling.is_success());
        if nothing_to_learn {
            return Ok(vec![Settled::Applied; settlements.len()]);
        }
        self.look_back(conn, settlements, &locked).await
    }

    fn fenced(&self, template: &str, leases: &[Lease]) -> Statement<'static> {
        let leases = padded(leases);
        let update = statement(self.queries.with_rows(template, leases.len()));
        let update = leases
            .iter()
            .fold(update, |update, lease| update.bind(lease.arming.row));
        leases.iter().fold(update, |update, lease| {
            update
                .bind(lease.arming.row)
                .bind(lease.arming.due.0)
                .bind(lease.owner.0.to_vec())
        })
    }

    fn single(&self, settlement: &Settlement) -> Statement<'static> {
        let Lease { arming, owner } = settlement.lease;
        let update = match &settlement.ruling {
            Ruling::RetryAt { at, error, mishap } => statement(self.queries.plain(queries::RETRY))
                .bind(at.0)
                .bind(cut(error).to_owned())
                .bind(mishap.to_line()),
            Ruling::Snooze { at, mishap } => statement(self.queries.plain(queries::SNOOZE))
                .bind(at.0)
                .bind(mishap.to_line()),
            Ruling::Bury {
                reason,
                error,
                mishap,
            } => statement(self.queries.plain(queries::BURY))
                .bind(reason.as_str())
                .bind(i64::from(*reason == Reason::Expired))
                .bind(cut(error).to_owned())
                .bind(mishap.to_line()),
            Ruling::CompleteWith(result) => {
                statement(self.queries.plain(queries::COMPLETE_WITH)).bind(result.clone())
            }
            Ruling::GoOn {
                next,
                error,
                mishap,
                result,
            } => {
                let error = error.as_deref().map(cut);
                self.going_on(*next, error, mishap.as_ref(), result.clone())
            }
            Ruling::Complete | Ruling::Release => unreachable!("written in batches"),
        };
        update
            .bind(arming.row)
            .bind(arming.due.0)
            .bind(owner.0.to_vec())
    }

    /// [`queries::GO_ON`], without the fence that comes last.
    pub(super) fn going_on(
        &self,
        next: UnixMs,
        error: Option<&str>,
        mishap: Option<&Mishap>,
        result: Option<String>,
    ) -> Statement<'static> {
        const DONE: i64 = 1;
        const CANCELLED: i64 = 3;
        statement(self.queries.plain(queries::GO_ON))
            .bind(error.map_or(DONE, |_| CANCELLED))
            .bind(error.map(str::to_owned))
            .bind(result)
            .bind(mishap.map(Mishap::to_line))
            .bind(next.0)
    }

    /// What became of each: our own writing shows as a row that is ours, of this arming, without a lease.
    async fn look_back(
        &self,
        conn: &mut Conn,
        settlements: &[Settlement],
        locked: &HashSet<Lease>,
    ) -> sqlx::Result<Vec<Settled>> {
        let ids = padded(
            &settlements
                .iter()
                .map(|settlement| settlement.lease.arming.row)
                .collect::<Vec<_>>(),
        );
        let question = ids.iter().fold(
            statement(self.queries.with_rows(queries::SETTLED, ids.len())),
            |question, id| question.bind(*id),
        );
        let rows = conn.fetch(question).await?;
        let rows: HashMap<u64, SettledRow> = rows
            .iter()
            .map(|row| SettledRow::read(row).map(|row| (row.arming.row, row)))
            .collect::<Result<_, _>>()?;
        let mut settled = Vec::with_capacity(settlements.len());
        for settlement in settlements {
            let lease = settlement.lease;
            settled.push(match rows.get(&lease.arming.row) {
                _ if locked.contains(&lease) => Settled::Locked,
                Some(row) if row.owner != Some(lease.owner) => Settled::Fenced,
                Some(row) if went_on(row, &settlement.ruling) => Settled::Applied,
                Some(row) if row.arming != lease.arming => {
                    self.afterwards(conn, queries::GIVE_BACK, lease, Settled::Superseded)
                        .await?
                }
                Some(row) if row.status == 1 && row.lease_left => {
                    self.afterwards(conn, queries::TIDY, lease, Settled::ByHandler)
                        .await?
                }
                Some(row) if row.status == 1 && !settlement.ruling.is_success() => {
                    Settled::ByHandler
                }
                Some(row) if row.status == 3 || (row.status == 0 && row.deleted) => {
                    Settled::Cancelled
                }
                Some(row) if !row.lease_left => Settled::Applied,
                _ => Settled::Fenced,
            });
        }
        Ok(settled)
    }

    /// A statement about one lease, after a look at its row. Another session may have locked that since: the others
    /// of the batch are written.
    async fn afterwards(
        &self,
        conn: &mut Conn,
        template: &str,
        lease: Lease,
        settled: Settled,
    ) -> sqlx::Result<Settled> {
        let update = statement(self.queries.plain(template))
            .bind(lease.arming.row)
            .bind(lease.owner.0.to_vec());
        match conn.execute(update.bind(lease.arming.due.0)).await {
            Ok(_) => Ok(settled),
            Err(error) if is_locked(&error) => Ok(Settled::Locked),
            Err(error) => Err(error),
        }
    }
}

/// Whether the series has gone on as it was to, and nobody has claimed it since.
fn went_on(row: &SettledRow, ruling: &Ruling) -> bool {
    matches!(ruling, Ruling::GoOn { next, .. } if row.arming.due == *next && row.status == 0 && !row.lease_left)
}

/// The head of an error text, whole characters.
fn cut(text: &str) -> &str {
    &text[..text.floor_char_boundary(ERROR_BYTES_MAX)]
}

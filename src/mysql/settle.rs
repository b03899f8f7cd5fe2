//! Settles runs: one statement for completions, one for releases, one for each run that failed, was snoozed, or has a
//! result. If fewer rows matched than were sent, reads what became of them.

use std::collections::{HashMap, HashSet};

use super::MysqlLedger;
use super::connection::{Conn, Statement, about_rows, statement};
use super::decode::SettledRow;
use super::error::error;
use super::error_numbers::is_locked;
use super::locks::SkippedLocked;
use super::queries::{self, padded};
use lapsed_core::ledger::settlement::LeftOpen;
use lapsed_core::ledger::{Lease, LedgerError, Settled, Settlement};
use lapsed_core::task::{Death, ERROR_BYTES_MAX, EndedOccurrence, OccurrenceEnd, UnixMs, Verdict};

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
        let leases_of = |verdict: fn(&Verdict) -> bool| -> Vec<Lease> {
            settlements
                .iter()
                .filter(|settlement| verdict(&settlement.verdict))
                .map(|settlement| settlement.lease)
                .collect()
        };
        let mut reached = Reached::default();
        for (template, leases) in [
            (
                queries::COMPLETE,
                leases_of(|verdict| matches!(verdict, Verdict::Complete)),
            ),
            (
                queries::RELEASE,
                leases_of(|verdict| matches!(verdict, Verdict::Release)),
            ),
            (
                queries::GIVE_BACK,
                leases_of(|verdict| matches!(verdict, Verdict::GiveBack)),
            ),
        ] {
            let done = self
                .locks
                .skip_locked(
                    conn,
                    &self.queries,
                    &leases,
                    |lease| lease.arming.row,
                    |conn, batch| Box::pin(conn.execute(self.fenced(template, batch))),
                )
                .await?;
            reached.add(leases, done);
        }
        let mut single: Vec<Settlement> = settlements
            .iter()
            .filter(|s| !is_written_in_batches(&s.verdict))
            .cloned()
            .collect();
        single.sort_by_key(|settlement| settlement.lease.arming.row);
        for one in &single {
            let done = self.write_one(conn, one).await?;
            reached.add(vec![one.lease], done);
        }
        // Reading these rows would tell nothing more. A later claim may have changed them since.
        let is_known = |one: &&Settlement| {
            let is_conclusive =
                one.verdict.is_success() || matches!(one.verdict, Verdict::NextOccurrence { .. });
            is_conclusive && reached.written.contains(&one.lease)
        };
        let (known, open): (Vec<&Settlement>, Vec<&Settlement>) =
            settlements.iter().partition(is_known);
        let mut settled: HashMap<Lease, Settled> = known
            .into_iter()
            .map(|one| (one.lease, Settled::Applied))
            .collect();
        if !open.is_empty() {
            settled.extend(self.look_back(conn, &open, &reached).await?);
        }
        let answer = |one: &Settlement| settled.get(&one.lease).copied();
        Ok(settlements
            .iter()
            .map(|one| answer(one).unwrap_or(Settled::Fenced))
            .collect())
    }

    /// Writes one settlement by a statement of its own.
    async fn write_one(
        &self,
        conn: &mut Conn,
        one: &Settlement,
    ) -> sqlx::Result<SkippedLocked<Lease>> {
        let SkippedLocked { matched, locked } = self
            .locks
            .skip_locked(
                conn,
                &self.queries,
                std::slice::from_ref(one),
                |settlement| settlement.lease.arming.row,
                |conn, one| Box::pin(conn.execute(self.single(&one[0]))),
            )
            .await?;
        let locked = locked.iter().map(|one| one.lease).collect();
        Ok(SkippedLocked { matched, locked })
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
        let update = match &settlement.verdict {
            Verdict::RetryAt {
                at,
                error,
                attempt_error,
            } => statement(self.queries.plain(queries::RETRY))
                .bind(at.0)
                .bind(cut(error).to_owned())
                .bind(attempt_error.to_line()),
            Verdict::Snooze { at, attempt_error } => statement(self.queries.plain(queries::SNOOZE))
                .bind(at.0)
                .bind(attempt_error.to_line()),
            Verdict::Bury(Death {
                reason,
                error,
                attempt_error,
            }) => statement(self.queries.plain(queries::BURY))
                .bind(reason.as_str())
                .bind(i64::from(reason.is_without_run()))
                .bind(cut(error).to_owned())
                .bind(attempt_error.to_line()),
            Verdict::CompleteWith(result) => {
                statement(self.queries.plain(queries::COMPLETE_WITH)).bind(result.clone())
            }
            verdict @ Verdict::NextOccurrence { .. } => {
                let next_occurrence = NextOccurrence::of(verdict).expect("matched above");
                next_occurrence.bound(
                    statement(self.queries.plain(queries::NEXT_OCCURRENCE)),
                    arming.due,
                    false,
                )
            }
            Verdict::Complete | Verdict::Release | Verdict::GiveBack => {
                unreachable!("written in batches")
            }
        };
        update
            .bind(arming.row)
            .bind(arming.due.0)
            .bind(owner.0.to_vec())
    }

    /// Returns what became of each run. A written one shows as a row of this owner and arming, without a lease.
    async fn look_back(
        &self,
        conn: &mut Conn,
        settlements: &[&Settlement],
        reached: &Reached,
    ) -> sqlx::Result<Vec<(Lease, Settled)>> {
        let ids: Vec<u64> = settlements.iter().map(|one| one.lease.arming.row).collect();
        let question = about_rows(&self.queries, queries::SETTLED, &ids);
        let rows = conn.fetch(question).await?;
        let rows: HashMap<u64, SettledRow> = rows
            .iter()
            .map(|row| SettledRow::read(row).map(|row| (row.arming.row, row)))
            .collect::<Result<_, _>>()?;
        let mut settled = Vec::with_capacity(settlements.len());
        for Settlement { lease, verdict } in settlements.iter().copied() {
            let answer = match rows.get(&lease.arming.row) {
                _ if reached.locked.contains(lease) => Settled::Locked,
                Some(row) if row.owner != Some(lease.owner) => {
                    match reached.written.contains(lease) {
                        true if row.status == 3 => Settled::Cancelled,
                        // It was written, and has been claimed since.
                        true => Settled::Applied,
                        false => Settled::Fenced,
                    }
                }
                Some(row) if is_advanced(row, verdict) => Settled::Applied,
                Some(row) if row.arming != lease.arming => {
                    self.afterwards(conn, queries::LET_GO, *lease, Settled::Superseded)
                        .await?
                }
                // The lease stays for the settlement of the success.
                Some(row) if row.marked() && row.recurring && !verdict.is_success() => {
                    Settled::ByHandler
                }
                Some(row)
                    if row.lease_left() && matches!(verdict, Verdict::NextOccurrence { .. }) =>
                {
                    self.end_with_it(conn, *lease, verdict).await?
                }
                Some(row) if row.marked() => {
                    self.afterwards(conn, queries::TIDY, *lease, Settled::ByHandler)
                        .await?
                }
                Some(row) if row.status == 1 && !verdict.is_success() => Settled::ByHandler,
                Some(row)
                    if row.status == 1 && matches!(verdict, Verdict::NextOccurrence { .. }) =>
                {
                    Settled::Ended
                }
                Some(row) if row.lease_left() => Settled::Fenced,
                Some(row) => settled_before(row, verdict),
                None => Settled::Fenced,
            };
            settled.push((*lease, answer));
        }
        Ok(settled)
    }

    /// Ends a series that was cancelled during the run. Tries again if the row has changed since it was read.
    async fn end_with_it(
        &self,
        conn: &mut Conn,
        lease: Lease,
        verdict: &Verdict,
    ) -> sqlx::Result<Settled> {
        let Some(next_occurrence) = NextOccurrence::of(verdict) else {
            return Ok(Settled::Fenced);
        };
        let update = next_occurrence
            .bound(
                statement(self.queries.plain(queries::NEXT_OCCURRENCE)),
                lease.arming.due,
                true,
            )
            .bind(lease.arming.row)
            .bind(lease.arming.due.0)
            .bind(lease.owner.0.to_vec());
        match conn.execute(update).await {
            Ok(0) => Ok(Settled::Locked),
            Ok(_) if verdict.is_success() => Ok(Settled::Ended),
            Ok(_) => Ok(Settled::Cancelled),
            Err(error) if is_locked(&error) => Ok(Settled::Locked),
            Err(error) => Err(error),
        }
    }

    /// Runs a statement about one lease, whose row was read before. Another session may have locked the row since; the other
    /// rows of the batch are written.
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

/// What the statements have reported.
#[derive(Default)]
struct Reached {
    /// Leases whose rows have matched.
    written: HashSet<Lease>,
    locked: HashSet<Lease>,
}

impl Reached {
    /// Adds the result of one statement. Which of several rows it matched is known only if it matched all.
    fn add(&mut self, leases: Vec<Lease>, done: SkippedLocked<Lease>) {
        let SkippedLocked { matched, locked } = done;
        if matched + locked.len() as u64 == leases.len() as u64 {
            let free = leases.iter().filter(|lease| !locked.contains(lease));
            self.written.extend(free);
        }
        self.locked.extend(locked);
    }
}

/// Values for [`queries::NEXT_OCCURRENCE`].
pub(super) struct NextOccurrence<'a> {
    next: UnixMs,
    end: &'a OccurrenceEnd,
    result: Option<String>,
}

impl<'a> NextOccurrence<'a> {
    pub fn succeeded(next: UnixMs, result: Option<String>) -> Self {
        Self {
            next,
            end: &OccurrenceEnd::Succeeded,
            result,
        }
    }

    /// Binds these values, without the fence, which comes last. `due` is the due time of the occurrence that has ended.
    /// `cancelled` selects a series that was cancelled during the run.
    pub fn bound(
        self,
        update: Statement<'static>,
        due: UnixMs,
        cancelled: bool,
    ) -> Statement<'static> {
        const PENDING: i64 = 0;
        const DONE: i64 = 1;
        const CANCELLED: i64 = 3;
        let Self { next, end, result } = self;
        let ran = end.was_run();
        let error = end.death().map(|death| cut(&death.error));
        let attempt_error = end.death().map(|death| death.attempt_error.to_line());
        let left = error.map_or(LeftOpen::Continued, |_| LeftOpen::Failed);
        update
            .bind(error.map_or(DONE, |_| CANCELLED))
            .bind(left.lease_until().0)
            .bind(EndedOccurrence::new(due, end).to_string())
            .bind(i64::from(ran))
            .bind(error.map(str::to_owned))
            .bind(i64::from(ran))
            .bind(result)
            .bind(attempt_error)
            .bind(next.0)
            .bind(i64::from(cancelled))
            // A task marked as processed has not failed.
            .bind(error.map_or(DONE, |_| PENDING))
    }

    fn of(verdict: &'a Verdict) -> Option<Self> {
        let Verdict::NextOccurrence { next, end, result } = verdict else {
            return None;
        };
        Some(Self {
            next: *next,
            end,
            result: result.clone(),
        })
    }
}

fn is_written_in_batches(verdict: &Verdict) -> bool {
    matches!(
        verdict,
        Verdict::Complete | Verdict::Release | Verdict::GiveBack
    )
}

/// Returns the answer for a row that no claim holds, and that the claim of this verdict was the last to hold.
fn settled_before(row: &SettledRow, verdict: &Verdict) -> Settled {
    let is_by = match row.status {
        0 => LeftOpen::is_by(row.lease_until, verdict),
        1 => verdict.is_success(),
        2 => LeftOpen::of(verdict) == Some(LeftOpen::Failed),
        3 => !verdict.is_success(),
        _ => false,
    };
    match is_by {
        true if row.status == 3 || row.deleted => Settled::Cancelled,
        true => Settled::Applied,
        // It was released, has failed or was snoozed: another report of this claim comes too late.
        false => Settled::Fenced,
    }
}

/// True if the series has moved to its next occurrence, and nothing has claimed that yet.
fn is_advanced(row: &SettledRow, verdict: &Verdict) -> bool {
    matches!(verdict, Verdict::NextOccurrence { next, .. } if row.arming.due == *next && row.status == 0 && LeftOpen::is_by(row.lease_until, verdict))
}

/// Cuts an error text at a character.
fn cut(text: &str) -> &str {
    &text[..text.floor_char_boundary(ERROR_BYTES_MAX)]
}

//! Retention: deletes or archives finished rows in batches.

use std::ops::ControlFlow::Continue;
use std::time::Duration;

use async_trait::async_trait;

use super::admin::update_rows;
use super::store::{
    At, Count, DueRange, END, Parts, Range, RowStore, START, ScanRange, Store, Stored,
};
use super::{Length, Result, RowLedger};
use crate::ledger::row::{NEVER, Row, Status};
use crate::ledger::{ArchiveMaintenance, DuePlace, Prune, PruneCursor, Pruned, Retention};
use crate::task::{State, UnixMs};

/// Number of rows of a page of [`end_cancelled`](Retention::end_cancelled).
const DELETED_ROWS: usize = 10_000;

/// Number of archived rows of a state that are deleted in a transaction, and of pages that are read to find them.
const EXPIRED_ROWS: u32 = 500;
const EXPIRED_PAGES_MAX: usize = 20;

#[async_trait]
impl<L: RowLedger> Retention for L {
    async fn prune(&self, prune: &Prune) -> Result<Pruned> {
        let prune = *prune;
        if prune.dry_run {
            let find = move |store: &mut dyn Store| find(store, &prune);
            return self.read(Length::Long, find).await;
        }
        self.write(Length::Long, move |store| {
            let mut pruned = find(store, &prune)?;
            for (row, _) in std::mem::take(&mut pruned.found) {
                remove(store, row, prune.archive)?;
            }
            Ok(pruned)
        })
        .await
    }

    async fn prune_rows(&self, prune: &Prune, rows: &[u64]) -> Result<u64> {
        let Some(status) = status_of(prune.state) else {
            return Ok(0);
        };
        let (rows, archive) = (rows.to_vec(), prune.archive);
        let least = Prune::AGE_MIN.min(prune.age.unwrap_or(Duration::MAX));
        self.write(Length::Long, move |store| {
            let (now, mut count) = (store.now(), 0);
            for id in rows {
                let found = store.row(At::Row(id), Parts::Brief)?;
                let goes = found.is_some_and(|Stored { row, .. }| {
                    row.status == status
                        && !row.is_configured()
                        && age(now, row.finished()) >= Some(least)
                });
                if goes {
                    remove(store, id, archive)?;
                    count += 1;
                }
            }
            Ok(count)
        })
        .await
    }

    async fn maintain_archive(&self, keep: Option<Duration>) -> Result<ArchiveMaintenance> {
        let Some(keep) = keep else {
            // There is none in a file that was last migrated before there were archives.
            let is_there = |store: &mut dyn Store| store.in_archive(&mut |_| Ok(()));
            self.read(Length::Short, is_there).await?;
            return Ok(ArchiveMaintenance::default());
        };
        self.write(Length::Long, move |store| {
            let mut done = ArchiveMaintenance::default();
            store.in_archive(&mut |archive| {
                done = expire(archive, keep)?;
                Ok(())
            })?;
            Ok(done)
        })
        .await
    }

    async fn end_cancelled(&self, after: Option<DuePlace>) -> Result<(u64, Option<DuePlace>)> {
        let ran_out = self.read(Length::Long, move |store| ran_out(store, after));
        let (rows, next) = ran_out.await?;
        let ended = update_rows(self, &rows, Row::end_cancelled_run).await?;
        Ok((ended, next))
    }

    async fn surplus(&self, state: State, keep: u64) -> Result<Option<PruneCursor>> {
        let Some(status) = status_of(state) else {
            return Ok(None);
        };
        self.read(Length::Short, move |store| surplus(store, status, keep))
            .await
    }
}

/// Deletes a row, or moves it to the archive.
fn remove(store: &mut dyn Store, id: u64, archive: bool) -> Result<()> {
    match archive {
        true => store.archive(id),
        false => store.delete(id),
    }
}

/// Deletes the oldest rows of the archive, up to [`EXPIRED_ROWS`].
fn expire(archive: &mut dyn RowStore, keep: Duration) -> Result<ArchiveMaintenance> {
    let mut done = ArchiveMaintenance::default();
    for state in [State::Done, State::Dead, State::Cancelled] {
        let mut prune = Prune {
            state,
            age: Some(keep),
            surplus: None,
            after: None,
            limit: EXPIRED_ROWS,
            archive: false,
            dry_run: false,
        };
        // Rows that fell due long ago and finished later may come first.
        for _ in 0..EXPIRED_PAGES_MAX {
            let found = find(archive, &prune)?;
            for (row, _) in found.found {
                archive.delete(row)?;
            }
            done.rows += found.rows;
            prune.after = found.next;
            done.is_behind |= found.rows > 0 && found.next.is_some();
            if found.rows > 0 || found.next.is_none() {
                break;
            }
        }
    }
    Ok(done)
}

/// Finds the rows of a batch that are old enough, or surplus.
fn find(store: &mut dyn RowStore, prune: &Prune) -> Result<Pruned> {
    let Prune {
        state,
        age: age_min,
        surplus,
        after,
        limit,
        archive: _,
        dry_run: _,
    } = *prune;
    let Some(status) = status_of(state) else {
        return Ok(Pruned::default());
    };
    let after = after.unwrap_or(PruneCursor::START);
    let is_surplus = |place: PruneCursor| surplus.is_some_and(|last| place <= last);
    // No row that is due later is old enough.
    let youngest = match (age_min, is_surplus(after)) {
        (Some(age), true) => age.min(Prune::AGE_MIN),
        (Some(age), false) => age,
        (None, true) => Prune::AGE_MIN,
        (None, false) => return Ok(Pruned::default()),
    };
    let found = finished(store, status, after, youngest, limit)?;
    let is_full = found.len() >= limit as usize;
    let last = found.last().map(|stored| place(stored, after.deleted));
    let next = match last {
        Some(last) if is_full => Some(last),
        // After the other rows come those that a program has deleted.
        _ if !after.deleted => Some(PruneCursor {
            deleted: true,
            ..PruneCursor::START
        }),
        _ => None,
    };
    let mut pruned = Pruned {
        next: next.filter(|next| age_min.is_some() || is_surplus(*next)),
        ..Pruned::default()
    };
    for stored in found {
        let row = &stored.row;
        let aged = age(store.now(), row.finished());
        let old = age_min.is_some_and(|least| aged >= Some(least));
        let spare = is_surplus(place(&stored, after.deleted)) && aged >= Some(Prune::AGE_MIN);
        if row.is_configured() || !(old || spare) {
            continue;
        }
        pruned.rows += 1;
        pruned.found.push((row.id, stored.key()));
    }
    Ok(pruned)
}

/// Reads a page of the deleted rows that are not finished. Returns those whose lease has run out, and the place of the last.
fn ran_out(
    store: &mut dyn RowStore,
    after: Option<DuePlace>,
) -> Result<(Vec<u64>, Option<DuePlace>)> {
    let range = DueRange {
        from: after.unwrap_or(START),
        ..DueRange::all(Status::Unprocessed.number(), true)
    };
    let (now, mut found, mut last) = (store.now(), Vec::new(), None);
    let ended = store.scan(&ScanRange::Due(range), DELETED_ROWS, &mut |row| {
        last = Some(row.place());
        if row.lease_until > NEVER && row.lease_until < now {
            found.push(row.id);
        }
        Continue(())
    })?;
    Ok((found, last.filter(|_| ended.is_break())))
}

/// Reads the next rows of a finished state that were due at least this long ago.
fn finished(
    store: &mut dyn RowStore,
    status: Status,
    after: PruneCursor,
    youngest: Duration,
    limit: u32,
) -> Result<Vec<Stored>> {
    let youngest_ms = i64::try_from(youngest.as_millis()).unwrap_or(i64::MAX);
    let range = DueRange {
        from: (after.due_at, after.row),
        to: UnixMs(store.now().0.saturating_sub(youngest_ms)),
        ..DueRange::all(status.number(), after.deleted)
    };
    let (range, limit, mut found) = (Range::Due(range), limit as usize, Vec::new());
    let _ = store.walk(&range, Parts::Brief, limit, &mut |stored| {
        found.push(stored);
        Continue(())
    })?;
    Ok(found)
}

/// Returns the row with `keep` others behind it.
fn surplus(store: &mut dyn RowStore, status: Status, keep: u64) -> Result<Option<PruneCursor>> {
    let (status, mut left) = (status.number(), keep);
    for deleted in [true, false] {
        if let Some((due_at, row)) = store.last_due(status, deleted, left)? {
            return Ok(Some(PruneCursor {
                deleted,
                due_at,
                row,
            }));
        }
        if deleted {
            left -= store.count(Count {
                status,
                deleted: Some(deleted),
                before: END.0,
                limit: left,
            })?;
        }
    }
    Ok(None)
}

fn place(stored: &Stored, deleted: bool) -> PruneCursor {
    PruneCursor {
        deleted,
        due_at: stored.row.due_at(),
        row: stored.row.id,
    }
}

/// Returns the time since a moment; `None` if it is in the future.
fn age(now: UnixMs, since: UnixMs) -> Option<Duration> {
    (since <= now).then(|| now.since(since))
}

/// Returns the status of a finished state. `None` for the others, which are never pruned.
fn status_of(state: State) -> Option<Status> {
    match state {
        State::Done => Some(Status::Processed),
        State::Dead => Some(Status::Dead),
        State::Cancelled => Some(Status::Cancelled),
        State::Pending | State::Waiting | State::Running => None,
    }
}

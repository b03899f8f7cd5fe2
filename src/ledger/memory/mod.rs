//! The ledger in memory: the same rules as the real one, for tests without servers.
//!
//! Its clock is tokio's, so a test that pauses time moves it by hand. Nothing survives the process.

mod catalog;
mod detailed_stats;
mod pauses;
mod row;
mod settle;
mod table;
mod view;

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard};
use std::time::Duration;

use async_trait::async_trait;
use tokio::time::Instant;

use self::row::{NEVER, Row, Status};
use self::table::Table;
use super::recurring::SeriesRow;
use super::{
    Adopted, AdoptionRequest, CancelAnswer, CancelCursor, CancelFilter, CancelPage, Claim,
    Claimant, Created, DuePage, DuePlace, DueScan, FoundLease, IfPending, Known, Lease, LeasePage,
    Ledger, LedgerError, Lookup, NewTask, Owner, Pauses, Renewal, RescheduleAnswer, RunNowAnswer,
    Settled, Settlement, Stands, Upcoming, WITHDRAW_AHEAD, Window,
};
use crate::clock::LedgerClock;
use crate::task::{
    Arming, Attempt, KeyBucket, KeyBuckets, Origin, Recurrence, State, TaskKey, UnixMs,
};

/// A ledger without a server.
#[derive(Debug)]
pub struct MemoryLedger {
    clock: LedgerClock,
    table: Mutex<Table>,
    read_ahead: AtomicU64,
}

impl MemoryLedger {
    /// An empty ledger whose clock starts at `now`.
    pub fn new(now: UnixMs) -> Self {
        Self::on(LedgerClock::starting_at(now))
    }

    /// An empty ledger on this clock.
    pub fn on(clock: LedgerClock) -> Self {
        Self {
            clock,
            table: Mutex::default(),
            read_ahead: AtomicU64::new(0),
        }
    }

    /// Rows of future tasks that scans have returned so far: what looking ahead has cost, for tests.
    pub fn rows_read_ahead(&self) -> u64 {
        self.read_ahead.load(Ordering::Relaxed)
    }

    fn count_read_ahead(&self, window: Window, page: &DuePage) {
        if let Window::Ahead(_) = window {
            self.read_ahead
                .fetch_add(page.rows.len() as u64, Ordering::Relaxed);
        }
    }

    fn page(&self, scan: DueScan) -> DuePage {
        let now = self.clock.now();
        let within = |row: &Row, deleted: bool, back: Duration, ahead: Duration| {
            row.status == Status::Unprocessed
                && row.deleted == deleted
                && row.due_at().plus(back) > now
                && row.due_at() <= now.plus(ahead)
        };
        let table = self.table();
        let mut rows: Vec<&Row> = table
            .rows
            .values()
            .filter(|row| match scan.window {
                Window::OverdueOldest(by) | Window::OverdueNewest(by) => {
                    row.free_and_due(now) && now.since(row.due_at()) >= by
                }
                Window::Ahead(span) => within(row, false, Duration::ZERO, span),
                Window::Deleted { back, ahead } => within(row, true, back, ahead),
            })
            .collect();
        rows.sort_by_key(|row| (row.due_at(), row.id));
        let place = |row: &Row| (row.due_at(), row.id);
        if matches!(scan.window, Window::OverdueNewest(_)) {
            rows.reverse();
            rows.retain(|row| scan.after.is_none_or(|after| place(row) < after));
        } else {
            rows.retain(|row| scan.after.is_none_or(|after| place(row) > after));
        }
        let more = rows.len() > scan.limit as usize;
        rows.truncate(scan.limit as usize);
        DuePage {
            next: rows.last().map(|row| place(row)).filter(|_| more),
            rows: rows.into_iter().map(Row::upcoming).collect(),
            foreign: 0,
        }
    }

    fn table(&self) -> MutexGuard<'_, Table> {
        self.table
            .lock()
            .expect("nothing panics while holding the table")
    }

    fn mend(&self, key: &TaskKey, mend: impl FnOnce(&mut Row, UnixMs) -> bool) -> RunNowAnswer {
        let now = self.clock.now();
        match self.table().of_key(key) {
            None => RunNowAnswer::Unknown,
            Some(row) => match mend(row, now) {
                true => RunNowAnswer::Due(row.arming()),
                false => RunNowAnswer::Refused(row.state(now)),
            },
        }
    }
}

impl Default for MemoryLedger {
    /// An empty ledger whose clock starts at this machine's time.
    fn default() -> Self {
        Self::new(crate::clock::wall())
    }
}

#[async_trait]
impl Ledger for MemoryLedger {
    fn clock(&self) -> &LedgerClock {
        &self.clock
    }

    async fn sync_clock(&self) -> Result<UnixMs, LedgerError> {
        Ok(self.clock.now())
    }

    async fn check(&self) -> Result<(), LedgerError> {
        Ok(())
    }

    fn pauses(&self) -> &dyn Pauses {
        self
    }

    async fn create(&self, tasks: &[NewTask]) -> Result<Vec<Created>, LedgerError> {
        let now = self.clock.now();
        let mut table = self.table();
        for policy in IfPending::ALL {
            for task in tasks.iter().filter(|task| task.if_pending == policy) {
                table.create(task, now);
            }
        }
        let answer = |row: &Row, asked: &NewTask| Created {
            arming: row.arming(),
            state: row.state(now),
            older_run: row.leased(now) && !row.has_run(),
            since: row.start_time,
            stands: Stands::after(asked, row.end_time),
        };
        Ok(tasks
            .iter()
            .map(|task| answer(table.of_key(&task.key).expect("just created"), task))
            .collect())
    }

    async fn series(&self, key: &TaskKey) -> Result<Option<SeriesRow>, LedgerError> {
        let now = self.clock.now();
        Ok(self.table().of_key(key).map(|row| row.series(now)))
    }

    async fn write_series(
        &self,
        task: &NewTask,
        over: Option<&SeriesRow>,
    ) -> Result<Option<Arming>, LedgerError> {
        let now = self.clock.now();
        let mut table = self.table();
        Ok(match (table.of_key(&task.key), over) {
            (None, None) => Some(table.create(task, now).arming()),
            (Some(row), Some(over)) => row.write_series(task, over, now).then(|| row.arming()),
            _ => None,
        })
    }

    async fn mark_configured(&self, seen: &SeriesRow) -> Result<bool, LedgerError> {
        let mut table = self.table();
        let row = table.rows.get_mut(&seen.lookup.arming.row);
        Ok(row.is_some_and(|row| row.mark_configured(seen)))
    }

    async fn reschedule(
        &self,
        key: &TaskKey,
        due: UnixMs,
    ) -> Result<RescheduleAnswer, LedgerError> {
        let now = self.clock.now();
        let mut table = self.table();
        let Some(row) = table.of_key(key) else {
            return Ok(RescheduleAnswer::Unknown);
        };
        Ok(match row.state(now) {
            State::Pending | State::Waiting => {
                let moved = |recurrence: Recurrence| recurrence.moved(row.end_time);
                row.recurrence = row.recurrence.take().map(moved);
                row.end_time = due;
                row.changed_at = now;
                row.run_end = NEVER;
                row.last_error = None;
                row.history.clear();
                row.origin = Origin::Row;
                RescheduleAnswer::Moved(row.arming())
            }
            State::Running => RescheduleAnswer::Running,
            state @ (State::Done | State::Dead | State::Cancelled) => {
                RescheduleAnswer::Finished(state)
            }
        })
    }

    async fn cancel(&self, keys: &[TaskKey]) -> Result<Vec<CancelAnswer>, LedgerError> {
        let now = self.clock.now();
        let mut table = self.table();
        let mut cancel = |key: &TaskKey| match table.of_key(key) {
            Some(row) => row.cancel(now),
            None => CancelAnswer::Unknown,
        };
        Ok(keys.iter().map(&mut cancel).collect())
    }

    /// All in one page.
    async fn cancel_page(
        &self,
        filter: &CancelFilter,
        _before: Option<CancelCursor>,
        dry_run: bool,
    ) -> Result<CancelPage, LedgerError> {
        filter.check()?;
        let now = self.clock.now();
        let mut page = CancelPage::default();
        let mut table = self.table();
        let fits = |row: &&mut Row| {
            row.status == Status::Unprocessed
                && filter.fits_key(&row.key)
                && (filter.tag.is_none() || row.tag == filter.tag)
        };
        for row in table.rows.values_mut().filter(fits) {
            let answer = match dry_run {
                true if row.leased(now) => CancelAnswer::Running,
                true => CancelAnswer::Cancelled,
                false => row.cancel(now),
            };
            match answer {
                CancelAnswer::Running => page.running.push(row.key.clone()),
                _ => page.cancelled.push(row.key.clone()),
            }
        }
        Ok(page)
    }

    async fn look_up(&self, keys: &[TaskKey]) -> Result<Vec<Option<Lookup>>, LedgerError> {
        let now = self.clock.now();
        let mut table = self.table();
        let mut lookup = |key: &TaskKey| table.of_key(key).map(|row| row.lookup(now));
        Ok(keys.iter().map(&mut lookup).collect())
    }

    async fn scan(&self, scan: DueScan) -> Result<DuePage, LedgerError> {
        let page = self.page(scan);
        self.count_read_ahead(scan.window, &page);
        Ok(page)
    }

    async fn scan_news(
        &self,
        scan: DueScan,
        among: &KeyBuckets,
        known: Known<'_>,
    ) -> Result<DuePage, LedgerError> {
        let everything = DueScan {
            limit: u32::MAX,
            ..scan
        };
        let mut page = self.page(everything);
        page.rows
            .retain(|row| among.contains(KeyBucket::of(&row.key)));
        let more = page.rows.len() > scan.limit as usize;
        page.rows.truncate(scan.limit as usize);
        let last = page.rows.last();
        page.next = last
            .map(|row| (row.due_at, row.arming.row))
            .filter(|_| more);
        page.rows.retain(|row| !known(row.arming.row, row.due_at));
        self.count_read_ahead(scan.window, &page);
        Ok(page)
    }

    async fn claim(&self, armings: &[Arming], by: &Claimant) -> Result<Vec<Claim>, LedgerError> {
        let (now, claimed, owner) = (self.clock.now(), Instant::now(), Owner::random());
        let mut table = self.table();
        let mut claims = Vec::new();
        for arming in armings {
            let Some(row) = table.rows.get_mut(&arming.row) else {
                continue;
            };
            if !row.free_and_due(now) {
                continue;
            }
            row.claim(by, owner, now);
            claims.push(Claim {
                lease: Lease {
                    arming: row.arming(),
                    owner,
                },
                key: row.key.clone(),
                attempt: Attempt {
                    number: row.attempt,
                    crashes: row.crashes,
                    max_attempts: row.max_attempts,
                    since: row.end_time.max(row.start_time),
                    snoozes: row.snoozes(),
                },
                created: row.start_time,
                due_at: row.due_at(),
                payload: row.readable_payload().cloned(),
                oversize: row.oversize(),
                tag: row.tag.clone(),
                recurrence: row.recurrence.clone().map(|known| Arc::new(Ok(known))),
                claimed,
            });
        }
        Ok(claims)
    }

    async fn renew(&self, leases: &[Lease], length: Duration) -> Result<Vec<Renewal>, LedgerError> {
        let now = self.clock.now();
        let mut table = self.table();
        let mut renew = |lease: &Lease| match table.rows.get_mut(&lease.arming.row) {
            Some(row) if row.owner == Some(lease.owner) && row.leased(now) => {
                row.lease_until = now.plus(length);
                Renewal::Held
            }
            _ => Renewal::Lost,
        };
        Ok(leases.iter().map(&mut renew).collect())
    }

    /// All in one page.
    async fn scan_leases(&self, after: Option<DuePlace>) -> Result<LeasePage, LedgerError> {
        let now = self.clock.now();
        let table = self.table();
        let leased = table.rows.values().filter(|row| {
            row.status == Status::Unprocessed
                && !row.deleted
                && row.due_at() <= now
                && row.lease_until > NEVER
                && after.is_none_or(|after| (row.due_at(), row.id) > after)
        });
        let lease = |row: &Row| {
            Some(FoundLease {
                row: row.id,
                owner: row.owner?,
                daemon: row.daemon.clone(),
                until: row.lease_until,
            })
        };
        Ok(LeasePage {
            leases: leased.filter_map(lease).collect(),
            next: None,
        })
    }

    async fn end_leases(&self, leases: &[FoundLease]) -> Result<u64, LedgerError> {
        let now = self.clock.now();
        let mut table = self.table();
        let mut end = |lease: &FoundLease| {
            let row = table.rows.get_mut(&lease.row);
            row.is_some_and(|row| row.end_lease(lease, now))
        };
        Ok(leases.iter().filter(|lease| end(lease)).count() as u64)
    }

    async fn free_of(&self, rows: &[u64]) -> Result<Vec<Upcoming>, LedgerError> {
        let now = self.clock.now();
        let table = self.table();
        let found = rows.iter().filter_map(|id| table.rows.get(id));
        let free = found.filter(|row| row.free_and_due(now));
        Ok(free.map(Row::upcoming).collect())
    }

    async fn settle(&self, settlements: &[Settlement]) -> Result<Vec<Settled>, LedgerError> {
        let now = self.clock.now();
        let mut table = self.table();
        let mut settle =
            |settlement: &Settlement| match table.rows.get_mut(&settlement.lease.arming.row) {
                Some(row) => row.settle(settlement, now),
                None => Settled::Fenced,
            };
        Ok(settlements.iter().map(&mut settle).collect())
    }

    async fn adopt(&self, keys: &[AdoptionRequest]) -> Result<Vec<Adopted>, LedgerError> {
        let now = self.clock.now();
        let mut table = self.table();
        let mut adopt = |found: &AdoptionRequest| {
            let AdoptionRequest {
                key,
                due,
                heard,
                from_key,
                over,
            } = found;
            let heard = *heard.min(due);
            match (table.of_key(key), over) {
                (None, None) => {
                    let id = table.create(&NewTask::new(key.clone(), *due), heard).id;
                    let row = table.rows.get_mut(&id).expect("just created");
                    row.origin = Origin::Key;
                    Adopted::Written(row.arming())
                }
                (Some(row), Some(over)) if row.is_unchanged_since(over, now) => {
                    row.adopt(*due, heard, *from_key);
                    Adopted::Written(row.arming())
                }
                _ => Adopted::Overtaken,
            }
        };
        Ok(keys.iter().map(&mut adopt).collect())
    }

    async fn withdraw(&self, seen: &Lookup, heard: UnixMs) -> Result<bool, LedgerError> {
        let now = self.clock.now();
        let mut table = self.table();
        let row = table.rows.get_mut(&seen.arming.row).filter(|row| {
            row.is_unchanged_since(seen, now)
                && row.origin == Origin::Key
                && row.recurrence.is_none()
                && row.status == Status::Unprocessed
                && !row.deleted
                && row.due_at() > now.plus(WITHDRAW_AHEAD)
        });
        Ok(row
            .map(|row| {
                row.cancel(now);
                row.changed_at = heard.max(seen.stamp.changed);
                row.finished_at = Some(row.changed_at);
                row.origin = Origin::DeletedKey;
            })
            .is_some())
    }

    async fn undelete(&self, arming: Arming) -> Result<bool, LedgerError> {
        let mut table = self.table();
        let row = table.rows.get_mut(&arming.row);
        let row = row.filter(|row| {
            let by_lapsed = row.finished_at.is_some_and(|at| at >= row.start_time);
            row.arming() == arming && row.status == Status::Unprocessed && row.deleted && !by_lapsed
        });
        Ok(row.map(|row| row.deleted = false).is_some())
    }
}

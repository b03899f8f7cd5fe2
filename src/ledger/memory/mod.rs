//! The ledger in memory: the same rules as the real one, for tests without servers.
//!
//! Its clock is tokio's, so a test that pauses time moves it by hand. Nothing survives the process.

mod book;
mod catalog;
mod pauses;
mod record;
mod row;
mod settle;
mod survey;

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard};
use std::time::Duration;

use async_trait::async_trait;
use tokio::time::Instant;

use self::book::Book;
use self::row::{NEVER, Row, Status};
use super::recurring::SeriesRow;
use super::{
    Adopted, CancelAnswer, CancelCursor, CancelFilter, CancelPage, Claim, Claimant, Created,
    DuePage, DuePlace, DueScan, FoundLease, Foundling, IfPending, Known, Lease, LeasePage, Ledger,
    LedgerError, Lookup, NewTask, NudgeAnswer, Owner, Pauses, Renewal, RescheduleAnswer, Settled,
    Settlement, Stands, Upcoming, WITHDRAW_AHEAD, Window,
};
use crate::clock::LedgerClock;
use crate::task::{
    Arming, Attempt, KeyBucket, KeyBuckets, Origin, Recurrence, State, TaskKey, UnixMs,
};

/// A ledger without a server.
#[derive(Debug)]
pub struct MemoryLedger {
    clock: LedgerClock,
    book: Mutex<Book>,
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
            book: Mutex::default(),
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
        let book = self.book();
        let mut rows: Vec<&Row> = book
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

    fn book(&self) -> MutexGuard<'_, Book> {
        self.book
            .lock()
            .expect("nothing panics while holding the book")
    }

    fn mend(&self, key: &TaskKey, mend: impl FnOnce(&mut Row, UnixMs) -> bool) -> NudgeAnswer {
        let now = self.clock.now();
        match self.book().of_key(key) {
            None => NudgeAnswer::Unknown,
            Some(row) => match mend(row, now) {
                true => NudgeAnswer::Due(row.arming()),
                false => NudgeAnswer::Refused(row.state(now)),
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
        let mut book = self.book();
        for policy in IfPending::ALL {
            for task in tasks.iter().filter(|task| task.if_pending == policy) {
                book.create(task, now);
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
            .map(|task| answer(book.of_key(&task.key).expect("just created"), task))
            .collect())
    }

    async fn series(&self, key: &TaskKey) -> Result<Option<SeriesRow>, LedgerError> {
        let now = self.clock.now();
        Ok(self.book().of_key(key).map(|row| row.series(now)))
    }

    async fn recur(
        &self,
        task: &NewTask,
        over: Option<&SeriesRow>,
    ) -> Result<Option<Arming>, LedgerError> {
        let now = self.clock.now();
        let mut book = self.book();
        Ok(match (book.of_key(&task.key), over) {
            (None, None) => Some(book.create(task, now).arming()),
            (Some(row), Some(over)) => row.recur(task, over, now).then(|| row.arming()),
            _ => None,
        })
    }

    async fn mark_configured(&self, seen: &SeriesRow) -> Result<bool, LedgerError> {
        let mut book = self.book();
        let row = book.rows.get_mut(&seen.lookup.arming.row);
        Ok(row.is_some_and(|row| row.mark_configured(seen)))
    }

    async fn reschedule(
        &self,
        key: &TaskKey,
        due: UnixMs,
    ) -> Result<RescheduleAnswer, LedgerError> {
        let now = self.clock.now();
        let mut book = self.book();
        let Some(row) = book.of_key(key) else {
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
        let mut book = self.book();
        let mut cancel = |key: &TaskKey| match book.of_key(key) {
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
        let mut book = self.book();
        let fits = |row: &&mut Row| {
            row.status == Status::Unprocessed
                && filter.fits_key(&row.key)
                && (filter.tag.is_none() || row.tag == filter.tag)
        };
        for row in book.rows.values_mut().filter(fits) {
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
        let mut book = self.book();
        let mut lookup = |key: &TaskKey| book.of_key(key).map(|row| row.lookup(now));
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
        let mut book = self.book();
        let mut claims = Vec::new();
        for arming in armings {
            let Some(row) = book.rows.get_mut(&arming.row) else {
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
        let mut book = self.book();
        let mut renew = |lease: &Lease| match book.rows.get_mut(&lease.arming.row) {
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
        let book = self.book();
        let leased = book.rows.values().filter(|row| {
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
        let mut book = self.book();
        let mut end = |lease: &FoundLease| {
            let row = book.rows.get_mut(&lease.row);
            row.is_some_and(|row| row.end_lease(lease, now))
        };
        Ok(leases.iter().filter(|lease| end(lease)).count() as u64)
    }

    async fn free_of(&self, rows: &[u64]) -> Result<Vec<Upcoming>, LedgerError> {
        let now = self.clock.now();
        let book = self.book();
        let found = rows.iter().filter_map(|id| book.rows.get(id));
        let free = found.filter(|row| row.free_and_due(now));
        Ok(free.map(Row::upcoming).collect())
    }

    async fn settle(&self, settlements: &[Settlement]) -> Result<Vec<Settled>, LedgerError> {
        let now = self.clock.now();
        let mut book = self.book();
        let mut settle =
            |settlement: &Settlement| match book.rows.get_mut(&settlement.lease.arming.row) {
                Some(row) => row.settle(settlement, now),
                None => Settled::Fenced,
            };
        Ok(settlements.iter().map(&mut settle).collect())
    }

    async fn adopt(&self, keys: &[Foundling]) -> Result<Vec<Adopted>, LedgerError> {
        let now = self.clock.now();
        let mut book = self.book();
        let mut adopt = |found: &Foundling| {
            let Foundling {
                key,
                due,
                heard,
                from_key,
                over,
            } = found;
            let heard = *heard.min(due);
            match (book.of_key(key), over) {
                (None, None) => {
                    let id = book.create(&NewTask::new(key.clone(), *due), heard).id;
                    let row = book.rows.get_mut(&id).expect("just created");
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
        let mut book = self.book();
        let row = book.rows.get_mut(&seen.arming.row).filter(|row| {
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

    async fn revive(&self, arming: Arming) -> Result<bool, LedgerError> {
        let mut book = self.book();
        let row = book.rows.get_mut(&arming.row);
        let row = row.filter(|row| {
            let by_lapsed = row.finished_at.is_some_and(|at| at >= row.start_time);
            row.arming() == arming && row.status == Status::Unprocessed && row.deleted && !by_lapsed
        });
        Ok(row.map(|row| row.deleted = false).is_some())
    }
}

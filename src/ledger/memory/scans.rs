//! Scans in memory.

use std::collections::BTreeMap;
use std::sync::atomic::Ordering;
use std::time::Duration;

use async_trait::async_trait;

use super::MemoryLedger;
use crate::ledger::row::{NEVER, Row, Status};
use crate::ledger::{
    DuePage, DuePlace, DueScan, FoundLease, Known, LeasePage, LedgerError, MethodPages, MethodScan,
    MethodTag, NearScan, Scans, Upcoming, Window,
};
use crate::task::{KeyBucket, KeyBuckets, Paused};

#[async_trait]
impl Scans for MemoryLedger {
    async fn scan(&self, scan: DueScan) -> Result<DuePage, LedgerError> {
        let page = self.page(scan);
        self.count_read_ahead(scan.window, &page);
        Ok(page)
    }

    async fn scan_new(
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

    async fn scan_near(
        &self,
        scan: NearScan,
        among: &KeyBuckets,
        known: Known<'_>,
    ) -> Result<Vec<Upcoming>, LedgerError> {
        let NearScan { back, ahead, limit } = scan;
        let now = self.clock.now();
        let table = self.table();
        let mut rows: Vec<&Row> = table
            .rows
            .values()
            .filter(|row| {
                row.status == Status::Unprocessed
                    && !row.deleted
                    && row.due_at().plus(back) > now
                    && row.due_at() <= now.plus(ahead)
            })
            .collect();
        rows.sort_by_key(|row| std::cmp::Reverse((row.due_at(), row.id)));
        let near = rows.into_iter().map(|row| (row, row.upcoming()));
        let ours = near.filter(|(_, near)| among.contains(KeyBucket::of(&near.key)));
        let new = ours
            .take(limit as usize)
            .filter(|(row, near)| !known(row.id, near.due_at) && !row.leased(now));
        Ok(new.map(|(_, near)| near).collect())
    }

    async fn scan_unpaused(&self, scan: DueScan, paused: &Paused) -> Result<DuePage, LedgerError> {
        let mut page = self.scan(scan).await?;
        page.rows
            .retain(|row| paused.hinders(&row.key, row.arming.due).is_none());
        Ok(page)
    }

    async fn scan_methods(&self, scan: MethodScan) -> Result<Option<MethodPages>, LedgerError> {
        let everything = self.page(DueScan {
            window: Window::OverdueOldest(scan.by),
            after: None,
            limit: u32::MAX,
        });
        let mut methods: BTreeMap<MethodTag, Vec<Upcoming>> = BTreeMap::new();
        for row in everything.rows {
            let method = MethodTag(row.key.class_method().to_owned());
            if scan.after.as_ref().is_none_or(|after| method > *after) {
                methods.entry(method).or_default().push(row);
            }
        }
        let more = methods.len() > scan.methods;
        let pages: Vec<(MethodTag, DuePage)> = methods
            .into_iter()
            .take(scan.methods)
            .map(|(method, rows)| (method, first_of(rows, scan.limit)))
            .collect();
        let last = pages.last().map(|(method, _)| method.clone());
        Ok(Some(MethodPages {
            next: last.filter(|_| more),
            pages,
        }))
    }

    async fn scan_method(&self, method: &MethodTag, scan: DueScan) -> Result<DuePage, LedgerError> {
        let mut rows = self
            .page(DueScan {
                limit: u32::MAX,
                ..scan
            })
            .rows;
        rows.retain(|row| row.key.class_method() == method.0);
        Ok(first_of(rows, scan.limit))
    }

    /// Returns all leases in one page.
    async fn scan_leases(
        &self,
        after: Option<DuePlace>,
        ahead: Duration,
    ) -> Result<LeasePage, LedgerError> {
        let now = self.clock.now();
        let table = self.table();
        let leased = table.rows.values().filter(|row| {
            row.status == Status::Unprocessed
                && !row.deleted
                && row.due_at() <= now.plus(ahead)
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

    async fn claimable(&self, rows: &[u64]) -> Result<Vec<Upcoming>, LedgerError> {
        let now = self.clock.now();
        let table = self.table();
        let found = rows.iter().filter_map(|id| table.rows.get(id));
        let free = found.filter(|row| row.free_and_due(now));
        Ok(free.map(Row::upcoming).collect())
    }
}

/// Returns the page that begins with these rows.
fn first_of(mut rows: Vec<Upcoming>, limit: u32) -> DuePage {
    let more = rows.len() > limit as usize;
    rows.truncate(limit as usize);
    let last = rows.last().map(|row| (row.due_at, row.arming.row));
    DuePage {
        next: last.filter(|_| more),
        rows,
        foreign: 0,
    }
}

impl MemoryLedger {
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
}

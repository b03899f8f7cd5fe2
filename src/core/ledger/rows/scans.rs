//! Scans of rows by due time, in pages.

use std::ops::ControlFlow::{Break, Continue};
use std::time::Duration;

use async_trait::async_trait;

use super::store::{Direction, DueRange, END, RowStore, START, ScanRange, Scanned};
use super::{Length, Result, RowLedger};
use crate::ledger::row::Status;
use crate::ledger::{
    DuePage, DuePlace, DueScan, Known, LeasePage, MethodPages, MethodScan, MethodTag, NearScan,
    Scans, Upcoming, Window,
};
use crate::task::{KeyBucket, KeyBuckets, Paused, UnixMs};

/// Maximum number of rows that one page of [`scan_unpaused`](Scans::scan_unpaused) or
/// [`scan_leases`](Scans::scan_leases) covers.
const PAGE_ROWS: usize = 10_000;

#[async_trait]
impl<L: RowLedger> Scans for L {
    async fn scan(&self, scan: DueScan) -> Result<DuePage> {
        let page = self.read(Length::Short, move |store| {
            let range = ScanRange::Due(range_of(scan, store.now()));
            page(store, &range, scan, usize::MAX, |_| true)
        });
        let page = page.await?;
        if matches!(scan.window, Window::Ahead(_)) {
            self.note_read_ahead(page.rows.len());
        }
        Ok(page)
    }

    async fn scan_new(
        &self,
        scan: DueScan,
        among: &KeyBuckets,
        known: Known<'_>,
    ) -> Result<DuePage> {
        let wanted = among.clone();
        let places = self.read(Length::Short, move |store| {
            let range = range_of(scan, store.now());
            places(store, range, scan.limit, &wanted)
        });
        let places = places.await?;
        let next = places.last().copied();
        let next = next.filter(|_| places.len() >= scan.limit as usize);
        let condition = match scan.window {
            Window::Deleted { .. } => Condition::Deleted,
            Window::OverdueOldest(_) | Window::OverdueNewest(_) => Condition::Claimable,
            Window::Due | Window::Ahead(_) => Condition::Live,
        };
        let mut page = rows_of(self, unknown(places, known), condition).await?;
        page.next = next;
        if matches!(scan.window, Window::Ahead(_)) {
            self.note_read_ahead(page.rows.len());
        }
        Ok(page)
    }

    async fn scan_near(
        &self,
        scan: NearScan,
        among: &KeyBuckets,
        known: Known<'_>,
    ) -> Result<Vec<Upcoming>> {
        let NearScan { back, ahead, limit } = scan;
        let wanted = among.clone();
        let places = self.read(Length::Short, move |store| {
            let now = store.now();
            let range = DueRange {
                direction: Direction::Down,
                from: (now.plus(ahead), u64::MAX),
                to: ago(now, back),
                ..pending()
            };
            places(store, range, limit, &wanted)
        });
        let new = unknown(places.await?, known);
        Ok(rows_of(self, new, Condition::Free).await?.rows)
    }

    async fn unsignalled_changes(&self) -> Result<Option<u64>> {
        RowLedger::unsignalled_changes(self).await
    }

    async fn scan_unpaused(&self, scan: DueScan, paused: &Paused) -> Result<DuePage> {
        if paused.is_everything() {
            return Ok(DuePage::default());
        }
        let paused = paused.clone();
        self.read(Length::Short, move |store| {
            let range = ScanRange::Due(range_of(scan, store.now()));
            page(store, &range, scan, PAGE_ROWS, |row| {
                paused.blocks(&row.key, row.arming.due).is_none()
            })
        })
        .await
    }

    async fn scan_methods(&self, scan: MethodScan) -> Result<Option<MethodPages>> {
        self.read(Length::Short, move |store| method_pages(store, &scan))
            .await
    }

    async fn scan_method(&self, method: &MethodTag, scan: DueScan) -> Result<DuePage> {
        let method = method.clone();
        self.read(Length::Short, move |store| method_page(store, method, scan))
            .await
    }

    async fn scan_leases(&self, after: Option<DuePlace>, ahead: Duration) -> Result<LeasePage> {
        self.read(Length::Short, move |store| leases(store, after, ahead))
            .await
    }

    async fn claimable(&self, rows: &[u64]) -> Result<Vec<Upcoming>> {
        let page = rows_of(self, rows.to_vec(), Condition::Claimable);
        Ok(page.await?.rows)
    }
}

/// What a row must be.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Condition {
    /// Pending, leased or not.
    Live,
    /// Pending and not leased.
    Free,
    /// Pending, due and not leased.
    Claimable,
    /// Deleted by a legacy program.
    Deleted,
}

impl Condition {
    fn fits(self, row: &Scanned<'_>, now: UnixMs) -> bool {
        let free = !row.is_leased(now);
        row.status == Status::Unprocessed.number()
            && match self {
                Self::Live => !row.deleted,
                Self::Free => !row.deleted && free,
                Self::Claimable => !row.deleted && free && row.due_at <= now,
                Self::Deleted => row.deleted,
            }
    }
}

/// Reads those of these rows that fit, in this order.
async fn rows_of(ledger: &impl RowLedger, rows: Vec<u64>, condition: Condition) -> Result<DuePage> {
    if rows.is_empty() {
        return Ok(DuePage::default());
    }
    ledger
        .read(Length::Short, move |store| {
            let (now, mut page) = (store.now(), DuePage::default());
            let _ = store.scan(&ScanRange::Rows(rows), usize::MAX, &mut |row| {
                if condition.fits(row, now) {
                    add(&mut page, row.upcoming());
                }
                Continue(())
            })?;
            Ok(page)
        })
        .await
}

fn add(page: &mut DuePage, row: Option<Upcoming>) {
    match row {
        Some(row) => page.rows.push(row),
        None => page.foreign += 1,
    }
}

fn unknown(places: Vec<DuePlace>, known: Known<'_>) -> Vec<u64> {
    let unknown = places.into_iter().filter(|(due, row)| !known(*row, *due));
    unknown.map(|(_, row)| row).collect()
}

/// The pending rows, earliest first.
fn pending() -> DueRange {
    DueRange::all(Status::Unprocessed.number(), false)
}

/// Returns the range of a scan.
fn range_of(scan: DueScan, now: UnixMs) -> DueRange {
    let up = |from: DuePlace, to: UnixMs| DueRange {
        from: scan.after.unwrap_or(START).max(from),
        to,
        ..pending()
    };
    match scan.window {
        Window::OverdueOldest(by) => up(START, ago(now, by)),
        Window::OverdueNewest(by) => DueRange {
            direction: Direction::Down,
            from: scan.after.unwrap_or(END).min((ago(now, by), u64::MAX)),
            to: START.0,
            ..pending()
        },
        Window::Due => up(START, now),
        Window::Ahead(span) => up((now, u64::MAX), now.plus(span)),
        Window::Deleted { back, ahead } => DueRange {
            deleted: true,
            ..up((ago(now, back), u64::MAX), now.plus(ahead))
        },
    }
}

/// Reads a page of rows, of which it covers at most `most`. Overdue rows that are leased are left out.
fn page(
    store: &mut dyn RowStore,
    range: &ScanRange,
    scan: DueScan,
    most: usize,
    wanted: impl Fn(&Upcoming) -> bool,
) -> Result<DuePage> {
    let (now, mut page) = (store.now(), DuePage::default());
    let is_full = |page: &DuePage| page.rows.len() + page.foreign >= scan.limit as usize;
    if is_full(&page) {
        return Ok(page);
    }
    let overdue = matches!(
        scan.window,
        Window::OverdueOldest(_) | Window::OverdueNewest(_)
    );
    let ended = store.scan(range, most, &mut |row| {
        page.next = Some(row.place());
        if !(overdue && row.is_leased(now)) {
            let row = row.upcoming();
            if row.as_ref().is_none_or(&wanted) {
                add(&mut page, row);
            }
        }
        match is_full(&page) {
            true => Break(()),
            false => Continue(()),
        }
    })?;
    if ended.is_continue() {
        page.next = None;
    }
    Ok(page)
}

/// Reads the first page of each class and method. `None` without the index for it.
fn method_pages(store: &mut dyn RowStore, scan: &MethodScan) -> Result<Option<MethodPages>> {
    if !store.has_method_index() {
        return Ok(None);
    }
    let mut found = MethodPages::default();
    let mut at = scan.after.clone();
    for _ in 0..scan.methods {
        let after = at.as_ref().map_or("", |MethodTag(name)| name);
        let Some(method) = store.next_method(after)? else {
            return Ok(Some(found));
        };
        let first = DueScan {
            window: Window::OverdueOldest(scan.by),
            after: None,
            limit: scan.limit,
        };
        let page = method_page(store, method.clone(), first)?;
        if page != DuePage::default() {
            found.pages.push((method.clone(), page));
        }
        at = Some(method);
    }
    found.next = at;
    Ok(Some(found))
}

fn method_page(store: &mut dyn RowStore, method: MethodTag, scan: DueScan) -> Result<DuePage> {
    let DueRange { from, to, .. } = range_of(scan, store.now());
    let range = ScanRange::Method { method, from, to };
    page(store, &range, scan, usize::MAX, |_| true)
}

/// Reads the places of rows whose keys are in these buckets, from the index alone if that is all of them.
fn places(
    store: &mut dyn RowStore,
    range: DueRange,
    limit: u32,
    among: &KeyBuckets,
) -> Result<Vec<DuePlace>> {
    let (mut places, limit) = (Vec::new(), limit as usize);
    if among.is_all() {
        let _ = store.places(range, limit, &mut |place| {
            places.push(place);
            Continue(())
        })?;
        return Ok(places);
    }
    let is_wanted = |row: &Scanned<'_>| {
        let key = row.task_key();
        key.is_none_or(|key| among.contains(KeyBucket::of(&key)))
    };
    let _ = store.scan(&ScanRange::Due(range), usize::MAX, &mut |row| {
        if places.len() >= limit {
            return Break(());
        }
        places.extend(is_wanted(row).then(|| row.place()));
        Continue(())
    })?;
    Ok(places)
}

fn leases(store: &mut dyn RowStore, after: Option<DuePlace>, ahead: Duration) -> Result<LeasePage> {
    let range = DueRange {
        from: after.unwrap_or(START),
        to: store.now().plus(ahead),
        ..pending()
    };
    let mut page = LeasePage::default();
    let ended = store.scan(&ScanRange::Due(range), PAGE_ROWS, &mut |row| {
        page.next = Some(row.place());
        page.leases.extend(row.lease());
        Continue(())
    })?;
    if ended.is_continue() {
        page.next = None;
    }
    Ok(page)
}

fn ago(now: UnixMs, span: Duration) -> UnixMs {
    UnixMs(now.0.saturating_sub(millis(span)))
}

fn millis(span: Duration) -> i64 {
    i64::try_from(span.as_millis()).unwrap_or(i64::MAX)
}

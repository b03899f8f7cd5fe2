//! Scans of rows by due time, in pages.

use std::sync::atomic::Ordering;
use std::time::Duration;

use async_trait::async_trait;
use rusqlite::{OptionalExtension as _, Result, Row as Found, Rows};

use super::SqliteLedger;
use super::rows::{key, ms, number, row_id};
use super::session::{Session, id};
use super::walk::{Direction, END, START, Walk};
use crate::ledger::{
    DuePage, DuePlace, DueScan, FoundLease, Known, LeasePage, LedgerError, MethodPages, MethodScan,
    MethodTag, NearScan, Owner, Scans, Upcoming, Window,
};
use crate::task::{Arming, KeyBucket, KeyBuckets, Paused, TaskKey, UnixMs};

/// Maximum number of rows that one page of [`scan_unpaused`](Scans::scan_unpaused) or
/// [`scan_leases`](Scans::scan_leases) covers.
const PAGE_ROWS: usize = 10_000;

#[async_trait]
impl Scans for SqliteLedger {
    async fn scan(&self, scan: DueScan) -> Result<DuePage, LedgerError> {
        self.read(move |session| page(session, scan, usize::MAX, |_| true))
            .await
    }

    async fn scan_new(
        &self,
        scan: DueScan,
        among: &KeyBuckets,
        known: Known<'_>,
    ) -> Result<DuePage, LedgerError> {
        let wanted = among.clone();
        let places = self
            .read(move |session| {
                let walk = walk_of(scan, session.now);
                places(session, walk, scan.limit, &wanted)
            })
            .await?;
        let next = places.last().copied();
        let next = next.filter(|_| places.len() >= scan.limit as usize);
        let is_overdue = matches!(
            scan.window,
            Window::OverdueOldest(_) | Window::OverdueNewest(_)
        );
        let condition = match scan.window {
            Window::Deleted { .. } => Condition::Deleted,
            _ if is_overdue => Condition::Claimable,
            _ => Condition::Live,
        };
        let mut page = self.rows_of(news(places, known), condition).await?;
        page.next = next;
        Ok(page)
    }

    async fn scan_near(
        &self,
        scan: NearScan,
        among: &KeyBuckets,
        known: Known<'_>,
    ) -> Result<Vec<Upcoming>, LedgerError> {
        let NearScan { back, ahead, limit } = scan;
        let wanted = among.clone();
        let places = self
            .read(move |session| {
                let walk = Walk {
                    status: 0,
                    deleted: false,
                    direction: Direction::Down,
                    from: (session.now.plus(ahead), u64::MAX),
                    to: UnixMs(session.now.0.saturating_sub(millis(back))),
                };
                places(session, walk, limit, &wanted)
            })
            .await?;
        Ok(self
            .rows_of(news(places, known), Condition::Free)
            .await?
            .rows)
    }

    async fn outside_changes(&self) -> Result<Option<u64>, LedgerError> {
        let commits = self.writer.outside_commits().await?;
        Ok(Some(commits + self.untold.load(Ordering::Relaxed)))
    }

    async fn scan_unpaused(&self, scan: DueScan, paused: &Paused) -> Result<DuePage, LedgerError> {
        if paused.is_everything() {
            return Ok(DuePage::default());
        }
        let paused = paused.clone();
        self.read(move |session| {
            page(session, scan, PAGE_ROWS, |row| {
                paused.hinders(&row.key, row.arming.due).is_none()
            })
        })
        .await
    }

    async fn scan_methods(&self, scan: MethodScan) -> Result<Option<MethodPages>, LedgerError> {
        self.read(move |session| method_pages(session, &scan)).await
    }

    async fn scan_method(&self, method: &MethodTag, scan: DueScan) -> Result<DuePage, LedgerError> {
        let method = method.clone();
        self.read(move |session| method_page(session, &method, scan))
            .await
    }

    async fn scan_leases(
        &self,
        after: Option<DuePlace>,
        ahead: Duration,
    ) -> Result<LeasePage, LedgerError> {
        self.read(move |session| leases(session, after, ahead))
            .await
    }

    async fn claimable(&self, rows: &[u64]) -> Result<Vec<Upcoming>, LedgerError> {
        let page = self.rows_of(rows.to_vec(), Condition::Claimable).await?;
        Ok(page.rows)
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

impl SqliteLedger {
    /// Reads those of these rows that fit, in this order.
    async fn rows_of(&self, rows: Vec<u64>, condition: Condition) -> Result<DuePage, LedgerError> {
        if rows.is_empty() {
            return Ok(DuePage::default());
        }
        self.read(move |session| {
            let mut find = session.prepare(&session.queries.scan_row)?;
            let mut page = DuePage::default();
            for row in rows {
                let mut found = find.query([id(row)])?;
                let Some(found) = found.next()? else {
                    continue;
                };
                if fits(found, condition, session.now)? {
                    match upcoming(found)? {
                        Some(row) => page.rows.push(row),
                        None => page.foreign += 1,
                    }
                }
            }
            Ok(page)
        })
        .await
    }
}

fn fits(found: &Found<'_>, condition: Condition, now: UnixMs) -> Result<bool> {
    let (due_at, lease_until) = (ms(found, 1)?, ms(found, 4)?);
    let (status, deleted) = (number(found, 7)?, number(found, 8)? != 0);
    let free = lease_until < now;
    Ok(status == 0
        && match condition {
            Condition::Live => !deleted,
            Condition::Free => !deleted && free,
            Condition::Claimable => !deleted && free && due_at <= now,
            Condition::Deleted => deleted,
        })
}

fn upcoming(found: &Found<'_>) -> Result<Option<Upcoming>> {
    let arming = Arming {
        row: row_id(found, 0)?,
        due: ms(found, 3)?,
    };
    let due_at = ms(found, 1)?;
    Ok(key(found, 2)?.map(|key| Upcoming {
        key,
        arming,
        due_at,
    }))
}

fn news(places: Vec<DuePlace>, known: Known<'_>) -> Vec<u64> {
    let news = places.into_iter().filter(|(due, row)| !known(*row, *due));
    news.map(|(_, row)| row).collect()
}

/// Returns the range of a scan.
fn walk_of(scan: DueScan, now: UnixMs) -> Walk {
    let ago = |span: Duration| UnixMs(now.0.saturating_sub(millis(span)));
    let up = |from: DuePlace, to: UnixMs, deleted| Walk {
        status: 0,
        deleted,
        direction: Direction::Up,
        from: scan.after.unwrap_or(START).max(from),
        to,
    };
    match scan.window {
        Window::OverdueOldest(by) => up(START, ago(by), false),
        Window::OverdueNewest(by) => Walk {
            status: 0,
            deleted: false,
            direction: Direction::Down,
            from: scan.after.unwrap_or(END).min((ago(by), u64::MAX)),
            to: START.0,
        },
        Window::Ahead(span) => up((now, u64::MAX), now.plus(span), false),
        Window::Deleted { back, ahead } => up((ago(back), u64::MAX), now.plus(ahead), true),
    }
}

/// Reads a page of rows, of which it covers at most `most`. Overdue rows that are leased are left out.
fn page(
    session: &Session<'_>,
    scan: DueScan,
    most: usize,
    wanted: impl Fn(&Upcoming) -> bool,
) -> Result<DuePage> {
    let walk = walk_of(scan, session.now);
    let mut statement = session.prepare(walk.scan(session.queries))?;
    let found = statement.query(walk.values())?;
    page_of(session, scan, found, most, wanted)
}

/// Reads a page of what a statement finds, as [`page`] does.
fn page_of(
    session: &Session<'_>,
    scan: DueScan,
    mut found: Rows<'_>,
    most: usize,
    wanted: impl Fn(&Upcoming) -> bool,
) -> Result<DuePage> {
    let overdue = matches!(
        scan.window,
        Window::OverdueOldest(_) | Window::OverdueNewest(_)
    );
    let (mut page, mut covered) = (DuePage::default(), 0);
    let limit = scan.limit as usize;
    while page.rows.len() + page.foreign < limit {
        let Some(row) = found.next()? else {
            page.next = None;
            return Ok(page);
        };
        covered += 1;
        let place = (ms(row, 1)?, row_id(row, 0)?);
        page.next = Some(place);
        let leased = ms(row, 4)? >= session.now;
        if !(overdue && leased) {
            match upcoming(row)? {
                Some(row) if wanted(&row) => page.rows.push(row),
                Some(_) => {}
                None => page.foreign += 1,
            }
        }
        if covered >= most {
            return Ok(page);
        }
    }
    Ok(page)
}

/// Reads the first page of each class and method. `None` without the index, until `lapsed migrate` has added it.
fn method_pages(session: &Session<'_>, scan: &MethodScan) -> Result<Option<MethodPages>> {
    let Ok(mut next) = session.prepare(&session.queries.next_method) else {
        return Ok(None);
    };
    let mut found = MethodPages::default();
    let mut at = scan.after.clone();
    for _ in 0..scan.methods {
        let after = at.as_ref().map_or("", |MethodTag(name)| name);
        let method = next.query_row([after], |row| row.get(0)).optional()?;
        let Some(method) = method.map(MethodTag) else {
            return Ok(Some(found));
        };
        let first = DueScan {
            window: Window::OverdueOldest(scan.by),
            after: None,
            limit: scan.limit,
        };
        let page = method_page(session, &method, first)?;
        if page != DuePage::default() {
            found.pages.push((method.clone(), page));
        }
        at = Some(method);
    }
    found.next = at;
    Ok(Some(found))
}

fn method_page(session: &Session<'_>, method: &MethodTag, scan: DueScan) -> Result<DuePage> {
    let Walk { from, to, .. } = walk_of(scan, session.now);
    let (due, row) = from;
    let mut statement = session.prepare(&session.queries.scan_method)?;
    let found = statement.query((&method.0, due.0, id(row), to.0))?;
    page_of(session, scan, found, usize::MAX, |_| true)
}

/// Reads the places of rows whose keys are in these buckets, from the index alone if that is all of them.
fn places(
    session: &Session<'_>,
    walk: Walk,
    limit: u32,
    among: &KeyBuckets,
) -> Result<Vec<DuePlace>> {
    let all = among.is_all();
    let text = match all {
        true => walk.places(session.queries),
        false => walk.scan(session.queries),
    };
    let mut statement = session.prepare(text)?;
    let mut found = statement.query(walk.values())?;
    let mut places = Vec::new();
    let is_wanted =
        |key: Option<TaskKey>| key.is_none_or(|key| among.contains(KeyBucket::of(&key)));
    while places.len() < limit as usize {
        let Some(row) = found.next()? else {
            break;
        };
        if all || is_wanted(key(row, 2)?) {
            places.push((ms(row, 1)?, row_id(row, 0)?));
        }
    }
    Ok(places)
}

fn leases(session: &Session<'_>, after: Option<DuePlace>, ahead: Duration) -> Result<LeasePage> {
    let walk = Walk {
        status: 0,
        deleted: false,
        direction: Direction::Up,
        from: after.unwrap_or(START),
        to: session.now.plus(ahead),
    };
    let mut statement = session.prepare(walk.scan(session.queries))?;
    let mut found = statement.query(walk.values())?;
    let mut page = LeasePage::default();
    for _ in 0..PAGE_ROWS {
        let Some(row) = found.next()? else {
            page.next = None;
            return Ok(page);
        };
        page.next = Some((ms(row, 1)?, row_id(row, 0)?));
        let until = ms(row, 4)?;
        let owner: Option<Vec<u8>> = row.get(5)?;
        let owner = owner.and_then(|bytes| bytes.try_into().ok());
        if let Some(owner) = owner.filter(|_| until > START.0) {
            page.leases.push(FoundLease {
                row: row_id(row, 0)?,
                owner: Owner(owner),
                daemon: row.get(6)?,
                until,
            });
        }
    }
    Ok(page)
}

fn millis(span: Duration) -> i64 {
    i64::try_from(span.as_millis()).unwrap_or(i64::MAX)
}

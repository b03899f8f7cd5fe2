//! Scans of rows by due time, in pages.

use std::collections::HashMap;
use std::time::Duration;

use async_trait::async_trait;

use super::connection::{Conn, about_rows, covered, statement};
use super::error::error;
use super::error_numbers::is_missing_index;
use super::queries;
use super::{BATCH_MAX, MysqlLedger, decode};
use lapsed_core::ledger::{
    DuePage, DuePlace, DueScan, Known, LeasePage, LedgerError, MethodPages, MethodScan, MethodTag,
    NearScan, Scans, Upcoming, Window,
};
use lapsed_core::task::{KeyBucket, KeyBuckets, Paused, UnixMs};

/// How long ago tasks fell due at most: before any clock.
const LONG_AGO: Duration = Duration::from_secs(u32::MAX as u64);

/// After every row.
pub(super) const END: (UnixMs, u64) = (UnixMs(9_999_999_999_999), u64::MAX);

/// Maximum number of rows that one page of [`scan_unpaused`](Scans::scan_unpaused) or
/// [`scan_leases`](Scans::scan_leases) covers.
pub(super) const PAGE_ROWS: u32 = 10_000;

#[async_trait]
impl Scans for MysqlLedger {
    async fn scan(&self, scan: DueScan) -> Result<DuePage, LedgerError> {
        self.scan_page(scan).await
    }

    async fn scan_new(
        &self,
        scan: DueScan,
        among: &KeyBuckets,
        known: Known<'_>,
    ) -> Result<DuePage, LedgerError> {
        self.new_page(scan, among, known).await
    }

    async fn scan_near(
        &self,
        scan: NearScan,
        among: &KeyBuckets,
        known: Known<'_>,
    ) -> Result<Vec<Upcoming>, LedgerError> {
        let NearScan { back, ahead, limit } = scan;
        let mut conn = self.pools.acquire().await?;
        let question = covered(self.queries.plain(queries::ENTRIES_NEAR));
        let question = question.bind(among.as_bytes().to_vec());
        let question = question.bind(ms(back)).bind(ms(ahead)).bind(limit);
        let entries = conn.fetch(question).await.map_err(error)?;
        let entries = decode::places(&entries).map_err(error)?;
        let news = entries.iter().filter(|(due, row)| !known(*row, *due));
        let news: Vec<u64> = news.map(|(_, row)| *row).collect();
        let mut page = DuePage::default();
        for batch in news.chunks(BATCH_MAX) {
            self.read_upcoming(&mut conn, queries::UPCOMING_FREE, batch, &mut page)
                .await
                .map_err(error)?;
        }
        Ok(page.rows)
    }

    async fn scan_unpaused(&self, scan: DueScan, paused: &Paused) -> Result<DuePage, LedgerError> {
        self.unpaused_page(scan, paused).await
    }

    async fn scan_methods(&self, scan: MethodScan) -> Result<Option<MethodPages>, LedgerError> {
        let mut conn = self.pools.acquire().await?;
        match self.method_pages(&mut conn, &scan).await {
            Ok(found) => Ok(Some(found)),
            Err(refused) if is_missing_index(&refused) => Ok(None),
            Err(failed) => Err(error(failed)),
        }
    }

    async fn scan_method(&self, method: &MethodTag, scan: DueScan) -> Result<DuePage, LedgerError> {
        let mut conn = self.pools.acquire().await?;
        self.method_page(&mut conn, crc_of(method), scan)
            .await
            .map_err(error)
    }

    async fn scan_leases(
        &self,
        after: Option<DuePlace>,
        ahead: Duration,
    ) -> Result<LeasePage, LedgerError> {
        self.lease_page(after, ahead).await
    }

    async fn claimable(&self, rows: &[u64]) -> Result<Vec<Upcoming>, LedgerError> {
        self.claimable_rows(rows).await
    }
}

/// Returns the checksum that a tag stands for.
fn crc_of(MethodTag(tag): &MethodTag) -> i64 {
    tag.parse().unwrap_or_default()
}

impl MysqlLedger {
    /// Finds each next class and method in the index alone, then reads its first page.
    async fn method_pages(&self, conn: &mut Conn, scan: &MethodScan) -> sqlx::Result<MethodPages> {
        let mut found = MethodPages::default();
        let mut from = scan.after.as_ref().map_or(0, |after| crc_of(after) + 1);
        for _ in 0..scan.methods {
            let question = statement(self.queries.plain(queries::NEXT_METHOD));
            let next = conn.fetch(question.bind(from)).await?;
            if next.is_empty() {
                return Ok(found);
            }
            let crc = decode::first_i64(&next)?;
            let first = DueScan {
                window: Window::OverdueOldest(scan.by),
                after: None,
                limit: scan.limit,
            };
            let page = self.method_page(conn, crc, first).await?;
            if page != DuePage::default() {
                found.pages.push((MethodTag(crc.to_string()), page));
            }
            from = crc + 1;
        }
        found.next = Some(MethodTag((from - 1).to_string()));
        Ok(found)
    }

    async fn method_page(&self, conn: &mut Conn, crc: i64, scan: DueScan) -> sqlx::Result<DuePage> {
        let by = match scan.window {
            Window::OverdueOldest(by) | Window::OverdueNewest(by) => by,
            Window::Due | Window::Ahead(_) | Window::Deleted { .. } => Duration::ZERO,
        };
        let (due, row) = scan.after.unwrap_or_default();
        let question = statement(self.queries.plain(queries::SCAN_METHOD)).bind(crc);
        let question = question.bind(ms(by)).bind(due.0).bind(row).bind(due.0);
        let rows = conn.fetch(question.bind(scan.limit)).await?;
        decode::due_page(&rows, scan.limit)
    }

    pub(super) async fn scan_page(&self, scan: DueScan) -> Result<DuePage, LedgerError> {
        let mut conn = self.pools.acquire().await?;
        let ahead = |sts: i64, back: Duration, span: Duration| {
            let question = statement(self.queries.plain(queries::SCAN_AHEAD));
            question.bind(sts).bind(ms(back)).bind(ms(span))
        };
        let (question, from) = match scan.window {
            Window::OverdueOldest(by) => {
                let oldest = statement(self.queries.plain(queries::SCAN_OVERDUE_OLDEST));
                (oldest.bind(ms(by)), Default::default())
            }
            Window::OverdueNewest(by) => {
                let newest = statement(self.queries.plain(queries::SCAN_OVERDUE_NEWEST));
                (newest.bind(ms(by)), END)
            }
            Window::Due => (ahead(0, LONG_AGO, Duration::ZERO), Default::default()),
            Window::Ahead(span) => (ahead(0, Duration::ZERO, span), Default::default()),
            Window::Deleted { back, ahead: span } => (ahead(1, back, span), Default::default()),
        };
        let (due, row) = scan.after.unwrap_or(from);
        let question = question.bind(due.0).bind(row).bind(due.0).bind(scan.limit);
        let rows = conn.fetch(question).await.map_err(error)?;
        decode::due_page(&rows, scan.limit).map_err(error)
    }

    /// Reads the index, then those of its rows that are not known.
    pub(super) async fn new_page(
        &self,
        scan: DueScan,
        among: &KeyBuckets,
        known: Known<'_>,
    ) -> Result<DuePage, LedgerError> {
        let (entries_query, span, rows, from) = match scan.window {
            Window::Ahead(span) => (
                queries::ENTRIES_AHEAD,
                span,
                queries::UPCOMING,
                Default::default(),
            ),
            Window::OverdueOldest(by) => (
                queries::ENTRIES_OVERDUE_OLDEST,
                by,
                queries::CLAIMABLE,
                Default::default(),
            ),
            Window::OverdueNewest(by) => {
                (queries::ENTRIES_OVERDUE_NEWEST, by, queries::CLAIMABLE, END)
            }
            Window::Due | Window::Deleted { .. } => {
                let mut page = self.scan_page(scan).await?;
                page.rows.retain(|row| {
                    among.contains(KeyBucket::of(&row.key)) && !known(row.arming.row, row.due_at)
                });
                return Ok(page);
            }
        };
        let mut conn = self.pools.acquire().await?;
        let (due, row) = scan.after.unwrap_or(from);
        let question = covered(self.queries.plain(entries_query));
        let question = question.bind(among.as_bytes().to_vec()).bind(ms(span));
        let question = question.bind(due.0).bind(row).bind(due.0).bind(scan.limit);
        let entries = conn.fetch(question).await.map_err(error)?;
        let entries = decode::places(&entries).map_err(error)?;
        let news = entries.iter().filter(|(due, row)| !known(*row, *due));
        let news: Vec<u64> = news.map(|(_, row)| *row).collect();
        let mut page = DuePage {
            next: entries
                .last()
                .copied()
                .filter(|_| entries.len() >= scan.limit as usize),
            ..DuePage::default()
        };
        for batch in news.chunks(BATCH_MAX) {
            self.read_upcoming(&mut conn, rows, batch, &mut page)
                .await
                .map_err(error)?;
        }
        Ok(page)
    }

    async fn read_upcoming(
        &self,
        conn: &mut Conn,
        template: &str,
        ids: &[u64],
        page: &mut DuePage,
    ) -> sqlx::Result<()> {
        let question = about_rows(&self.queries, template, ids);
        let found = conn.fetch(question).await?;
        let DuePage { rows, foreign, .. } = decode::due_page(&found, u32::MAX)?;
        let mut rows: HashMap<u64, Upcoming> =
            rows.into_iter().map(|row| (row.arming.row, row)).collect();
        page.rows
            .extend(ids.iter().filter_map(|id| rows.remove(id)));
        page.foreign += foreign;
        Ok(())
    }
}

pub(super) fn ms(span: Duration) -> i64 {
    i64::try_from(span.as_millis()).unwrap_or(i64::MAX / 2)
}

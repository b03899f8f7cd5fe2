//! Scans of rows by due time, in pages.

use std::collections::HashMap;
use std::time::Duration;

use async_trait::async_trait;

use super::connection::{Conn, about_rows, statement};
use super::error::error;
use super::queries;
use super::{BATCH_MAX, MysqlLedger, decode};
use crate::ledger::{
    DuePage, DuePlace, DueScan, Known, LeasePage, LedgerError, NearScan, Scans, Upcoming, Window,
};
use crate::task::{KeyBucket, KeyBuckets, Paused, UnixMs};

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
        let question = statement(self.queries.plain(queries::ENTRIES_NEAR));
        let question = question.bind(among.as_bytes().to_vec());
        let question = question.bind(ms(back)).bind(ms(ahead)).bind(limit);
        let entries = conn.fetch(question).await.map_err(error)?;
        let entries = decode::places(&entries).map_err(error)?;
        let news = entries.iter().filter(|(due, row)| !known(*row, *due));
        let news: Vec<u64> = news.map(|(_, row)| *row).collect();
        let mut page = DuePage::default();
        for batch in news.chunks(BATCH_MAX) {
            self.read_rows(&mut conn, queries::UPCOMING_FREE, batch, &mut page)
                .await
                .map_err(error)?;
        }
        Ok(page.rows)
    }

    async fn scan_unpaused(&self, scan: DueScan, paused: &Paused) -> Result<DuePage, LedgerError> {
        self.unpaused_page(scan, paused).await
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

impl MysqlLedger {
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
            Window::Deleted { .. } => {
                let mut page = self.scan_page(scan).await?;
                page.rows.retain(|row| {
                    among.contains(KeyBucket::of(&row.key)) && !known(row.arming.row, row.due_at)
                });
                return Ok(page);
            }
        };
        let mut conn = self.pools.acquire().await?;
        let (due, row) = scan.after.unwrap_or(from);
        let question = statement(self.queries.plain(entries_query));
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
            self.read_rows(&mut conn, rows, batch, &mut page)
                .await
                .map_err(error)?;
        }
        Ok(page)
    }

    async fn read_rows(
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

//! Detailed statistics from a bounded number of rows and index entries.

use sqlx::Row as _;
use sqlx::mysql::MySqlRow;

use super::connection::{Conn, covered, statement};
use super::error::error;
use super::{MysqlLedger, decode, queries};
use lapsed_core::ledger::stats::MethodCollector;
use lapsed_core::ledger::{DetailedStats, DetailedStatsLimits, LedgerError, RECENT, Stats};
use lapsed_core::task::UnixMs;

/// Counts of unfinished rows with one value of `sts`, over all methods.
#[derive(Default)]
struct Unfinished {
    looked_at: u64,
    pending: u64,
    waiting: u64,
    running: u64,
    overdue: u64,
    overdue_ms_max: u64,
}

/// Maximum number of pages of overdue rows to read until one can run.
const OLDEST_PAGES_MAX: u32 = 10;
const OLDEST_PAGE: u32 = 1_000;

/// The oldest overdue rows.
#[derive(Default)]
pub(super) struct Oldest {
    /// How long the first row with a task key has been overdue, in milliseconds.
    pub overdue_ms_max: u64,
    /// Number of rows without a task key that were read up to there.
    malformed: u64,
    /// True if there may be more of them.
    is_part: bool,
}

impl MysqlLedger {
    pub(super) async fn detailed_stats_of(
        &self,
        limits: DetailedStatsLimits,
    ) -> Result<DetailedStats, LedgerError> {
        let mut conn = self.pools.acquire().await?;
        let stats = self.detailed_stats_on(&mut conn, limits).await;
        stats.map_err(error)
    }

    async fn detailed_stats_on(
        &self,
        conn: &mut Conn,
        limits: DetailedStatsLimits,
    ) -> sqlx::Result<DetailedStats> {
        let DetailedStatsLimits {
            rows,
            entries,
            dead,
            done,
        } = limits;
        let mut methods = MethodCollector::default();
        let oldest = self.oldest_overdue(conn).await?;
        let live = self.unfinished(conn, 0, rows, &mut methods).await?;
        // Cancelled during the run, or by a program that knows only the first six columns.
        let deleted = self.unfinished(conn, 1, rows, &mut methods).await?;
        let dead_looked_at = self.dead(conn, dead, &mut methods).await?;
        self.done_lately(conn, done, &mut methods).await?;

        let mut finished = [0; 3];
        for (count, status) in finished.iter_mut().zip([1i64, 2, 3]) {
            let question = covered(self.queries.plain(queries::COUNT_STATUS));
            *count = self
                .counted(conn, question.bind(status).bind(entries))
                .await?;
        }
        let mut counts = Stats {
            pending: live.pending,
            waiting: live.waiting,
            running: live.running + deleted.running,
            done: finished[0],
            dead: finished[1],
            cancelled: finished[2] + deleted.pending + deleted.waiting,
            overdue: live.overdue,
            overdue_ms_max: oldest.overdue_ms_max,
            malformed: oldest.malformed,
        };
        let (most, is_part) = (u64::from(entries), live.looked_at >= u64::from(rows));
        if is_part {
            let all = covered(self.queries.plain(queries::COUNT_PENDING)).bind(entries);
            let all = self.counted(conn, all).await?;
            let due = covered(self.queries.plain(queries::COUNT_DUE)).bind(entries);
            let due = self.counted(conn, due).await?;
            counts.pending = all.saturating_sub(live.waiting + live.running);
            counts.overdue = due.saturating_sub(live.running);
        }
        counts.pending = counts.pending.saturating_sub(oldest.malformed);
        counts.overdue = counts.overdue.saturating_sub(oldest.malformed);
        let at_least = [
            ("malformed", oldest.is_part),
            (
                "pending",
                is_part
                    && counts.pending + counts.waiting + live.running + oldest.malformed >= most,
            ),
            ("waiting", is_part && live.waiting + live.pending > 0),
            ("running", is_part || deleted.looked_at >= u64::from(rows)),
            ("done", counts.done >= most),
            ("dead", counts.dead >= most),
            (
                "cancelled",
                finished[2] >= most || deleted.looked_at >= u64::from(rows),
            ),
            (
                "overdue",
                is_part && counts.overdue + live.running + oldest.malformed >= most,
            ),
        ];
        let at_least = at_least.into_iter().filter(|(_, is_part)| *is_part);
        Ok(DetailedStats {
            counts,
            at_least: at_least.map(|(state, _)| state).collect(),
            methods: methods.into_stats(),
            methods_of: is_part.then_some(rows),
            methods_of_dead: (dead > 0 && dead_looked_at >= u64::from(dead)).then_some(dead),
        })
    }

    async fn unfinished(
        &self,
        conn: &mut Conn,
        sts: i64,
        limit: u32,
        methods: &mut MethodCollector,
    ) -> sqlx::Result<Unfinished> {
        let question = statement(self.queries.plain(queries::STATS_UNFINISHED));
        let mut all = Unfinished::default();
        for row in conn.fetch(question.bind(sts).bind(limit)).await? {
            let of_name = Unfinished {
                looked_at: count(&row, "looked_at")?,
                pending: count(&row, "pending")?,
                waiting: count(&row, "waiting")?,
                running: count(&row, "running")?,
                overdue: count(&row, "overdue")?,
                overdue_ms_max: count(&row, "overdue_ms")?,
            };
            all.looked_at += of_name.looked_at;
            all.pending += of_name.pending;
            all.waiting += of_name.waiting;
            all.running += of_name.running;
            all.overdue += of_name.overdue;
            all.overdue_ms_max = all.overdue_ms_max.max(of_name.overdue_ms_max);
            let is_live = sts == 0;
            if !is_live && of_name.running == 0 {
                continue;
            }
            let of_method = methods.of(&name(&row)?);
            of_method.running += of_name.running;
            if is_live {
                of_method.pending = of_name.pending;
                of_method.waiting = of_name.waiting;
                of_method.overdue = of_name.overdue;
                of_method.overdue_ms_max = of_name.overdue_ms_max;
            }
        }
        Ok(all)
    }

    /// Reads overdue rows, oldest first, until one has a task key. Leased rows are among them, but never more than there are
    /// slots.
    pub(super) async fn oldest_overdue(&self, conn: &mut Conn) -> sqlx::Result<Oldest> {
        let mut oldest = Oldest::default();
        let (mut due, mut row) = (UnixMs(0), 0);
        for _ in 0..OLDEST_PAGES_MAX {
            let question = statement(self.queries.plain(queries::OLDEST_OVERDUE));
            let question = question.bind(due.0).bind(row).bind(due.0);
            let found = conn.fetch(question.bind(OLDEST_PAGE)).await?;
            let mut has_task = false;
            for found in &found {
                match decode::key(found)? {
                    None => oldest.malformed += 1,
                    Some(_) if has_task => {}
                    Some(_) => {
                        has_task = true;
                        oldest.overdue_ms_max = count(found, "overdue_ms")?;
                    }
                }
            }
            oldest.is_part = found.len() >= OLDEST_PAGE as usize;
            match found.last() {
                Some(last) if oldest.is_part && !has_task => (due, row) = decode::place(last)?,
                _ => break,
            }
        }
        oldest.is_part &= oldest.malformed > 0;
        Ok(oldest)
    }

    /// Counts dead rows by method. Returns the number of rows read.
    async fn dead(
        &self,
        conn: &mut Conn,
        limit: u32,
        methods: &mut MethodCollector,
    ) -> sqlx::Result<u64> {
        let question = statement(self.queries.plain(queries::STATS_DEAD));
        let mut looked_at = 0;
        if limit == 0 {
            return Ok(0);
        }
        for row in conn.fetch(question.bind(limit)).await? {
            let dead = count(&row, "dead")?;
            looked_at += dead;
            methods.of(&name(&row)?).dead = dead;
        }
        Ok(looked_at)
    }

    async fn done_lately(
        &self,
        conn: &mut Conn,
        limit: u32,
        methods: &mut MethodCollector,
    ) -> sqlx::Result<()> {
        if limit == 0 {
            return Ok(());
        }
        let question = statement(self.queries.plain(queries::STATS_DONE));
        let question = question.bind(limit).bind(RECENT.as_secs());
        for row in conn.fetch(question).await? {
            methods.took(&name(&row)?, count(&row, "took_ms")?);
        }
        Ok(())
    }

    async fn counted(
        &self,
        conn: &mut Conn,
        question: super::connection::Statement<'_>,
    ) -> sqlx::Result<u64> {
        let found = conn.fetch(question).await?;
        Ok(u64::try_from(decode::first_i64(&found)?).unwrap_or(0))
    }
}

/// Reads a name whatever the character set of the column: a program's own table may have any.
fn name(row: &MySqlRow) -> sqlx::Result<String> {
    row.try_get_unchecked("name")
}

fn count(row: &MySqlRow, column: &str) -> sqlx::Result<u64> {
    let count: i64 = row.try_get(column)?;
    Ok(u64::try_from(count).unwrap_or(0))
}

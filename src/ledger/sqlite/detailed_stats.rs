//! Detailed statistics from a bounded number of rows and index entries.

use std::time::Duration;

use rusqlite::Result;

use super::rows::{self, key, ms, number, optional, text};
use super::session::Session;
use super::walk::{Direction, END, START, Walk};
use crate::ledger::row::Status;
use crate::ledger::stats::MethodCollector;
use crate::ledger::{DetailedStats, DetailedStatsLimits, RECENT, Stats};
use crate::task::UnixMs;

/// Maximum number of overdue rows to read until one can run.
const OLDEST_MAX: usize = 10_000;

/// Counts of unfinished rows with one value of `sts`, over all methods.
#[derive(Default)]
struct Unfinished {
    looked_at: u64,
    pending: u64,
    waiting: u64,
    running: u64,
    overdue: u64,
}

/// The oldest overdue rows.
#[derive(Default)]
struct Oldest {
    /// How long the first row with a task key has been overdue.
    overdue: Duration,
    /// Number of rows without a task key that were read up to there.
    malformed: u64,
    /// True if there may be more of them.
    is_part: bool,
}

/// As [`Admin::overdue_for`](crate::ledger::Admin::overdue_for).
pub(super) fn overdue_for(session: &Session<'_>) -> Result<Duration> {
    Ok(oldest_overdue(session)?.overdue)
}

/// As [`Admin::detailed_stats`](crate::ledger::Admin::detailed_stats).
pub(super) fn of(session: &Session<'_>, limits: DetailedStatsLimits) -> Result<DetailedStats> {
    let DetailedStatsLimits {
        rows,
        entries,
        dead,
        done,
    } = limits;
    let mut methods = MethodCollector::default();
    let oldest = oldest_overdue(session)?;
    let live = unfinished(session, false, rows, &mut methods)?;
    // Cancelled during the run, or by a program that knows only the first columns.
    let deleted = unfinished(session, true, rows, &mut methods)?;
    let dead_looked_at = dead_by_method(session, dead, &mut methods)?;
    done_lately(session, done, &mut methods)?;
    let count = |status: Status| {
        let mut count = session.prepare(&session.queries.count_status)?;
        let count: i64 = count.query_row((status as u8, entries), |row| row.get(0))?;
        Ok::<_, rusqlite::Error>(u64::try_from(count).unwrap_or_default())
    };
    let cancelled = count(Status::Cancelled)?;
    let mut counts = Stats {
        pending: live.pending,
        waiting: live.waiting,
        running: live.running + deleted.running,
        done: count(Status::Processed)?,
        dead: count(Status::Dead)?,
        cancelled: cancelled + deleted.pending + deleted.waiting,
        overdue: live.overdue,
        overdue_ms_max: u64::try_from(oldest.overdue.as_millis()).unwrap_or(u64::MAX),
        malformed: oldest.malformed,
    };
    let (most, is_part) = (u64::from(entries), live.looked_at >= u64::from(rows));
    if is_part {
        let due_before = |before: i64| {
            let mut count = session.prepare(&session.queries.count_due)?;
            let count: i64 = count.query_row((0, false, before, entries), |row| row.get(0))?;
            Ok::<_, rusqlite::Error>(u64::try_from(count).unwrap_or_default())
        };
        let all = due_before(i64::MAX)?;
        let due = due_before(session.now.0 + 1)?;
        counts.pending = all.saturating_sub(live.waiting + live.running);
        counts.overdue = due.saturating_sub(live.running);
    }
    counts.pending = counts.pending.saturating_sub(oldest.malformed);
    counts.overdue = counts.overdue.saturating_sub(oldest.malformed);
    let pending = counts.pending + counts.waiting + live.running + oldest.malformed;
    let overdue = counts.overdue + live.running + oldest.malformed;
    let deleted_is_part = deleted.looked_at >= u64::from(rows);
    let at_least = [
        ("malformed", oldest.is_part),
        ("pending", is_part && pending >= most),
        ("waiting", is_part && live.waiting + live.pending > 0),
        ("running", is_part || deleted_is_part),
        ("done", counts.done >= most),
        ("dead", counts.dead >= most),
        ("cancelled", cancelled >= most || deleted_is_part),
        ("overdue", is_part && overdue >= most),
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

/// Counts unfinished rows, earliest due time first.
fn unfinished(
    session: &Session<'_>,
    deleted: bool,
    limit: u32,
    methods: &mut MethodCollector,
) -> Result<Unfinished> {
    let walk = walk(0, deleted, END.0);
    let mut statement = session.prepare(&session.queries.list_by_due)?;
    let mut found = statement.query(walk.values())?;
    let (mut all, now) = (Unfinished::default(), session.now);
    while all.looked_at < u64::from(limit) {
        let Some(found) = found.next()? else {
            break;
        };
        let stored = rows::read(found)?;
        let row = stored.row;
        all.looked_at += 1;
        let name = match &stored.malformed {
            Some(key) => class_method(key),
            None => row.key.class_method(),
        };
        // A deleted row is of no method, unless it is running.
        let mut of_name = (!deleted || row.leased(now)).then(|| methods.of(name));
        let (count, count_of_name) = match row.leased(now) {
            true => (&mut all.running, of_name.as_mut().map(|it| &mut it.running)),
            false if row.has_run() && row.retry_at > now => {
                (&mut all.waiting, of_name.as_mut().map(|it| &mut it.waiting))
            }
            false => (&mut all.pending, of_name.as_mut().map(|it| &mut it.pending)),
        };
        *count += 1;
        if let Some(count) = count_of_name {
            *count += 1;
        }
        if row.free_and_due(now) {
            all.overdue += 1;
            if let Some(figures) = of_name {
                let overdue_ms = now.since(row.due_at()).as_millis();
                let overdue_ms = u64::try_from(overdue_ms).unwrap_or(u64::MAX);
                figures.overdue += 1;
                figures.overdue_ms_max = figures.overdue_ms_max.max(overdue_ms);
            }
        }
    }
    Ok(all)
}

/// Reads overdue rows, oldest first, until one has a task key. Leased rows are among them, but never more than there are
/// slots.
fn oldest_overdue(session: &Session<'_>) -> Result<Oldest> {
    let walk = walk(0, false, session.now);
    let mut statement = session.prepare(walk.scan(session.queries))?;
    let mut found = statement.query(walk.values())?;
    let (mut oldest, mut looked_at) = (Oldest::default(), 0);
    while let Some(row) = found.next()? {
        looked_at += 1;
        let is_free = ms(row, 4)? < session.now;
        match key(row, 2)? {
            _ if !is_free => {}
            None => oldest.malformed += 1,
            Some(_) => {
                oldest.overdue = session.now.since(ms(row, 1)?);
                break;
            }
        }
        if looked_at >= OLDEST_MAX {
            break;
        }
    }
    oldest.is_part = oldest.malformed > 0 && found.next()?.is_some();
    Ok(oldest)
}

/// Counts dead rows by method. Returns the number of rows read.
fn dead_by_method(session: &Session<'_>, limit: u32, methods: &mut MethodCollector) -> Result<u64> {
    let mut looked_at = 0;
    for deleted in [false, true] {
        let walk = walk(Status::Dead as u8, deleted, END.0);
        let mut statement = session.prepare(walk.scan(session.queries))?;
        let mut found = statement.query(walk.values())?;
        while looked_at < u64::from(limit) {
            let Some(row) = found.next()? else {
                break;
            };
            looked_at += 1;
            let key = text(row, 2)?.unwrap_or_default();
            methods.of(class_method(&key)).dead += 1;
        }
    }
    Ok(looked_at)
}

/// Collects the time from due to done of tasks that succeeded recently and at the first attempt, those due last.
fn done_lately(session: &Session<'_>, limit: u32, methods: &mut MethodCollector) -> Result<()> {
    let mut statement = session.prepare(&session.queries.done_lately)?;
    let mut found = statement.query([limit])?;
    while let Some(row) = found.next()? {
        let ended = optional(row, 2)?.map(UnixMs);
        let recent = ended.filter(|ended| session.now.since(*ended) <= RECENT);
        if let (1, Some(ended)) = (number(row, 1)?, recent) {
            let took = ended.since(ms(row, 3)?).as_millis();
            let key = text(row, 0)?.unwrap_or_default();
            methods.took(class_method(&key), u64::try_from(took).unwrap_or(u64::MAX));
        }
    }
    Ok(())
}

fn walk(status: u8, deleted: bool, to: UnixMs) -> Walk {
    Walk {
        status,
        deleted,
        direction: Direction::Up,
        from: START,
        to,
    }
}

/// Returns the key up to its second `@`.
fn class_method(key: &str) -> &str {
    let mut ends = key.match_indices('@');
    let end = ends.nth(1);
    end.map_or(key, |(end, _)| &key[..end])
}

//! Detailed statistics from a bounded number of rows and index entries.

use std::ops::ControlFlow::{Break, Continue};
use std::time::Duration;

use super::Result;
use super::store::{Count, Direction, DueRange, END, Parts, Range, RowStore, ScanRange};
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
pub fn overdue_for(store: &mut dyn RowStore) -> Result<Duration> {
    Ok(oldest_overdue(store)?.overdue)
}

/// As [`Admin::detailed_stats`](crate::ledger::Admin::detailed_stats).
pub fn of(store: &mut dyn RowStore, limits: DetailedStatsLimits) -> Result<DetailedStats> {
    let DetailedStatsLimits {
        rows,
        entries,
        dead,
        done,
    } = limits;
    let now = store.now();
    let mut methods = MethodCollector::default();
    let oldest = oldest_overdue(store)?;
    let live = unfinished(store, false, rows, &mut methods)?;
    // Cancelled during the run, or by a program that knows only the first columns.
    let deleted = unfinished(store, true, rows, &mut methods)?;
    let dead_looked_at = dead_by_method(store, dead, &mut methods)?;
    done_lately(store, done, &mut methods)?;
    let most = u64::from(entries);
    let mut count = |status: Status, deleted: Option<bool>, before: UnixMs| {
        store.count(Count {
            status: status.number(),
            deleted,
            before,
            limit: most,
        })
    };
    let cancelled = count(Status::Cancelled, None, END.0)?;
    let mut counts = Stats {
        pending: live.pending,
        waiting: live.waiting,
        running: live.running + deleted.running,
        done: count(Status::Processed, None, END.0)?,
        dead: count(Status::Dead, None, END.0)?,
        cancelled: cancelled + deleted.pending + deleted.waiting,
        overdue: live.overdue,
        overdue_ms_max: millis(oldest.overdue),
        malformed: oldest.malformed,
    };
    let is_part = live.looked_at >= u64::from(rows);
    if is_part {
        let all = count(Status::Unprocessed, Some(false), END.0)?;
        let after_now = UnixMs(now.0 + 1);
        let due = count(Status::Unprocessed, Some(false), after_now)?;
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
    store: &mut dyn RowStore,
    deleted: bool,
    limit: u32,
    methods: &mut MethodCollector,
) -> Result<Unfinished> {
    let range = ScanRange::Due(DueRange::all(Status::Unprocessed.number(), deleted));
    let (mut all, now) = (Unfinished::default(), store.now());
    let _ = store.scan(&range, limit as usize, &mut |row| {
        all.looked_at += 1;
        let is_leased = row.is_leased(now);
        // A deleted row is of no method, unless it is running.
        let name = class_method(&row.key);
        let mut of_name = (!deleted || is_leased).then(|| methods.of(name));
        let (count, count_of_name) = match is_leased {
            true => (&mut all.running, of_name.as_mut().map(|it| &mut it.running)),
            false if row.waits_for_retry(now) => {
                (&mut all.waiting, of_name.as_mut().map(|it| &mut it.waiting))
            }
            false => (&mut all.pending, of_name.as_mut().map(|it| &mut it.pending)),
        };
        *count += 1;
        if let Some(count) = count_of_name {
            *count += 1;
        }
        if !deleted && !is_leased && row.due_at <= now {
            all.overdue += 1;
            if let Some(of_name) = of_name {
                let overdue_ms = millis(now.since(row.due_at));
                of_name.overdue += 1;
                of_name.overdue_ms_max = of_name.overdue_ms_max.max(overdue_ms);
            }
        }
        Continue(())
    })?;
    Ok(all)
}

/// Reads overdue rows, oldest first, until one has a task key. Leased rows are among them, but never more than there are
/// slots.
fn oldest_overdue(store: &mut dyn RowStore) -> Result<Oldest> {
    let now = store.now();
    let range = DueRange {
        to: now,
        ..DueRange::all(Status::Unprocessed.number(), false)
    };
    let (mut oldest, mut looked_at, mut is_found) = (Oldest::default(), 0, false);
    // One more, to see whether there is any.
    let ended = store.scan(&ScanRange::Due(range), OLDEST_MAX + 1, &mut |row| {
        looked_at += 1;
        if is_found || looked_at > OLDEST_MAX {
            return Break(());
        }
        if row.is_leased(now) {
            return Continue(());
        }
        match row.task_key() {
            None => oldest.malformed += 1,
            Some(_) => {
                oldest.overdue = now.since(row.due_at);
                is_found = true;
            }
        }
        Continue(())
    })?;
    oldest.is_part = oldest.malformed > 0 && ended.is_break();
    Ok(oldest)
}

/// Counts dead rows by method. Returns the number of rows read.
fn dead_by_method(
    store: &mut dyn RowStore,
    limit: u32,
    methods: &mut MethodCollector,
) -> Result<u64> {
    let mut looked_at = 0;
    for deleted in [false, true] {
        let range = DueRange::all(Status::Dead.number(), deleted);
        let left = limit as usize - looked_at;
        let _ = store.scan(&ScanRange::Due(range), left, &mut |row| {
            looked_at += 1;
            methods.of(class_method(&row.key)).dead += 1;
            Continue(())
        })?;
    }
    Ok(looked_at as u64)
}

/// Collects the time from due to done of tasks that succeeded recently and at the first attempt, those due last.
fn done_lately(store: &mut dyn RowStore, limit: u32, methods: &mut MethodCollector) -> Result<()> {
    let range = Range::Due(DueRange {
        direction: Direction::Down,
        from: END,
        to: UnixMs(i64::MIN),
        ..DueRange::all(Status::Processed.number(), false)
    });
    let now = store.now();
    let _ = store.walk(&range, Parts::Brief, limit as usize, &mut |stored| {
        let row = &stored.row;
        let recent = row.finished_at.filter(|at| now.since(*at) <= RECENT);
        if let (1, Some(ended)) = (row.attempt, recent) {
            let took = ended.since(row.end_time.max(row.start_time));
            methods.took(class_method(stored.key_text()), millis(took));
        }
        Continue(())
    })?;
    Ok(())
}

fn millis(span: Duration) -> u64 {
    u64::try_from(span.as_millis()).unwrap_or(u64::MAX)
}

/// Returns the key up to its second `@`.
fn class_method(key: &str) -> &str {
    let mut ends = key.match_indices('@');
    let end = ends.nth(1);
    end.map_or(key, |(end, _)| &key[..end])
}

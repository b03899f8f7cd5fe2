//! Detailed statistics, counted over all rows.

use super::MemoryLedger;
use crate::ledger::row::Status;
use crate::ledger::stats::MethodCollector;
use crate::ledger::{DetailedStats, RECENT, Stats};
use crate::task::State;

impl MemoryLedger {
    pub(super) fn counts(&self) -> Stats {
        let now = self.clock.now();
        let mut stats = Stats::default();
        for row in self.table().rows.values() {
            let count = match row.state(now) {
                State::Pending => &mut stats.pending,
                State::Waiting => &mut stats.waiting,
                State::Running => &mut stats.running,
                State::Done => &mut stats.done,
                State::Dead => &mut stats.dead,
                State::Cancelled => &mut stats.cancelled,
            };
            *count += 1;
            if row.free_and_due(now) {
                stats.overdue += 1;
                let overdue = now.since(row.due_at()).as_millis();
                stats.overdue_ms_max = stats
                    .overdue_ms_max
                    .max(u64::try_from(overdue).unwrap_or(u64::MAX));
            }
        }
        stats
    }

    pub(super) fn detailed_stats_of(&self, counts: Stats) -> DetailedStats {
        let now = self.clock.now();
        let mut methods = MethodCollector::default();
        for row in self.table().rows.values() {
            let name = row.key.class_method();
            match row.state(now) {
                State::Pending => methods.of(name).pending += 1,
                State::Waiting => methods.of(name).waiting += 1,
                State::Running => methods.of(name).running += 1,
                State::Dead => methods.of(name).dead += 1,
                State::Done | State::Cancelled => {}
            }
            if row.free_and_due(now) {
                let figures = methods.of(name);
                let overdue_ms = now.since(row.due_at()).as_millis();
                let overdue_ms = u64::try_from(overdue_ms).unwrap_or(u64::MAX);
                figures.overdue += 1;
                figures.overdue_ms_max = figures.overdue_ms_max.max(overdue_ms);
            }
            let ended = row.finished_at.filter(|_| row.status == Status::Processed);
            if let Some(ended) = ended
                && now.since(ended) <= RECENT
                && row.attempt == 1
                && !row.deleted
            {
                let took = ended.since(row.end_time.max(row.start_time));
                methods.took(name, u64::try_from(took.as_millis()).unwrap_or(u64::MAX));
            }
        }
        DetailedStats {
            counts,
            methods: methods.into_stats(),
            ..DetailedStats::default()
        }
    }
}

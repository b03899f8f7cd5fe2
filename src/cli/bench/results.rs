//! What is known after a run: when each task started, how often it ran, and what that cost.

use super::measure::Arrivals;
use super::meter::Costs;
use super::recorder::Record;
use super::samples::{Lateness, Samples};

/// The audit of a daemon, in microseconds since 1970.
#[derive(Debug, Clone, Copy)]
pub struct Audit {
    /// When it began.
    pub from_us: u64,
    /// When it ended, if it did.
    pub until_us: Option<u64>,
}

/// What came of a run. Moments are in microseconds since 1970.
pub struct Results {
    /// What people call it.
    pub label: String,
    /// How tasks fell due.
    pub arrivals: Arrivals,
    /// How many were overdue from the start.
    pub backlog: usize,
    /// When the first of the others fell due.
    pub first_due_us: u64,
    /// From when to when is counted.
    pub window_us: (u64, u64),
    /// When watching ended.
    pub watched_until_us: u64,
    /// The first audit, where it was not waited for.
    pub audit: Option<Audit>,
    /// How far the clock of the starts may be off.
    pub clock_error_us: u64,
    /// What the daemons remember.
    pub record: Record,
    /// Rows that are done.
    pub done: u64,
    /// Tasks beside them that are done.
    pub beside_done: u64,
    /// When the last row of the measured ones was settled.
    pub settled_us: u64,
    /// What it cost.
    pub costs: Costs,
    /// Keyspace events that Redis delivered to all daemons, from before the tasks were written to the end.
    pub events: u64,
}

impl Results {
    /// What people call this run of several.
    pub fn name_of(&self, run: u32) -> String {
        format!("{} #{run}", self.label)
    }

    /// Due time of the task at this place among those that are no backlog.
    fn due_us(&self, index: usize) -> u64 {
        self.first_due_us
            + self
                .arrivals
                .offset_ms(u32::try_from(index).unwrap_or(u32::MAX))
                * 1000
    }

    fn starts(&self) -> &[Option<u64>] {
        &self.record.starts_us[self.backlog..]
    }

    /// First starts of the backlog.
    pub fn backlog_starts(&self) -> &[Option<u64>] {
        &self.record.starts_us[..self.backlog]
    }

    /// First starts of all.
    pub fn all_starts(&self) -> impl Iterator<Item = u64> {
        self.record.starts_us.iter().flatten().copied()
    }

    /// Lateness of the tasks that fell due in the window and before `until_us`.
    pub fn lateness(&self, until_us: u64) -> Samples {
        let (from, to) = (self.window_us.0, self.window_us.1.min(until_us));
        let counted = self.starts().iter().enumerate();
        let counted = counted.filter_map(|(index, start)| {
            let due = self.due_us(index);
            let lateness = match start {
                Some(start) => Lateness::Started(start.saturating_sub(due)),
                None => Lateness::MoreThan(self.watched_until_us.saturating_sub(due)),
            };
            (due >= from && due < to).then_some(lateness)
        });
        Samples::new(counted)
    }

    /// Tasks that started before their due millisecond, those that were not to start at all included.
    pub fn early(&self) -> u64 {
        let early = self.starts().iter().enumerate().filter(|(index, start)| {
            start.is_some_and(|start| start + self.clock_error_us < self.due_us(*index))
        });
        early.count() as u64 + self.record.strays
    }

    /// Tasks that fell due, and had not started when watching ended. What falls due beside a backlog counts while
    /// there is one.
    pub fn lost(&self) -> u64 {
        let until = match self.backlog {
            0 => u64::MAX,
            _ => self.costs.span_us.1,
        };
        let runs = self.record.runs.iter().enumerate();
        let lost = runs.filter(|(number, runs)| {
            let index = number.checked_sub(self.backlog);
            **runs == 0 && index.is_none_or(|index| self.due_us(index) < until)
        });
        lost.count() as u64
    }

    /// Runs beyond the first.
    pub fn duplicates(&self) -> u64 {
        let beyond = self.record.runs.iter().map(|runs| runs.saturating_sub(1));
        beyond.map(u64::from).sum()
    }

    /// Starts in the window.
    pub fn started_in_window(&self) -> usize {
        let (from, to) = self.window_us;
        self.all_starts()
            .filter(|start| (from..to).contains(start))
            .count()
    }

    /// Tasks due by the end of the window that had not started then.
    pub fn behind(&self) -> usize {
        let end = self.window_us.1;
        let behind = self.starts().iter().enumerate().filter(|(index, start)| {
            self.due_us(*index) < end && start.is_none_or(|start| start >= end)
        });
        behind.count()
    }

    /// Tasks that started, but are not done.
    pub fn unsettled(&self) -> u64 {
        let started = self.all_starts().count() as u64;
        started.saturating_sub(self.done)
    }

    /// When the last run was settled, in microseconds since 1970; `None` if not everything was.
    pub fn all_settled_us(&self) -> Option<u64> {
        (self.lost() == 0 && self.unsettled() == 0).then_some(self.settled_us)
    }

    /// Starts between two moments.
    pub fn started_between(&self, from_us: u64, to_us: u64) -> usize {
        self.all_starts()
            .filter(|start| (from_us..to_us).contains(start))
            .count()
    }

    /// Memory that the records of these tasks take in each daemon, in bytes.
    pub fn recorder_bytes(&self) -> u64 {
        self.record.runs.len() as u64 * 5
    }
}

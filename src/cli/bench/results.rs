//! Results of a run: start times, number of runs, and costs.

use super::followers::Followed;
use super::meter::Costs;
use super::recorder::Record;
use super::samples::{Lateness, Samples};
use super::tasks::Arrivals;

/// Audit of a daemon, in microseconds since 1970.
#[derive(Debug, Clone, Copy)]
pub struct Audit {
    /// Start.
    pub from_us: u64,
    /// End, if it has ended.
    pub until_us: Option<u64>,
}

/// Results of a run. Moments are in microseconds since 1970.
pub struct Results {
    /// Label in the report.
    pub label: String,
    /// Distribution of due times.
    pub arrivals: Arrivals,
    /// Number of tasks that were overdue at the start.
    pub backlog: usize,
    /// Due time of the first other task.
    pub first_due_us: u64,
    /// Measured window.
    pub window_us: (u64, u64),
    /// When watching ended.
    pub watched_until_us: u64,
    /// The first audit, if it ran during the measurement.
    pub audit: Option<Audit>,
    /// Error bound of the clock of the starts.
    pub clock_error_us: u64,
    /// Merged record of the daemons.
    pub record: Record,
    /// Number of done rows.
    pub done: u64,
    /// Number of done competing tasks.
    pub competing_done: u64,
    /// When the last measured row was settled.
    pub settled_us: u64,
    /// Costs.
    pub costs: Costs,
    /// Clients that followed the events of the daemon over HTTP.
    pub followed: Followed,
    /// Keyspace events that Redis delivered to all daemons, from before the tasks were written to the end.
    pub events: u64,
}

impl Results {
    /// Label of this repetition.
    pub fn name_of(&self, run: u32) -> String {
        format!("{} #{run}", self.label)
    }

    /// Due time of the task at this index, not counting the backlog.
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

    /// First starts of all tasks.
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

    /// Tasks that started before their due millisecond, including unexpected ones.
    pub fn early(&self) -> u64 {
        let early = self.starts().iter().enumerate().filter(|(index, start)| {
            start.is_some_and(|start| start + self.clock_error_us < self.due_us(*index))
        });
        early.count() as u64 + self.record.strays
    }

    /// Due tasks that had not started when watching ended. New tasks beside a backlog count only until the backlog is
    /// drained.
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

    /// Tasks that started but are not done.
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

    /// Memory of the recorder in each daemon, in bytes.
    pub fn recorder_bytes(&self) -> u64 {
        self.record.runs.len() as u64 * 5
    }
}

//! The plan of a measured run: tasks, daemons, and what happens meanwhile.

mod run;
mod tasks;

use std::time::Duration;

use super::environment::Environment;
use super::options::{Blocked, arriving};
use super::report::{Columns, Report};
use super::results::Results;
use super::tasks::Arrivals;

/// Tasks of a slow class, all due in one millisecond.
#[derive(Debug, Clone, Copy)]
pub struct CompetingLoad {
    /// Number.
    pub tasks: u32,
    /// Run time of each.
    pub takes: Duration,
}

/// Plan of a run.
pub struct Plan<'a> {
    /// Label in the report.
    pub label: String,
    /// Number of tasks, including those of the warm-up.
    pub count: u32,
    /// Their due times.
    pub arrivals: Arrivals,
    /// Tasks that are overdue when the daemons start; the daemons then start after everything is written.
    pub backlog: u32,
    /// Warm-up, which is not counted.
    pub warm_up: Duration,
    /// Measured window.
    pub window: Duration,
    /// How long to wait after the window for tasks that have not started or are not settled.
    pub patience: Duration,
    /// Number of daemons.
    pub daemons: usize,
    /// Their settings, without `LAPSED__`.
    pub settings: &'a [(&'a str, &'a str)],
    /// Competing slow tasks that fall due when the window begins.
    pub competing: Option<CompetingLoad>,
    /// Tasks that cannot start, overdue before the daemons start.
    pub blocked: Option<Blocked>,
    /// Expired events are off, and the daemons cannot switch them on.
    pub events_off: bool,
    /// Redis is stopped after everything is written.
    pub redis_down: bool,
    /// Number of clients that follow the events of the first daemon, which must serve HTTP.
    pub followers: u32,
    /// The daemon starts after everything is written, and its audit runs during the measurement.
    pub audit: bool,
}

impl Plan<'_> {
    /// `count` tasks for one daemon as configured, without warm-up, backlog or competing tasks.
    pub fn new(label: String, count: u32, arrivals: Arrivals, window: Duration) -> Self {
        Self {
            label,
            count,
            arrivals,
            backlog: 0,
            warm_up: Duration::ZERO,
            window,
            patience: Duration::ZERO,
            daemons: 1,
            settings: &[],
            competing: None,
            blocked: None,
            events_off: false,
            redis_down: false,
            followers: 0,
            audit: false,
        }
    }

    /// As [`new`](Self::new), with `rate` tasks per second during warm-up and window.
    pub fn evenly(
        label: String,
        rate: u32,
        warm_up: Duration,
        window: Duration,
    ) -> anyhow::Result<Self> {
        let count = u32::try_from(arriving(rate, warm_up + window))?;
        Ok(Self {
            warm_up,
            ..Self::new(label, count, Arrivals::Evenly(rate), window)
        })
    }
}

/// Runs each of these plans `runs` times, and reports its columns. The number of the repetition is given to `columns`, too.
pub async fn measure(
    environment: &mut Environment,
    runs: u32,
    plans: &[Plan<'_>],
    columns: impl Fn(u32, &Results) -> Columns,
) -> anyhow::Result<Report> {
    let mut report = Report::default();
    for run in 1..=runs {
        for plan in plans {
            let results = plan.run(environment).await?;
            report.add(run, &results, columns(run, &results));
        }
    }
    Ok(report)
}

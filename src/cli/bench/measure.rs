//! One measured run: tasks are written, daemons run them, and it is known afterwards when each one started.

use std::time::Duration;

use anyhow::{Context, ensure};
use lapsed::UnixMs;
use tokio::time::sleep;

use super::daemon::PROGRESS_EVERY;
use super::meter::{Costs, Meter};
use super::population::{self, Written};
use super::process::Daemon;
use super::progress::{bar, spinner};
use super::recorder::Record;
use super::samples::Samples;
use super::site::Site;

/// How fast tasks are written at least, by which the first due time is chosen: per second.
const WRITTEN_PER_SECOND: u64 = 8_000;

/// Between the last task written and the first one due, at least.
const LEAD: Duration = Duration::from_secs(3);

/// How long ago tasks of a backlog fell due: from, and over which span.
const OVERDUE_MS: (i64, i64) = (60_000, 600_000);

/// How far the ledger's clock may be off where it is followed over a network, in microseconds.
const LEDGER_CLOCK_ERROR_US: u64 = 2_000;

/// How tasks fall due.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Arrivals {
    /// So many a second.
    Evenly(u32),
    /// All in the same millisecond.
    AtOnce,
    /// This many spread over this span; together they are one piece of work.
    Within(Duration, u32),
}

impl Arrivals {
    /// Milliseconds from the first task's due time to that of the task at `index`.
    pub fn offset_ms(self, index: u32) -> u64 {
        match self {
            Self::Evenly(rate) => u64::from(index) * 1000 / u64::from(rate),
            Self::AtOnce => 0,
            Self::Within(span, count) => {
                let span_ms = u64::try_from(span.as_millis()).unwrap_or(u64::MAX);
                u64::from(index) * span_ms / u64::from(count.max(1))
            }
        }
    }
}

/// What is to be run.
pub struct Plan<'a> {
    /// What people call it.
    pub label: String,
    /// Tasks that fall due, those of the warm-up included.
    pub count: u32,
    /// How.
    pub arrivals: Arrivals,
    /// Tasks that are overdue when the daemons start; they then start after everything is written.
    pub backlog: u32,
    /// What is not counted at the beginning.
    pub warm_up: Duration,
    /// What is counted.
    pub window: Duration,
    /// How long after that is waited for what has not started or is not settled.
    pub patience: Duration,
    /// How many daemons.
    pub daemons: usize,
    /// Their settings, without `LAPSED__`.
    pub settings: &'a [(&'a str, &'a str)],
    /// Expired events are switched off, and they cannot switch them on.
    pub deaf: bool,
    /// Redis is stopped once everything is written.
    pub redis_down: bool,
}

/// What came of it.
pub struct Measured {
    pub label: String,
    arrivals: Arrivals,
    backlog: usize,
    /// When the first task fell due, and from when to when is counted: microseconds since 1970.
    pub first_due_us: u64,
    window_us: (u64, u64),
    patience: Duration,
    clock_error_us: u64,
    record: Record,
    pub costs: Costs,
}

impl Plan<'_> {
    /// Does it.
    pub async fn run(&self, site: &mut Site) -> anyhow::Result<Measured> {
        let total = self.backlog + self.count;
        let first = site.take_numbers(total);
        if site.is_private() && site.uses_redis() {
            site.start_redis().await?;
            site.announce(!self.deaf).await?;
        }
        let mut daemons = Vec::new();
        if self.backlog == 0 {
            daemons = self.start_daemons(site, first).await?;
            self.await_ready(&mut daemons).await?;
        } else {
            self.write_backlog(site, first).await?;
        }
        let (first_due, written) = self.write_tasks(site, first + self.backlog).await?;
        if self.redis_down {
            site.stop_redis();
        }
        let first_due_us = u64::try_from(first_due.0).unwrap_or(0) * 1000;
        let window_us = (
            first_due_us + micros(self.warm_up),
            first_due_us + micros(self.warm_up + self.window),
        );
        let spinner = spinner(format!("{}: warming up", self.label));
        let meter = if self.backlog == 0 {
            site.sleep_until(window_us.0.saturating_sub(micros(PROGRESS_EVERY)))
                .await;
            let counters = site.counters().await?;
            site.sleep_until(window_us.0).await;
            Meter::begin(site, counters, &daemons).await?
        } else {
            let counters = site.counters().await?;
            daemons = self.start_daemons(site, first).await?;
            Meter::begin(site, counters, &daemons).await?
        };
        spinner.finish_and_clear();
        let costs = self.follow(site, meter, &mut daemons, window_us.1).await?;
        let mut record = Record::empty(total as usize);
        for daemon in daemons {
            record.merge(daemon.stop().await?);
        }
        site.forget_pending(written.rows).await?;
        Ok(Measured {
            label: self.label.clone(),
            arrivals: self.arrivals,
            backlog: self.backlog as usize,
            first_due_us,
            window_us,
            patience: self.patience,
            clock_error_us: if site.is_private() {
                0
            } else {
                LEDGER_CLOCK_ERROR_US
            },
            record,
            costs,
        })
    }

    async fn start_daemons(&self, site: &Site, first: u32) -> anyhow::Result<Vec<Daemon>> {
        let tasks = (first, self.backlog + self.count);
        (0..self.daemons)
            .map(|_| site.daemon(tasks, self.settings, self.deaf))
            .collect()
    }

    async fn await_ready(&self, daemons: &mut [Daemon]) -> anyhow::Result<()> {
        let spinner = spinner(format!("{}: the daemon starts, and audits", self.label));
        for daemon in daemons {
            daemon.ready(self.deaf).await?;
        }
        spinner.finish_and_clear();
        Ok(())
    }

    async fn write_backlog(&self, site: &Site, first: u32) -> anyhow::Result<()> {
        let now = site.client.now().await?;
        let (from, span) = OVERDUE_MS;
        let bar = bar("overdue", u64::from(self.backlog));
        let due =
            move |number: u32| UnixMs(now.0 - from - i64::from(number).wrapping_mul(7_919) % span);
        population::write(site, first..first + self.backlog, due, &bar).await?;
        Ok(())
    }

    /// Writes them so that the first falls due when all are written.
    async fn write_tasks(&self, site: &Site, first: u32) -> anyhow::Result<(UnixMs, Written)> {
        let takes = Duration::from_secs(u64::from(self.count) / WRITTEN_PER_SECOND);
        let first_due = site.client.now().await?.plus(LEAD + takes);
        let arrivals = self.arrivals;
        let due = move |number: u32| {
            first_due.plus(Duration::from_millis(arrivals.offset_ms(number - first)))
        };
        let bar = bar("tasks", u64::from(self.count));
        let written = population::write(site, first..first + self.count, due, &bar).await?;
        let first_due_us = u64::try_from(first_due.0).unwrap_or(0) * 1000;
        ensure!(
            site.now_us() < first_due_us,
            "writing {} tasks took {:.1} s, expected at most {:.1} s: the first fell due before the last was written; ask for a lower rate or a shorter run",
            self.count,
            written.took.as_secs_f64(),
            (LEAD + takes).as_secs_f64(),
        );
        Ok((first_due, written))
    }

    /// Until the window is over, and everything is run and settled or patience is at an end.
    async fn follow(
        &self,
        site: &Site,
        mut meter: Meter,
        daemons: &mut [Daemon],
        window_end_us: u64,
    ) -> anyhow::Result<Costs> {
        let expected = u64::from(self.backlog) + u64::from(self.count);
        let deadline_us = window_end_us + micros(self.patience);
        let bar = bar("running", expected);
        let mut costs = None;
        loop {
            meter.sample();
            let (mut started, mut running) = (0, 0);
            for daemon in daemons.iter_mut() {
                daemon.check()?;
                let progress = daemon.progress();
                started += progress.started;
                running += progress.running;
            }
            bar.set_position(started);
            let now_us = site.now_us();
            let complete = started >= expected && running == 0;
            // A burst or a backlog costs until it is done, a steady rate while it is steady.
            let steady = matches!(self.arrivals, Arrivals::Evenly(_)) && self.backlog == 0;
            let over = if steady {
                now_us >= window_end_us
            } else {
                complete
            };
            let late = now_us >= deadline_us;
            if costs.is_none() && (over || late) {
                costs = Some(meter.end(site).await?);
            }
            if late
                || (complete && costs.is_some() && now_us >= window_end_us)
                || (complete && self.backlog > 0)
            {
                break;
            }
            let until_end = Duration::from_micros(window_end_us.saturating_sub(now_us));
            let nap = if until_end.is_zero() {
                PROGRESS_EVERY
            } else {
                PROGRESS_EVERY.min(until_end)
            };
            sleep(nap).await;
        }
        bar.finish_and_clear();
        costs.context("the run ended before it was measured")
    }
}

impl Measured {
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
        let counted = self
            .starts()
            .iter()
            .enumerate()
            .filter_map(|(index, start)| {
                let due = self.due_us(index);
                (due >= from && due < to).then(|| start.map(|start| start.saturating_sub(due)))
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

    /// Tasks that never started.
    pub fn lost(&self) -> u64 {
        self.record.runs.iter().filter(|runs| **runs == 0).count() as u64
    }

    /// Runs beyond the first.
    pub fn duplicates(&self) -> u64 {
        let beyond = self.record.runs.iter().map(|runs| runs.saturating_sub(1));
        beyond.map(u64::from).sum()
    }

    /// How long the lateness of what never started is, at least.
    pub fn watched(&self) -> Duration {
        self.patience
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

    /// When the last run was settled, in microseconds since 1970; `None` if something never ran.
    pub fn settled_us(&self) -> Option<u64> {
        (self.lost() == 0 && self.record.idle_since_us > 0).then_some(self.record.idle_since_us)
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

fn micros(span: Duration) -> u64 {
    u64::try_from(span.as_micros()).unwrap_or(u64::MAX)
}

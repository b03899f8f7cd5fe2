//! One measured run: tasks are written, daemons run them, and it is known afterwards when each one started.

use std::time::Duration;

use anyhow::ensure;
use lapsed::UnixMs;
use tokio::time::{Instant, sleep};

use super::daemon::{PROGRESS_EVERY, SLOW_CLASS};
use super::environment::Environment;
use super::meter::{Costs, Meter};
use super::options::arriving;
use super::process::{Daemon, Numbers, Progress};
use super::progress::{bar, spinner};
use super::recorder::Record;
use super::results::{Audit, Results};
use super::workload::{self, Written};

/// Between the last task written and the first one due, at least.
const LEAD: Duration = Duration::from_secs(3);

/// How long several daemons are left alone after their start: by then three of them listen for all, and each reads ahead
/// only its own rows (the default `nudge.horizon`, and the time for which the others may still believe the old roles).
const ROLES_SETTLE: Duration = Duration::from_secs(16);

/// How long before the first task falls due a daemon starts whose audit is measured.
const AUDIT_LEAD: Duration = Duration::from_secs(1);

/// How long ago tasks of a backlog fell due: from, and over which span.
const OVERDUE_MS: (i64, i64) = (60_000, 600_000);

/// How long after the end of a backlog is waited for what fell due beside it.
const LINGER: Duration = Duration::from_secs(2);

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

/// Tasks of a slow class, all due in one millisecond.
#[derive(Debug, Clone, Copy)]
pub struct Beside {
    /// How many.
    pub tasks: u32,
    /// How long each takes.
    pub takes: Duration,
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
    /// What falls due beside them when the window begins, and is in their way.
    pub beside: Option<Beside>,
    /// Expired events are switched off, and they cannot switch them on.
    pub deaf: bool,
    /// Redis is stopped once everything is written.
    pub redis_down: bool,
    /// The daemon starts when everything is written, and its audit is not waited for.
    pub audit: bool,
}

impl Plan<'_> {
    /// So many tasks for one daemon, as it is configured; nothing before them, beside them or in their way.
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
            beside: None,
            deaf: false,
            redis_down: false,
            audit: false,
        }
    }

    /// As [`new`](Self::new), so many a second for as long as the warm-up and the window take.
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

    /// Does it.
    pub async fn run(&self, environment: &mut Environment) -> anyhow::Result<Results> {
        let total = self.backlog + self.count;
        let first = environment.take_numbers(total);
        if environment.is_private() && environment.uses_redis() {
            environment.start_redis().await?;
            environment.announce(!self.deaf).await?;
        }
        let (mut daemons, mut backlog) = (Vec::new(), None);
        if self.audit {
            // Started below.
        } else if self.backlog == 0 {
            daemons = self.start_daemons(environment, first).await?;
            self.await_ready(&mut daemons).await?;
            if self.daemons > 1 {
                sleep(ROLES_SETTLE).await;
            }
        } else {
            backlog = Some(self.write_backlog(environment, first).await?);
        }
        let events_before = events(&daemons);
        let (first_due, written, beside) =
            self.write_tasks(environment, first + self.backlog).await?;
        if self.redis_down {
            environment.stop_redis();
        }
        let first_due_us = u64::try_from(first_due.0).unwrap_or(0) * 1000;
        if self.audit {
            environment
                .sleep_until(first_due_us.saturating_sub(micros(AUDIT_LEAD)))
                .await;
            daemons = self.start_daemons(environment, first).await?;
            for daemon in &mut daemons {
                daemon.listens().await?;
            }
        }
        let window_us = (
            first_due_us + micros(self.warm_up),
            first_due_us + micros(self.warm_up + self.window),
        );
        let spinner = spinner(format!("{}: warming up", self.label));
        let meter = if self.backlog == 0 {
            environment
                .sleep_until(window_us.0.saturating_sub(micros(PROGRESS_EVERY)))
                .await;
            let counters = environment.counters().await?;
            environment.sleep_until(window_us.0).await;
            Meter::begin(environment, counters, &daemons).await?
        } else {
            let counters = environment.counters().await?;
            environment.sleep_until(first_due_us).await;
            daemons = self.start_daemons(environment, first).await?;
            Meter::begin(environment, counters, &daemons).await?
        };
        spinner.finish_and_clear();
        let costs = self
            .follow(environment, meter, &mut daemons, window_us.1)
            .await?;
        let watched_until_us = environment.now_us();
        let audit = self
            .audit
            .then(|| audit_of(environment, &daemons))
            .flatten();
        // What arrived last is told with the next line.
        sleep(2 * PROGRESS_EVERY).await;
        let events = events(&daemons).saturating_sub(events_before);
        let mut record = Record::empty(total as usize);
        for daemon in daemons {
            record.merge(daemon.stop().await?);
        }
        let rows = backlog.map_or(written.rows, |backlog| written.rows_with(&backlog));
        let (done, settled_us) = environment.settled(rows).await?;
        let mut beside_done = 0;
        if let Some(beside) = beside {
            (beside_done, _) = environment.settled(beside.rows).await?;
            environment.forget_pending(beside.rows).await?;
        }
        environment.forget_pending(rows).await?;
        environment.disarm(first, &record).await;
        Ok(Results {
            label: self.label.clone(),
            arrivals: self.arrivals,
            backlog: self.backlog as usize,
            first_due_us,
            window_us,
            watched_until_us,
            audit,
            clock_error_us: if environment.is_private() {
                0
            } else {
                LEDGER_CLOCK_ERROR_US
            },
            record,
            done,
            beside_done,
            settled_us,
            costs,
            events,
        })
    }

    async fn start_daemons(
        &self,
        environment: &Environment,
        first: u32,
    ) -> anyhow::Result<Vec<Daemon>> {
        let tasks = Numbers {
            first,
            count: self.backlog + self.count,
            backlog: self.backlog,
            slow_ms: self
                .beside
                .map(|beside| u64::try_from(beside.takes.as_millis()).unwrap_or(u64::MAX)),
        };
        (0..self.daemons)
            .map(|_| environment.daemon(tasks, self.settings, self.deaf))
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

    async fn write_backlog(
        &self,
        environment: &Environment,
        first: u32,
    ) -> anyhow::Result<Written> {
        let now = environment.client.now().await?;
        let (from, span) = OVERDUE_MS;
        let bar = bar("overdue", u64::from(self.backlog));
        let due =
            move |number: u32| UnixMs(now.0 - from - i64::from(number).wrapping_mul(7_919) % span);
        workload::write(environment, first..first + self.backlog, due, &bar).await
    }

    /// Writes them, and then those beside them, so that the first falls due when all are written.
    async fn write_tasks(
        &self,
        environment: &mut Environment,
        first: u32,
    ) -> anyhow::Result<(UnixMs, Written, Option<Written>)> {
        let count = self.count + self.beside.map_or(0, |beside| beside.tasks);
        let takes = environment.writing_takes(count);
        let first_due = environment.client.now().await?.plus(LEAD + takes);
        let arrivals = self.arrivals;
        let due = move |number: u32| {
            first_due.plus(Duration::from_millis(arrivals.offset_ms(number - first)))
        };
        let bar = bar("tasks", u64::from(self.count));
        let mut written =
            workload::write(environment, first..first + self.count, due, &bar).await?;
        let mut beside = None;
        if let Some(Beside { tasks, takes: _ }) = self.beside.filter(|beside| beside.tasks > 0) {
            let burst = first_due.plus(self.warm_up);
            let bar = super::progress::bar("slow tasks", u64::from(tasks));
            let slow = workload::write_of(SLOW_CLASS, environment, 0..tasks, move |_| burst, &bar);
            let slow = slow.await?;
            written.took += slow.took;
            beside = Some(slow);
        }
        let first_due_us = u64::try_from(first_due.0).unwrap_or(0) * 1000;
        ensure!(
            environment.now_us() < first_due_us,
            "writing {count} tasks took {:.1} s, expected at most {:.1} s: the first fell due before the last was written; ask for a lower rate or a shorter run",
            written.took.as_secs_f64(),
            (LEAD + takes).as_secs_f64(),
        );
        environment.has_written(count, written.took);
        Ok((first_due, written, beside))
    }

    /// Until the window is over, and everything is run and settled or patience is at an end.
    async fn follow(
        &self,
        environment: &Environment,
        mut meter: Meter,
        daemons: &mut [Daemon],
        window_end_us: u64,
    ) -> anyhow::Result<Costs> {
        let bar = bar("running", u64::from(self.backlog) + u64::from(self.count));
        let deadline_us = window_end_us + micros(self.patience);
        let costs = loop {
            let (so_far, now_us) = (self.look_at(daemons)?, environment.now_us());
            meter.sample();
            bar.set_position(so_far.started);
            if self.is_counted(so_far, now_us >= window_end_us) || now_us >= deadline_us {
                break meter.end(environment).await?;
            }
            sleep_at_most(window_end_us.saturating_sub(now_us)).await;
        };
        // What falls due after the backlog is gone need not be waited for.
        let deadline_us = match self.backlog {
            0 => deadline_us,
            _ => deadline_us.min(costs.span_us.1 + micros(LINGER)),
        };
        while environment.now_us() < deadline_us && !self.is_complete(self.look_at(daemons)?) {
            sleep_at_most(deadline_us.saturating_sub(environment.now_us())).await;
        }
        bar.finish_and_clear();
        Ok(costs)
    }

    /// Whether everything that costs are counted for is done: a backlog or a burst costs until it is worked off, a
    /// steady rate while it is steady.
    fn is_counted(&self, so_far: Progress, window_is_over: bool) -> bool {
        match self.arrivals {
            _ if self.backlog > 0 => so_far.backlog_started >= u64::from(self.backlog),
            Arrivals::Evenly(_) => window_is_over,
            Arrivals::AtOnce | Arrivals::Within(..) => self.is_complete(so_far),
        }
    }

    fn is_complete(&self, so_far: Progress) -> bool {
        // Those beside them may go on.
        let idle = so_far.running == 0 || self.beside.is_some();
        so_far.started >= u64::from(self.backlog) + u64::from(self.count) && idle
    }

    /// All daemons together; an error if one has ended.
    fn look_at(&self, daemons: &mut [Daemon]) -> anyhow::Result<Progress> {
        let mut together = Progress::default();
        for daemon in daemons {
            daemon.check()?;
            let progress = daemon.progress();
            together.started += progress.started;
            together.running += progress.running;
            together.backlog_started += progress.backlog_started;
        }
        Ok(together)
    }
}

/// The audits of these daemons: from the first's begin to the last's end.
fn audit_of(environment: &Environment, daemons: &[Daemon]) -> Option<Audit> {
    let us = |at: Instant| environment.now_us().saturating_sub(micros(at.elapsed()));
    let progress = || daemons.iter().map(Daemon::progress);
    let from = progress().filter_map(|progress| progress.ready).min()?;
    let until: Option<Vec<Instant>> = progress().map(|progress| progress.audited).collect();
    Some(Audit {
        from_us: us(from),
        until_us: until.and_then(|until| until.into_iter().max()).map(us),
    })
}

/// As long as daemons need to say something new, but not beyond a moment that lies ahead.
async fn sleep_at_most(us: u64) {
    let span = match us {
        0 => PROGRESS_EVERY,
        us => PROGRESS_EVERY.min(Duration::from_micros(us)),
    };
    sleep(span).await;
}

/// Keyspace events that all daemons have received so far.
fn events(daemons: &[Daemon]) -> u64 {
    daemons.iter().map(|daemon| daemon.progress().events).sum()
}

fn micros(span: Duration) -> u64 {
    u64::try_from(span.as_micros()).unwrap_or(u64::MAX)
}

//! One measured run: writes tasks, lets daemons run them, and collects when each one started.

use std::time::Duration;

use tokio::time::{Instant, sleep};

use super::Plan;
use crate::bench::daemon::PROGRESS_EVERY;
use crate::bench::environment::Environment;
use crate::bench::followers::{Followed, Followers};
use crate::bench::meter::{Costs, Meter};
use crate::bench::options::BlockedBy;
use crate::bench::process::{Daemon, Numbers, Progress};
use crate::bench::progress::{bar, spinner};
use crate::bench::recorder::Record;
use crate::bench::results::{Audit, Results};
use crate::bench::tasks::Arrivals;

/// How long several daemons settle after their start: three of them then listen for all, and each reads ahead
/// only its own rows (the default `nudge.horizon`, plus the time for which others may assume the old roles).
const ROLES_SETTLE: Duration = Duration::from_secs(16);

/// How long before the first due time a daemon starts whose audit is measured.
const AUDIT_LEAD: Duration = Duration::from_secs(1);

/// How long to wait after a backlog for tasks that fell due meanwhile.
const LINGER: Duration = Duration::from_secs(2);

impl Plan<'_> {
    /// Runs the plan.
    pub async fn run(&self, environment: &mut Environment) -> anyhow::Result<Results> {
        let total = self.backlog + self.count;
        let first = environment.take_numbers(total);
        if environment.is_private() && environment.uses_redis() {
            environment.start_redis().await?;
            environment.announce(!self.events_off).await?;
        }
        let blocked = self.write_blocked(environment).await?;
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
        let followers = match (self.followers, daemons.first_mut()) {
            (1.., Some(daemon)) => {
                Some(Followers::gather(daemon.http().await?, self.followers).await?)
            }
            _ => None,
        };
        let events_before = events(&daemons);
        let (first_due, written, competing) =
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
        // The next progress line includes the last arrivals.
        sleep(2 * PROGRESS_EVERY).await;
        let events = events(&daemons).saturating_sub(events_before);
        let followed = followers.map_or_else(Followed::default, Followers::leave);
        let mut record = Record::empty(total as usize);
        for daemon in daemons {
            record.merge(daemon.stop().await?);
        }
        let rows = backlog.map_or(written.rows, |backlog| written.rows_with(&backlog));
        let (done, settled_us) = environment.settled(rows).await?;
        let mut competing_done = 0;
        if let Some(competing) = competing {
            (competing_done, _) = environment.settled(competing.rows).await?;
            environment.forget_pending(competing.rows).await?;
        }
        if let Some(blocked) = blocked {
            environment.forget_pending(blocked.rows).await?;
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
            clock_error_us: environment.clock_error_us(),
            record,
            done,
            competing_done,
            settled_us,
            costs,
            followed,
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
                .competing
                .map(|competing| u64::try_from(competing.takes.as_millis()).unwrap_or(u64::MAX)),
            blocked_queue: self
                .blocked
                .is_some_and(|wanted| wanted.blocked_by == BlockedBy::NoWorker),
        };
        (0..self.daemons)
            .map(|_| environment.daemon(tasks, self.settings, self.events_off))
            .collect()
    }

    async fn await_ready(&self, daemons: &mut [Daemon]) -> anyhow::Result<()> {
        let spinner = spinner(format!(
            "{}: waiting for the first audit of the daemon",
            self.label
        ));
        for daemon in daemons {
            daemon.ready(self.events_off).await?;
        }
        spinner.finish_and_clear();
        Ok(())
    }

    /// Waits until the window is over and all tasks are settled, or until patience ends.
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
        // Tasks due after the backlog is drained need not be waited for.
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

    /// Whether the measured work is done: a backlog or a burst is measured until it is drained, a steady rate during
    /// its window.
    fn is_counted(&self, so_far: Progress, window_is_over: bool) -> bool {
        match self.arrivals {
            _ if self.backlog > 0 => so_far.backlog_started >= u64::from(self.backlog),
            Arrivals::Evenly(_) => window_is_over,
            Arrivals::AtOnce | Arrivals::Within(..) => self.is_complete(so_far),
        }
    }

    fn is_complete(&self, so_far: Progress) -> bool {
        // Competing tasks may continue.
        let idle = so_far.running == 0 || self.competing.is_some();
        so_far.started >= u64::from(self.backlog) + u64::from(self.count) && idle
    }

    /// Total progress of all daemons; an error if one has ended.
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

/// Audits of these daemons: from the first start to the last end.
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

/// Sleeps for one progress interval, but not beyond a moment `us` ahead.
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

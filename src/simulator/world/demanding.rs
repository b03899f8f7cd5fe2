//! The second phase: everything must be settled, and new tasks must start in time.

use std::time::Duration;

use tokio::time::{Instant, sleep};

use super::World;
use crate::daemon::{Daemon, Start};
use crate::judge::{Anomaly, Judge};
use crate::plan::{Op, PROBES, Policy, Rule, TimerKind, Verb};

/// How long after the faults everything may take at most to be settled.
const SETTLED_WITHIN: Duration = Duration::from_secs(400);

/// How long after they have finished rows are deleted at the latest: their age, two passes, and the wait for events.
const PRUNED_WITHIN: Duration = Duration::from_secs(95);

impl World {
    /// Demands that everything is settled, and that what is created now runs in time.
    pub(super) async fn demand(&mut self) {
        let lease = self.ground.plan.lease;
        // Late statements, restarts, leases of the dead.
        sleep(lease + Duration::from_secs(20)).await;
        self.resume_all().await;
        self.unrest(Duration::from_secs(6));
        self.revive();
        self.probe();
        sleep(Duration::from_secs(3)).await;
        if !self.is_settled().await {
            return;
        }
        self.history().judge(Judge::are_created_again);
        if !self.series.is_empty() {
            self.end_series().await;
            if !self.is_settled().await {
                return;
            }
            // A daemon looks every two seconds whether it can write a rule that waits.
            sleep(Duration::from_secs(3)).await;
            if !self.is_settled().await {
                return;
            }
        }
        if self.ground.plan.prunes {
            sleep(PRUNED_WITHIN).await;
            let now = self.now();
            let is_kept = self.keeps_finished();
            self.history().judge(|judge| judge.is_pruned(now, is_kept));
            if !self.arm_again().await {
                return;
            }
        }
        sleep(Duration::from_secs(2)).await;
        for daemon in self.daemons.iter().flatten() {
            let running = daemon.handle.running();
            if running > 0 {
                let text = format!("{:?} has {running} runs", daemon.process.actor);
                self.history()
                    .judge(|judge| judge.accuse(Anomaly::NotEmpty, text));
            }
        }
    }

    /// True if no row is deleted: without Redis, nothing tells whether its key is gone.
    fn keeps_finished(&self) -> bool {
        let plan = &self.ground.plan;
        plan.redis_stays_down && plan.timer == TimerKind::KeyExpiry
    }

    /// Waits until everything is settled. Returns false if something is wrong.
    async fn is_settled(&mut self) -> bool {
        let settled_by = Instant::now() + SETTLED_WITHIN;
        loop {
            sleep(Duration::from_secs(1)).await;
            self.revive();
            let now = self.now();
            let is_over = Instant::now() >= settled_by;
            let (is_settled, is_well) = self.history().judge(|judge| {
                let unfinished = judge.unfinished(now);
                if is_over {
                    for row in &unfinished {
                        judge.accuse(Anomaly::Stuck, format!("not settled: {row}"));
                    }
                }
                (unfinished.is_empty(), judge.violations.is_empty())
            });
            if is_settled || !is_well {
                return is_well;
            }
        }
    }

    /// Programs arm keys whose rows were deleted: these are new tasks. Returns whether they have run.
    async fn arm_again(&mut self) -> bool {
        let plan = &self.ground.plan;
        if plan.redis_stays_down || plan.timer != TimerKind::KeyExpiry {
            return true;
        }
        let delay = Duration::from_millis(1_500);
        for key in 0..plan.keys.len().min(3) {
            self.send(Op {
                producer: 0,
                key,
                verb: Verb::KeySet { delay },
            });
        }
        sleep(Duration::from_secs(5)).await;
        self.is_settled().await
    }

    /// Demands that the series are as configured, and ends them.
    async fn end_series(&mut self) {
        let now = self.now();
        self.history().judge(|judge| judge.series_end(now));
        self.change_rule_during_run().await;
        let first = self.ground.plan.keys.len() + PROBES;
        for number in 0..self.series.len() {
            self.send(Op {
                producer: number % self.producers.len(),
                key: first + number,
                verb: Verb::Cancel,
            });
        }
        sleep(Duration::from_secs(3)).await;
    }

    /// Changes the rule of a series at the beginning of a run, if there is one soon. The rule waits for the end of the run, and
    /// does not begin the series again if it is cancelled during that run.
    async fn change_rule_during_run(&mut self) {
        let until = Instant::now() + Duration::from_secs(25);
        while Instant::now() < until {
            let now = self.now();
            let key = self.history().judge(|judge| judge.slow_series_runs(now));
            let number = self
                .series
                .iter()
                .position(|series| Some(&series.key) == key.as_ref());
            if let Some(number) = number {
                let rule = self.series[number].rule;
                let every = rule.every + Duration::from_secs(1);
                self.configure(number, Rule { every, ..rule });
                sleep(Duration::from_secs(1)).await;
                let now = self.now();
                let runs_on = self.history().judge(|judge| judge.slow_series_runs(now)) == key;
                self.history()
                    .judge(|judge| judge.looked.waiting_rules += u64::from(runs_on));
                return;
            }
            sleep(Duration::from_millis(100)).await;
        }
    }

    /// Starts the core again if it could not use the ledger at its start.
    fn revive(&mut self) {
        let core = self.ground.plan.core;
        if self.daemons[core].as_ref().is_some_and(Daemon::has_ended) {
            self.daemons[core] = None;
            self.start(core, Start::default());
            self.unrest(Duration::from_secs(5));
        }
    }

    /// Creates tasks whose runs must be in time.
    fn probe(&self) {
        let first = self.ground.plan.keys.len();
        for number in 0..PROBES {
            let delay = Duration::from_millis(700 * number as u64);
            self.send(Op {
                producer: number % self.producers.len(),
                key: first + number,
                verb: Verb::Create {
                    delay,
                    absolute: false,
                    policy: Policy::Move,
                },
            });
        }
    }
}

//! A run: carries out a plan, heals a core, and demands that everything is settled.

mod demanding;
mod disturbing;

use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::Duration;

use lapsed::Config;
use lapsed_core::ledger::memory::MemoryLedger;
use lapsed_core::ledger::{Ledger as _, Pauses as _};
use lapsed_core::task::{Scope, UnixMs};
use lapsed_model_redis::{ModelRedis, Options};
use tokio::sync::mpsc;
use tokio::task::JoinHandle;
use tokio::time::{Instant, sleep};

use crate::daemon::{Daemon, Ground, Start};
use crate::history::History;
use crate::judge::Judge;
use crate::keyed;
use crate::outcome::Outcome;
use crate::plan::{CLASSES, FaultKind, Op, Plan, Rule, START, Series};
use crate::process::Process;
use crate::producer::Producer;
use crate::record::Actor;
use crate::worker::{Servers, Worker};

pub struct World {
    ground: Arc<Ground>,
    daemons: Vec<Option<Daemon>>,
    starts: Vec<usize>,
    producers: Vec<(Arc<Process>, mpsc::UnboundedSender<Op>)>,
    workers: Vec<Arc<Process>>,
    guards: BTreeSet<String>,
    /// The recurring tasks of the configuration as it is now, and the whole configuration.
    series: Vec<Series>,
    config: Config,
    began: Instant,
}

impl World {
    pub fn new(plan: Plan, prints: bool, forgets: u64) -> Self {
        let keys = plan.names();
        let options = Options {
            start: START,
            seed: plan.seed,
            ..Options::default()
        };
        let redis = plan.timer.has_redis().then(|| ModelRedis::new(options));
        let without_series = keyed::config(&plan, &[]);
        let judge = Judge::new(&plan, redis.clone(), prints);
        let history = History::new(judge, prints, forgets);
        let ledger = Arc::new(MemoryLedger::new(START));
        let producers = (0..plan.producers).map(|number| {
            let process = Process::new(Actor::Producer(number), plan.seed, Arc::clone(&history));
            let producer = Producer::new(
                Arc::clone(&process),
                Arc::clone(&ledger),
                Arc::clone(&history),
                keys.clone(),
                redis.clone(),
                plan.timer,
                &without_series,
            );
            let (ops, receiver) = mpsc::unbounded_channel();
            tokio::spawn(producer.run(receiver));
            (process, ops)
        });
        let producers = producers.collect();
        let servers = Arc::<Servers>::default();
        let workers = (0..plan.workers).map(|number| {
            let process = Process::new(Actor::Worker(number), plan.seed, Arc::clone(&history));
            let worker = Worker {
                number,
                process: Arc::clone(&process),
                history: Arc::clone(&history),
                servers: Arc::clone(&servers),
                clock: ledger.clock().clone(),
                lease: plan.lease,
                daemons: plan.daemons,
            };
            tokio::spawn(worker.run());
            process
        });
        let workers = workers.collect();
        let count = plan.daemons;
        Self {
            daemons: (0..count).map(|_| None).collect(),
            starts: vec![0; count],
            producers,
            workers,
            guards: BTreeSet::new(),
            series: plan.series.clone(),
            config: keyed::config(&plan, &plan.series),
            began: Instant::now(),
            ground: Arc::new(Ground {
                plan,
                ledger,
                members: Arc::default(),
                limiter: Arc::default(),
                history,
                redis,
                servers,
            }),
        }
    }

    fn history(&self) -> &Arc<History> {
        &self.ground.history
    }

    pub async fn run(mut self) -> Outcome {
        for number in 0..self.daemons.len() {
            self.start(number, Start::default());
        }
        self.unrest(Duration::from_secs(5));
        let patrol = self.patrol();
        self.disturb().await;
        self.heal().await;
        self.demand().await;
        patrol.abort();
        self.finish()
    }

    fn now(&self) -> UnixMs {
        self.ground.ledger.clock().now()
    }

    fn unrest(&self, lasts: Duration) {
        let until = self.now().plus(lasts);
        self.history().judge(|judge| judge.unrest(until));
    }

    /// Looks for late tasks, if the slots suffice for all of them, and for keys that were not adopted.
    fn patrol(&self) -> JoinHandle<()> {
        let has_slots = self.ground.plan.concurrency >= 16;
        let ground = Arc::clone(&self.ground);
        let patrol = async move {
            let mut paused = Vec::new();
            loop {
                sleep(Duration::from_millis(500)).await;
                let now = ground.ledger.clock().now();
                let before = std::mem::take(&mut paused);
                let pauses = ground.ledger.pauses().await.expect("the ledger answers");
                paused.extend(pauses.iter().map(|pause| pause.scope.to_string()));
                let is_paused = |key: &str| paused.iter().any(|class| key.starts_with(class));
                ground.history.judge(|judge| {
                    if before != paused {
                        // The daemons hear of it within seconds.
                        judge.unrest(now.plus(Duration::from_secs(6)));
                    }
                    judge.patrol(now, has_slots, is_paused);
                });
            }
        };
        tokio::spawn(patrol)
    }

    fn send(&self, op: Op) {
        let (_, ops) = &self.producers[op.producer];
        let _ = ops.send(op);
    }

    fn start(&mut self, number: usize, how: Start) {
        if self.daemons[number].is_some() {
            return;
        }
        let starts = self.starts[number];
        self.starts[number] += 1;
        self.history()
            .say(format!("daemon {number} starts ({how:?})"));
        let daemon = Daemon::start(&self.ground, number, starts, how, &self.config);
        self.daemons[number] = Some(daemon);
    }

    /// The configuration of a series changes. The daemons that run get `SIGHUP`, the others read it when they start.
    fn configure(&mut self, series: usize, rule: Rule) {
        let changed = &mut self.series[series];
        changed.rule = rule;
        self.ground.history.configured(changed);
        self.config = keyed::config(&self.ground.plan, &self.series);
        for daemon in self.daemons.iter().flatten() {
            let config = &self.config;
            daemon.handle.take_recurring(config.recurring.clone());
        }
    }

    fn take(&mut self, number: usize) -> Option<Daemon> {
        let daemon = self.daemons[number].take()?;
        self.note_guards(&daemon);
        Some(daemon)
    }

    /// The counters of a daemon that are not zero name the guards that were taken.
    fn note_guards(&mut self, daemon: &Daemon) {
        for line in daemon.metrics.render().lines() {
            if let Some((name, value)) = line.rsplit_once(' ')
                && name.contains("_total")
                && value != "0"
                && !line.starts_with('#')
            {
                self.guards.insert(name.to_owned());
            }
        }
    }

    /// The second phase begins: one daemon and all connections are well, for good.
    async fn heal(&mut self) {
        self.history().say("healed");
        self.unrest(self.ground.plan.lease + Duration::from_secs(20));
        let producers = self.producers.iter().map(|(process, _)| process);
        producers
            .chain(&self.workers)
            .for_each(|process| process.heal());
        let (core, others_stay_down) = {
            let plan = &self.ground.plan;
            (plan.core, plan.others_stay_down)
        };
        for number in 0..self.daemons.len() {
            if let Some(daemon) = &self.daemons[number] {
                daemon.process.heal();
                if daemon.process.is_frozen() {
                    self.thaw(&daemon.process);
                }
            }
            // A core that runs fewer classes could not run the others' tasks.
            if number == core || !others_stay_down {
                if let Some(daemon) = self.take(number) {
                    self.history().struck(FaultKind::Kill, daemon.process.actor);
                    daemon.kill();
                }
                self.start(number, Start::default());
            }
        }
        if let Some(redis) = &self.ground.redis {
            keyed::heal(redis);
            if self.ground.plan.redis_stays_down {
                redis.refuse(true);
                redis.kill_connections(|_| true);
                let (kind, from) = (FaultKind::RedisRefuses, self.now());
                let until = UnixMs(i64::MAX);
                self.history()
                    .judge(|judge| judge.rates_disturbed(kind, from, until));
                self.history().judge(Judge::redis_is_gone);
            }
        }
        self.resume_all().await;
    }

    async fn resume_all(&self) {
        for class in CLASSES {
            let scope: Scope = class.parse().expect("a scope");
            self.ground
                .ledger
                .resume(&scope)
                .await
                .expect("the ledger answers");
        }
    }

    fn finish(mut self) -> Outcome {
        for number in 0..self.daemons.len() {
            drop(self.take(number));
        }
        let ran = self.began.elapsed();
        let history = Arc::clone(self.history());
        let struck = history.struck_by_kind();
        let (lines, digest) = history.digest();
        let guards = std::mem::take(&mut self.guards);
        let daemons = u32::try_from(self.daemons.len()).unwrap_or(1);
        history.judge(|judge| Outcome {
            violations: judge.violations.clone(),
            struck,
            guards,
            claims: judge.claims_seen,
            writes: judge.writes_seen,
            looked: judge.looked,
            daemon_time: ran * daemons,
            lines,
            digest,
        })
    }
}

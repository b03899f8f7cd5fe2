//! Random operations on real servers, compared with a small model of what the README promises: never before the due time,
//! never after an acknowledged cancellation, never for an older due time than the last acknowledged one, and as often as
//! was asked for. What the README does not promise is not planned: see [`task`].
//!
//! `LAPSED_MODEL_SEED=7 cargo test --test servers random_operations::model` runs one seed.

mod compare;
mod daemons;
mod disturbances;
mod operations;
mod plan;
mod task;

use std::cell::RefCell;
use std::collections::BTreeMap;
use std::sync::Mutex;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use futures_util::future::join_all;
use lapsed::TaskClient;
use lapsed::compose::Adapters;
use lapsed::task::State;
use lapsed_sandbox::PrivateRedis;
use tokio::sync::RwLock;
use tokio::time::{Instant, sleep, sleep_until};

use self::daemons::Daemons;
use self::disturbances::Disturbances;
use self::plan::{Plan, Script};
use self::task::{Op, Row, Task};
use crate::support::rig::Rig;
use crate::support::setup::Setup;
use crate::support::tasks::key;
use crate::support::wait::{DEADLINE, until};

const SEEDS: u64 = 20;

/// Seeds at a time.
const AT_ONCE: usize = 7;

/// Nothing is due later at the end of a seed.
const LAST_DUE: i64 = 10_000;

const POLL: Duration = Duration::from_millis(50);

#[test]
fn every_task_runs_as_often_as_the_readme_says_and_never_too_early() {
    let seeds: Vec<u64> = match std::env::var("LAPSED_MODEL_SEED") {
        Ok(seeds) => seeds
            .split(',')
            .map(|seed| {
                seed.parse()
                    .expect("LAPSED_MODEL_SEED is a number, or several: 7,8")
            })
            .collect(),
        Err(_) => (0..SEEDS).collect(),
    };
    let next = AtomicU64::new(0);
    let wrong = Mutex::new(Vec::new());
    let work = || {
        while let Some(seed) = seeds.get(next.fetch_add(1, Ordering::Relaxed) as usize) {
            let run = || {
                let mut builder = tokio::runtime::Builder::new_current_thread();
                let runtime = builder.enable_all().build().unwrap();
                runtime.block_on(Trial::run_seed(*seed))
            };
            // A panic would not say which seed it was.
            let found = std::panic::catch_unwind(run)
                .unwrap_or_else(|_| vec!["it panicked, see above".to_owned()]);
            let found = found.into_iter().map(|found| {
                format!("seed {seed} (LAPSED_MODEL_SEED={seed} runs just this one): {found}")
            });
            wrong.lock().unwrap().extend(found);
        }
    };
    std::thread::scope(|scope| {
        for _ in 0..AT_ONCE {
            scope.spawn(work);
        }
    });
    let wrong = wrong.into_inner().unwrap();
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}

/// One operation as it was carried out, for people.
type Log = Vec<String>;

/// A seed under way.
struct Trial {
    rig: RwLock<Rig>,
    client: TaskClient,
    adapters: Adapters,
    disturbances: RefCell<Disturbances>,
    /// Kills of daemons: what ran then may run again.
    kills: RefCell<Vec<(i64, i64)>>,
    /// From the moment a pause is surely in force to its end.
    pauses: RefCell<Vec<(i64, i64)>>,
    /// By key.
    wrong_answers: RefCell<BTreeMap<String, String>>,
    /// The database's clock at some moment.
    began: (i64, Instant),
}

impl Trial {
    /// What is wrong.
    async fn run_seed(seed: u64) -> Vec<String> {
        let plan = Plan::of(seed);
        let mut redis = PrivateRedis::options();
        if plan.disturbances.keeps_keys {
            redis = redis.set("appendonly", "yes").set("appendfsync", "always");
        }
        // A busy machine must not make a daemon give up its link: a `DEL` in between is lost.
        let rig = Setup::new("ledger.max_connections = 6\nredis.response_timeout = '10s'")
            .redis(redis)
            .start()
            .await;
        let client = rig.client().await.into();
        let adapters = Adapters::new(&rig.config()).unwrap();
        let daemons = Daemons::start(&rig, plan.daemons).await;
        // A key that is found counts against rows that were written later than a second or two after redis started.
        until("redis has run for some seconds", async || {
            rig.redis_uptime_s().await >= 3
        })
        .await;
        let began = (rig.now_ms().await, Instant::now());
        let mut disturbances = plan.disturbances.clone();
        for disturbance in &mut disturbances.all {
            disturbance.from += began.0;
            disturbance.to += began.0;
            (disturbance.begun, disturbance.over) = (false, false);
        }
        let sea = Self {
            rig: RwLock::new(rig),
            client,
            adapters,
            disturbances: RefCell::new(disturbances),
            kills: RefCell::default(),
            pauses: RefCell::default(),
            wrong_answers: RefCell::default(),
            began,
        };
        let scripts = plan.scripts.iter().map(|script| sea.follow(script));
        let (daemons, tasks) = tokio::join!(sea.cause_events(daemons), join_all(scripts));
        let tasks: Vec<(&Script, Task, Log)> = plan
            .scripts
            .iter()
            .zip(tasks)
            .map(|(script, (task, log))| (script, task, log))
            .collect();
        sea.settle(&tasks).await;
        let found = sea.compare(seed, &tasks).await;
        drop(daemons);
        found
    }

    fn now(&self) -> i64 {
        self.began.0 + self.began.1.elapsed().as_millis() as i64
    }

    async fn until_planned(&self, at: i64) {
        let at = self.began.1 + Duration::from_millis(at.cast_unsigned());
        sleep_until(at).await;
    }

    /// Does what is planned for one key, but for what would come too near to a due time or an event by now.
    async fn follow(&self, script: &Script) -> (Task, Log) {
        let mut task = Task::new();
        let mut log = Log::new();
        for (at, op) in &script.steps {
            self.until_planned(*at).await;
            if let Row::Pending { due, .. } = task.row
                && due <= self.now()
                && self.find(&script.name).await == Some(State::Done)
            {
                task.row = Row::Done;
            }
            if let Row::Pending { own: false, .. } = task.row
                && matches!(op, Op::Reschedule(_) | Op::Cancel | Op::RunNow)
            {
                self.await_row(&script.name).await;
            }
            let before = self.now();
            let effect = task.effect(*op, before, &self.disturbances.borrow());
            let Some(effect) = effect else {
                log.push(format!("{} left out {op:?}", before - self.began.0));
                continue;
            };
            let due = self.carry_out(&script.name, *op, effect, task.row).await;
            let after = self.now();
            log.push(format!(
                "{}..{} {op:?}",
                before - self.began.0,
                after - self.began.0
            ));
            task.apply(effect, *op, before, after, due);
        }
        self.until_planned(plan::LENGTH).await;
        if let Row::Pending { due, .. } = task.row
            && due > self.now() + LAST_DUE
        {
            let effect = loop {
                let effect = task.effect(Op::Cancel, self.now(), &self.disturbances.borrow());
                match effect {
                    Some(effect) => break effect,
                    None => sleep(Duration::from_millis(100)).await,
                }
            };
            let before = self.now();
            self.carry_out(&script.name, Op::Cancel, effect, task.row)
                .await;
            task.apply(effect, Op::Cancel, before, self.now(), None);
        }
        (task, log)
    }

    /// Gives the daemons time to write the row of a key. Without it, the answer shows that it is missing.
    async fn await_row(&self, name: &str) {
        const PATIENCE: Duration = Duration::from_secs(3);
        let is_written = async {
            while self.find(name).await != Some(State::Pending) {
                sleep(POLL).await;
            }
        };
        let _ = tokio::time::timeout(PATIENCE, is_written).await;
    }

    async fn find(&self, name: &str) -> Option<State> {
        let found = self.adapters.ledger.find(&key(name)).await.unwrap();
        found.map(|record| record.state)
    }

    /// Waits until nothing is due any more, and everything that was heard of the keys has been dealt with. What does not get
    /// there shows in the comparison.
    async fn settle(&self, tasks: &[(&Script, Task, Log)]) {
        const PENDING: &str = "SELECT COUNT(*) FROM tb_time_limit_task WHERE status = 0 AND sts = 0 AND `key` LIKE 'Model@%'";
        let rig = self.rig.read().await;
        let deadline = Instant::now() + DEADLINE;
        let settled = async || {
            while Instant::now() < deadline && rig.number(PENDING).await > 0 {
                sleep(POLL).await;
            }
        };
        settled().await;
        for (script, ..) in tasks {
            let name = &script.name;
            until(format!("the key of `{name}` is gone"), async || {
                !(0..LAST_DUE).contains(&rig.pttl(name).await)
            })
            .await;
        }
        let marker = "Job@record@marker";
        rig.arm(marker, 60_000).await;
        rig.until_adopted(marker).await;
        settled().await;
    }
}

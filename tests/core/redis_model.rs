//! The timers, the membership and the limiter on Redis, on the model of Redis and paused time.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use lapsed::engine::{Handle, Metrics, Parts};
use lapsed::ledger::memory::MemoryLedger;
use lapsed::ledger::{Admin, Ledger};
use lapsed::limiter::redis_limiter::RedisLimiter;
use lapsed::membership::RedisMembership;
use lapsed::timer::Timer;
use lapsed::timer::key_expiry::{Events, KeyExpiry};
use lapsed::timer::sorted_set::SortedSet;
use lapsed::timer::wheel::Wheel;
use lapsed::{Config, Engine, HandlerError, Handlers, TaskClient, TaskContext, TaskKey, UnixMs};
use lapsed_model_redis::{Keep, Link, ModelRedis, Options};
use lapsed_redis::Endpoint;
use tokio::task::JoinHandle;
use tokio_util::sync::CancellationToken;

use crate::engine::rig::{START, parts, seconds};
use crate::support::wait::{until, until_within};

const TIMERS: [&str; 3] = ["key_expiry", "sorted_set", "wheel"];

/// A ledger and a Redis, and how late each task ran, in milliseconds.
struct Ground {
    redis: Arc<ModelRedis>,
    ledger: Arc<MemoryLedger>,
    late: Arc<Mutex<BTreeMap<String, Vec<u64>>>>,
}

struct Daemon {
    link: Arc<Link>,
    status: Handle,
    tasks: TaskClient,
    stop: CancellationToken,
    running: JoinHandle<()>,
}

impl Ground {
    fn new() -> Self {
        Self {
            redis: ModelRedis::new(Options {
                start: START,
                ..Options::default()
            }),
            ledger: Arc::new(MemoryLedger::new(START)),
            late: Arc::default(),
        }
    }

    fn daemon(&self, name: &str, timer: &str) -> Daemon {
        self.daemon_with(name, timer, "")
    }

    fn daemon_with(&self, name: &str, timer: &str, settings: &str) -> Daemon {
        let config = Config::from_toml(&format!("timer = \"{timer}\"\n{settings}")).unwrap();
        let link = Link::new(&self.redis, name);
        let endpoint = || Endpoint::over(&config.redis, link.clone()).unwrap();
        let (clock, metrics) = (self.ledger.clock().clone(), Arc::new(Metrics::default()));
        let timer: Arc<dyn Timer> = match timer {
            "key_expiry" => Arc::new(KeyExpiry::on(
                endpoint(),
                &config.redis,
                config.sentinel,
                config.nudge,
                Events::wanted_by(&config),
                "model".into(),
                clock,
                Arc::clone(&metrics),
            )),
            "sorted_set" => {
                let sets = config.sorted_set.clone();
                let metrics = Arc::clone(&metrics);
                let ledger = "model".into();
                Arc::new(SortedSet::on(
                    endpoint(),
                    &config.redis,
                    sets,
                    clock,
                    metrics,
                    ledger,
                ))
            }
            _ => {
                let (wheel, metrics) = (&config.wheel, Arc::clone(&metrics));
                let adopts = config.adopts_any();
                Arc::new(Wheel::on(
                    endpoint(),
                    &config.redis,
                    wheel,
                    adopts,
                    clock,
                    metrics,
                ))
            }
        };
        let parts = Parts {
            membership: Arc::new(RedisMembership::on(
                endpoint(),
                &config.redis,
                "model".into(),
            )),
            limiter: Arc::new(RedisLimiter::on(endpoint(), &config.redis, "model")),
            metrics: Arc::clone(&metrics),
            ..parts(
                Arc::clone(&self.ledger) as _,
                Arc::clone(&timer),
                self.handlers(),
                &config,
            )
        };
        let engine = Engine::with_parts(parts, &config);
        let status = engine.handle();
        let stop = CancellationToken::new();
        let running = engine.run_until(stop.clone().cancelled_owned());
        Daemon {
            link,
            status,
            tasks: TaskClient::with_parts(Arc::clone(&self.ledger) as _, timer),
            stop,
            running: tokio::spawn(async move { running.await.unwrap() }),
        }
    }

    fn handlers(&self) -> Handlers {
        let mut handlers = Handlers::new();
        for class in ["Job", "Wheel"] {
            let late = Arc::clone(&self.late);
            handlers.on((class, "run"), move |task: TaskContext, _: Vec<String>| {
                let mut late = late.lock().unwrap();
                late.entry(task.key().to_string())
                    .or_default()
                    .push(task.lateness_ms());
                async { Ok(()) }
            });
        }
        handlers.on(("Job", "hold"), |_: Vec<String>| async {
            tokio::time::sleep(seconds(10)).await;
            Ok(())
        });
        handlers.on(
            ("Job", "flaky"),
            |task: TaskContext, _: Vec<String>| async move {
                match task.attempt() {
                    1 => Err(HandlerError::new("not yet")),
                    _ => Ok(()),
                }
            },
        );
        handlers
    }

    async fn until_done(&self, count: u64) {
        until_within(
            seconds(3_600),
            format!("{count} tasks are done"),
            async || self.ledger.stats().await.unwrap().done >= count,
        )
        .await;
    }

    /// How late each task ran. Panics if one ran twice.
    fn lateness(&self) -> Vec<u64> {
        let late = std::mem::take(&mut *self.late.lock().unwrap());
        let once = late.into_iter().map(|(name, late)| match late[..] {
            [late] => late,
            _ => panic!("`{name}` ran {} times", late.len()),
        });
        once.collect()
    }

    fn now(&self) -> UnixMs {
        self.ledger.clock().now()
    }
}

impl Daemon {
    async fn stop(self) {
        self.stop.cancel();
        self.running.await.unwrap();
    }
}

fn key(name: impl ToString) -> TaskKey {
    TaskKey::build("Job", "run", [name.to_string()]).unwrap()
}

#[tokio::test(start_paused = true)]
async fn every_timer_on_redis_runs_each_task_once_and_on_time() {
    for timer in TIMERS {
        let ground = Ground::new();
        let daemon = ground.daemon("one", timer);
        for n in 0..20_u32 {
            let wait = Duration::from_millis(1_500 + 137 * u64::from(n));
            daemon.tasks.create(key(n), wait).await.unwrap();
        }
        ground.until_done(20).await;
        let late = ground.lateness();
        assert!(late.iter().all(|late| *late <= 5), "{timer}: {late:?}");
        daemon.stop().await;
    }
}

#[tokio::test(start_paused = true)]
async fn a_bare_key_entry_or_element_of_a_program_is_adopted_and_runs_on_time() {
    for timer in TIMERS {
        let ground = Ground::new();
        let daemon = ground.daemon("one", timer);
        until("the daemon is ready", async || daemon.status.members() == 1).await;
        // The timer subscribes, and the wheel has a tick behind it.
        tokio::time::sleep(seconds(3)).await;
        let due = UnixMs(ground.now().0 / 1_000 * 1_000 + 5_000);
        let (ms, key, redis) = (due.0.to_string(), key("bare").to_string(), &ground.redis);
        match timer {
            "key_expiry" => redis.execute(0, &["SET", &key, "", "PXAT", &ms]),
            "sorted_set" => redis.execute(0, &["ZADD", "delay_queue_job", &ms, &key]),
            _ => {
                let list = format!("task_{}", due.0 / 1_000 % 3_600);
                let element = r#"{"method":"run","params":["bare"],"cycle_num":0}"#;
                redis.execute(0, &["RPUSH", &list, element])
            }
        };
        ground.until_done(1).await;
        let late = ground.lateness();
        assert!(late[0] <= 5, "{timer}: {late:?}");
        daemon.stop().await;
    }
}

#[tokio::test(start_paused = true)]
async fn two_daemons_on_one_redis_know_each_other_and_run_each_task_once() {
    for timer in TIMERS {
        let ground = Ground::new();
        let daemons = [ground.daemon("one", timer), ground.daemon("two", timer)];
        for daemon in &daemons {
            until("two members are known", async || {
                daemon.status.members() == 2
            })
            .await;
        }
        for n in 0..20_u32 {
            let tasks = &daemons[n as usize % 2].tasks;
            tasks.create(key(n), seconds(2)).await.unwrap();
        }
        ground.until_done(20).await;
        let late = ground.lateness();
        assert!(late.iter().all(|late| *late <= 5), "{timer}: {late:?}");
        for daemon in daemons {
            daemon.stop().await;
        }
    }
}

#[tokio::test(start_paused = true)]
async fn tasks_run_after_redis_has_lost_everything_and_its_connections() {
    for timer in TIMERS {
        let ground = Ground::new();
        let daemon = ground.daemon("one", timer);
        for n in 0..10_u32 {
            daemon.tasks.create(key(n), seconds(30)).await.unwrap();
        }
        ground.redis.restart(Keep::Nothing);
        daemon.link.refuse(true);
        tokio::time::sleep(seconds(5)).await;
        daemon.link.heal();
        ground.until_done(10).await;
        let late = ground.lateness();
        assert!(late.iter().all(|late| *late <= 5), "{timer}: {late:?}");
        daemon.stop().await;
    }
}

/// The signal of a task that waits for a slot has its former due time when the entry is taken.
#[tokio::test(start_paused = true)]
async fn a_task_that_a_program_moves_while_it_waits_for_a_slot_is_tried_again() {
    let ground = Ground::new();
    let daemon = ground.daemon_with("one", "sorted_set", "engine.concurrency = 1");
    until("the daemon is ready", async || daemon.status.members() == 1).await;
    let now = ground.now();
    let hold = TaskKey::parse("Job@hold").unwrap();
    daemon.tasks.create(hold, seconds(0)).await.unwrap();
    until("the slot is taken", async || daemon.status.running() == 1).await;
    let flaky = TaskKey::parse("Job@flaky").unwrap();
    daemon
        .tasks
        .create(flaky.clone(), seconds(1))
        .await
        .unwrap();
    tokio::time::sleep(seconds(2)).await;
    let moved = UnixMs(now.0 + 4_321);
    let score = moved.0.to_string();
    let words = ["ZADD", "delay_queue_job", &score, flaky.as_str()];
    ground.redis.execute(0, &words);
    until("the task is moved", async || {
        ground.ledger.find(&flaky).await.unwrap().unwrap().due == moved
    })
    .await;
    ground.until_done(2).await;
    daemon.stop().await;
}

//! An engine that runs on the memory ledger, and handlers for it.

use std::fmt::Display;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;

use lapsed::client::Receipt;
use lapsed::engine::{EngineError, Handle, Metrics, Parts};
use lapsed::handler::Router;
use lapsed::ledger::memory::MemoryLedger;
use lapsed::ledger::{Admin, Ledger, NewTask, Producer, TaskRecord};
use lapsed::limiter::MemoryLimiter;
use lapsed::membership::MemoryMembership;
use lapsed::task::{Arming, State, TaskKey, UnixMs};
use lapsed::timer::Timer;
use lapsed::timer::ledger_poll::LedgerPoll;
use lapsed::{Config, Engine, HandlerError, Handlers, TaskClient, TaskContext};
use tokio::sync::{Notify, mpsc, oneshot};
use tokio::task::JoinHandle;

use crate::engine::faults::Faults;
use crate::engine::faulty::Faulty;
use crate::support::metrics;
use crate::support::wait::until_within;

/// When the ledger's clock starts.
pub const START: UnixMs = UnixMs(1_800_000_000_000);

/// A running engine, and access to its parts.
pub struct Rig {
    pub ledger: Arc<MemoryLedger>,
    pub parts: Parts,
    pub status: Handle,
    pub tasks: TaskClient,
    pub stop: Option<oneshot::Sender<()>>,
    pub running: JoinHandle<Result<(), EngineError>>,
}

/// The parts of an engine, all in memory.
pub fn parts(
    ledger: Arc<dyn Ledger>,
    timer: Arc<dyn Timer>,
    handlers: Handlers,
    config: &Config,
) -> Parts {
    Parts {
        ledger,
        timer,
        membership: Arc::new(MemoryMembership::default()),
        limiter: Arc::new(MemoryLimiter::default()),
        router: Arc::new(Router::new(handlers, config)),
        metrics: Arc::new(Metrics::default()),
        tracer: None,
    }
}

/// An engine on an empty ledger.
pub fn start(config: &str, handlers: Handlers) -> Rig {
    start_on(Arc::new(MemoryLedger::new(START)), config, handlers)
}

/// An engine on this ledger.
pub fn start_on(ledger: Arc<MemoryLedger>, config: &str, handlers: Handlers) -> Rig {
    start_with(ledger, Arc::default(), config, handlers)
}

/// An engine on this ledger, with faults between them.
pub fn start_with(
    ledger: Arc<MemoryLedger>,
    faults: Arc<Faults>,
    config: &str,
    handlers: Handlers,
) -> Rig {
    let faulty = Arc::new(Faulty::new(ledger, faults));
    let timer = Arc::new(LedgerPoll::new(faulty.clock().clone()));
    start_on_timer(faulty, timer, config, handlers)
}

/// An engine on this ledger and this timer.
pub fn start_on_timer(
    faulty: Arc<Faulty>,
    timer: Arc<dyn Timer>,
    config: &str,
    handlers: Handlers,
) -> Rig {
    let config = Config::from_toml(config).unwrap();
    let ledger = Arc::clone(&faulty.inner);
    let parts = parts(faulty, Arc::clone(&timer), handlers, &config);
    let (stop, stopped) = oneshot::channel();
    let engine = Engine::with_parts(parts.clone(), &config);
    let status = engine.handle();
    let running = tokio::spawn(engine.run_until(async move {
        let _ = stopped.await;
    }));
    let tasks = TaskClient::with_parts(Arc::clone(&ledger) as _, timer);
    Rig {
        ledger,
        parts,
        status,
        tasks,
        stop: Some(stop),
        running,
    }
}

impl Rig {
    /// Stops gracefully. Returns the ledger.
    pub async fn stop(mut self) -> Arc<MemoryLedger> {
        let _ = self.stop.take().unwrap().send(());
        self.running.await.unwrap().unwrap();
        self.ledger
    }

    pub async fn record(&self, key: &str) -> TaskRecord {
        record(&self.ledger, key).await
    }

    /// Creates this task, due at once.
    pub async fn due_now(&self, key: &str) -> Receipt {
        let key = TaskKey::parse(key).unwrap();
        let made = self.tasks.create(key, Duration::ZERO);
        made.await.unwrap()
    }

    /// Waits (in paused time, without waiting) until the task is in this state.
    pub async fn until(&self, key: &str, state: State) -> TaskRecord {
        let wait = async {
            let mut pause = Duration::from_millis(1);
            loop {
                let record = self.record(key).await;
                if record.state == state {
                    return record;
                }
                tokio::time::sleep(pause).await;
                pause = pause.mul_f64(1.1).min(Duration::from_secs(60));
            }
        };
        match tokio::time::timeout(Duration::from_secs(7 * 24 * 3600), wait).await {
            Ok(record) => record,
            Err(_) => panic!("`{key}` never became {state}: {:?}", self.record(key).await),
        }
    }

    /// Waits until `count` tasks are done.
    pub async fn until_done(&self, count: u64) {
        until(format!("{count} tasks are done"), async || {
            self.ledger.stats().await.unwrap().done >= count
        })
        .await;
    }

    /// Waits until the metrics have this line. A settlement is counted a moment after it is written.
    pub async fn until_metric(&self, line: &str) {
        let counted = async || self.metric(line);
        until(format!("`{line}` is counted"), counted).await;
    }

    /// True if the metrics have this line. Panics if no metric may have it.
    #[track_caller]
    pub fn metric(&self, line: &str) -> bool {
        let (name, _) = line.rsplit_once(' ').expect("a name and a value");
        metrics::assert_exists(name);
        self.parts
            .metrics
            .render()
            .lines()
            .any(|found| found == line)
    }
}

/// Waits at most an hour of paused time until `holds` returns true.
pub async fn until(what: impl Display, holds: impl AsyncFn() -> bool) {
    until_within(seconds(3_600), what, holds).await;
}

/// The ledger's record of this task.
pub async fn record(ledger: &MemoryLedger, key: &str) -> TaskRecord {
    let found = ledger.find(&TaskKey::parse(key).unwrap()).await;
    found.unwrap().expect("it has a row")
}

/// A handler that counts its runs.
pub fn counting(count: &Arc<AtomicU32>) -> Handlers {
    let mut handlers = Handlers::new();
    let count = Arc::clone(count);
    handlers.on(("Job", "count"), move |_: Vec<String>| {
        let count = Arc::clone(&count);
        async move {
            count.fetch_add(1, Ordering::SeqCst);
            Ok(())
        }
    });
    handlers
}

/// A handler that returns what `act` returns for the attempt.
pub fn failing(act: impl Fn(u16) -> Result<(), HandlerError> + Send + Sync + 'static) -> Handlers {
    let mut handlers = Handlers::new();
    handlers.on(("Job", "fail"), move |ctx: TaskContext| {
        let result = act(ctx.attempt());
        async move { result }
    });
    handlers
}

/// A handler that runs until `go` is notified.
pub fn held(started: mpsc::UnboundedSender<String>, go: &Arc<Notify>) -> Handlers {
    let mut handlers = Handlers::new();
    let go = Arc::clone(go);
    handlers.on(("Job", "held"), move |ctx: TaskContext| {
        started.send(ctx.id()).unwrap();
        let go = Arc::clone(&go);
        async move {
            go.notified().await;
            Ok(())
        }
    });
    handlers
}

/// Creates `count` overdue tasks of `Job@count`.
pub async fn overdue(ledger: &MemoryLedger, count: i64) -> Vec<Arming> {
    let task = |n: i64| {
        NewTask::new(
            TaskKey::build("Job", "count", [n.to_string()]).unwrap(),
            UnixMs(START.0 - 1_000 - n),
        )
    };
    let tasks: Vec<NewTask> = (0..count).map(task).collect();
    let created = ledger.create(&tasks).await.unwrap();
    created.iter().map(|created| created.arming).collect()
}

pub fn seconds(count: u64) -> Duration {
    Duration::from_secs(count)
}

//! The engine's rules on the memory ledger: no server, and time moves only when nothing else can.

#[path = "engine/endings.rs"]
mod endings;

use std::collections::VecDeque;
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use async_trait::async_trait;
use lapsed::clock::LedgerClock;
use lapsed::engine::{EngineError, Parts};
use lapsed::fleet::memory::MemoryRoster;
use lapsed::handler::Router;
use lapsed::ledger::memory::MemoryLedger;
use lapsed::ledger::recurring::SeriesRow;
use lapsed::ledger::{
    Adopted, Arming, CancelAnswer, CancelCursor, CancelFilter, CancelPage, Catalog, Claim,
    Claimant, Created, DuePage, DueScan, Foundling, Known, Lease, Ledger, LedgerError, NewTask,
    PauseAnswer, Pauses, ReleaseAnswer, Renewal, RescheduleAnswer, Settled, Settlement, Standing,
    TaskRecord,
};
use lapsed::limiter::MemoryLimiter;
use lapsed::task::{Countdown, Overlap, Pause, Paused, Scope, State, TaskKey, UnixMs};
use lapsed::telemetry::Metrics;
use lapsed::timer::ledger_poll::LedgerPoll;
use lapsed::timer::{
    Alarm, ArmMode, Armed, Remaining, Seen, Sighting, Signal, SignalSink, Source, Timer, TimerError,
};
use lapsed::{
    Config, Engine, HandlerError, HandlerRegistry, Recurrence, Task, TaskClient, TaskContext,
};
use tokio::sync::{Notify, mpsc, oneshot};
use tokio::task::JoinHandle;
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;

const START: UnixMs = UnixMs(1_800_000_000_000);

/// An engine that runs, and what it takes to look at it.
struct Rig {
    ledger: Arc<MemoryLedger>,
    parts: Parts,
    tasks: TaskClient,
    stop: Option<oneshot::Sender<()>>,
    running: JoinHandle<Result<(), EngineError>>,
}

fn start(config: &str, handlers: HandlerRegistry) -> Rig {
    start_on(Arc::new(MemoryLedger::new(START)), config, handlers)
}

fn start_on(ledger: Arc<MemoryLedger>, config: &str, handlers: HandlerRegistry) -> Rig {
    start_with(ledger, Arc::default(), config, handlers)
}

fn start_with(
    ledger: Arc<MemoryLedger>,
    faults: Arc<Faults>,
    config: &str,
    handlers: HandlerRegistry,
) -> Rig {
    let config = Config::from_toml(config).unwrap();
    let ahead = *faults.clock_ahead.lock().unwrap();
    let clock = LedgerClock::starting_at(ledger.clock().now().plus(ahead));
    let timer: Arc<dyn Timer> = Arc::new(LedgerPoll::new(clock.clone()));
    let inner = Arc::clone(&ledger);
    let parts = Parts {
        ledger: Arc::new(Faulty {
            inner,
            faults,
            clock,
        }),
        catalog: Some(Arc::clone(&ledger) as _),
        timer: Arc::clone(&timer),
        roster: Arc::new(MemoryRoster::default()),
        limiter: Arc::new(MemoryLimiter::default()),
        router: Arc::new(Router::new(handlers, &config)),
        metrics: Arc::new(Metrics::default()),
    };
    let (stop, stopped) = oneshot::channel();
    let engine = Engine::with_parts(parts.clone(), &config);
    let running = tokio::spawn(engine.run_until(async move {
        let _ = stopped.await;
    }));
    let tasks = TaskClient::with_parts(Arc::clone(&ledger) as _, timer);
    Rig {
        ledger,
        parts,
        tasks,
        stop: Some(stop),
        running,
    }
}

/// What goes wrong between the engine and the ledger; nothing at first.
#[derive(Debug, Default)]
struct Faults {
    /// Asking where keys stand fails.
    look_up_fails: AtomicBool,
    /// Writing rows on behalf of keys does.
    adopt_fails: AtomicBool,
    /// The answer to a claim takes so long; the claim itself does not.
    claim_answer_takes: Mutex<Duration>,
    /// Somebody has locked this row: no claim gets it.
    locked_row: Mutex<Option<u64>>,
    /// Errors that the next settlements meet before anything is written.
    settle_errors: Mutex<VecDeque<LedgerError>>,
    /// So many settlements find their rows locked.
    settle_locked: AtomicU32,
    /// How far ahead of the ledger's clock the engine believes it to be.
    clock_ahead: Mutex<Duration>,
    /// Scans so far.
    scans: AtomicU32,
    /// Asking what is paused fails.
    pauses_fail: AtomicBool,
}

#[derive(Debug)]
struct Faulty {
    inner: Arc<MemoryLedger>,
    faults: Arc<Faults>,
    clock: LedgerClock,
}

fn unavailable() -> LedgerError {
    LedgerError::Unavailable {
        message: "gone".into(),
        source: None,
    }
}

fn refused() -> LedgerError {
    LedgerError::Refused {
        message: "no".into(),
        source: None,
    }
}

#[async_trait]
impl Ledger for Faulty {
    fn clock(&self) -> &LedgerClock {
        &self.clock
    }

    async fn sync_clock(&self) -> Result<UnixMs, LedgerError> {
        self.inner.sync_clock().await
    }

    async fn check(&self) -> Result<(), LedgerError> {
        self.inner.check().await
    }

    fn pauses(&self) -> &dyn Pauses {
        self
    }

    async fn create(&self, tasks: &[NewTask]) -> Result<Vec<Created>, LedgerError> {
        self.inner.create(tasks).await
    }

    async fn series(&self, key: &TaskKey) -> Result<Option<SeriesRow>, LedgerError> {
        self.inner.series(key).await
    }

    async fn recur(
        &self,
        task: &NewTask,
        over: Option<&SeriesRow>,
    ) -> Result<Option<Arming>, LedgerError> {
        self.inner.recur(task, over).await
    }

    async fn note_standing(&self, seen: &SeriesRow) -> Result<bool, LedgerError> {
        self.inner.note_standing(seen).await
    }

    async fn reschedule(
        &self,
        key: &TaskKey,
        due: UnixMs,
    ) -> Result<RescheduleAnswer, LedgerError> {
        self.inner.reschedule(key, due).await
    }

    async fn cancel(&self, keys: &[TaskKey]) -> Result<Vec<CancelAnswer>, LedgerError> {
        self.inner.cancel(keys).await
    }

    async fn cancel_page(
        &self,
        filter: &CancelFilter,
        before: Option<CancelCursor>,
        dry_run: bool,
    ) -> Result<CancelPage, LedgerError> {
        self.inner.cancel_page(filter, before, dry_run).await
    }

    async fn look_up(&self, keys: &[TaskKey]) -> Result<Vec<Option<Standing>>, LedgerError> {
        if self.faults.look_up_fails.load(Ordering::SeqCst) {
            return Err(unavailable());
        }
        self.inner.look_up(keys).await
    }

    async fn scan(&self, scan: DueScan) -> Result<DuePage, LedgerError> {
        self.faults.scans.fetch_add(1, Ordering::SeqCst);
        self.inner.scan(scan).await
    }

    async fn scan_news(&self, scan: DueScan, known: Known<'_>) -> Result<DuePage, LedgerError> {
        self.faults.scans.fetch_add(1, Ordering::SeqCst);
        self.inner.scan_news(scan, known).await
    }

    async fn claim(&self, armings: &[Arming], by: &Claimant) -> Result<Vec<Claim>, LedgerError> {
        let locked = *self.faults.locked_row.lock().unwrap();
        let free = armings.iter().filter(|arming| Some(arming.row) != locked);
        let free: Vec<Arming> = free.copied().collect();
        let claims = self.inner.claim(&free, by).await;
        let takes = *self.faults.claim_answer_takes.lock().unwrap();
        tokio::time::sleep(takes).await;
        claims
    }

    async fn renew(&self, leases: &[Lease], length: Duration) -> Result<Vec<Renewal>, LedgerError> {
        self.inner.renew(leases, length).await
    }

    async fn settle(&self, settlements: &[Settlement]) -> Result<Vec<Settled>, LedgerError> {
        let error = self.faults.settle_errors.lock().unwrap().pop_front();
        let locked = &self.faults.settle_locked;
        let is_locked =
            locked.fetch_update(Ordering::SeqCst, Ordering::SeqCst, |n| n.checked_sub(1));
        match error {
            Some(error) => Err(error),
            None if is_locked.is_ok() => Ok(vec![Settled::Locked; settlements.len()]),
            None => self.inner.settle(settlements).await,
        }
    }

    async fn adopt(&self, keys: &[Foundling]) -> Result<Vec<Adopted>, LedgerError> {
        match self.faults.adopt_fails.load(Ordering::SeqCst) {
            true => Err(unavailable()),
            false => self.inner.adopt(keys).await,
        }
    }

    async fn withdraw(&self, arming: Arming) -> Result<bool, LedgerError> {
        self.inner.withdraw(arming).await
    }

    async fn revive(&self, arming: Arming) -> Result<bool, LedgerError> {
        self.inner.revive(arming).await
    }
}

#[async_trait]
impl Pauses for Faulty {
    async fn all(&self) -> Result<Vec<Pause>, LedgerError> {
        match self.faults.pauses_fail.load(Ordering::SeqCst) {
            true => Err(refused()),
            false => self.inner.all().await,
        }
    }

    async fn set(&self, scope: &Scope, by: &str, reason: &str) -> Result<PauseAnswer, LedgerError> {
        self.inner.set(scope, by, reason).await
    }

    async fn lift(&self, scope: &Scope) -> Result<Option<Pause>, LedgerError> {
        self.inner.lift(scope).await
    }

    async fn hold(&self, by: &str, reason: &str) -> Result<PauseAnswer, LedgerError> {
        self.inner.hold(by, reason).await
    }

    async fn release(&self, scope: &Scope, by: &str) -> Result<ReleaseAnswer, LedgerError> {
        self.inner.release(scope, by).await
    }

    async fn count_overdue(&self, before: UnixMs, limit: u32) -> Result<u64, LedgerError> {
        self.inner.count_overdue(before, limit).await
    }

    async fn scan_unpaused(&self, scan: DueScan, paused: &Paused) -> Result<DuePage, LedgerError> {
        self.faults.scans.fetch_add(1, Ordering::SeqCst);
        self.inner.scan_unpaused(scan, paused).await
    }
}

impl Rig {
    async fn stop(mut self) -> Arc<MemoryLedger> {
        let _ = self.stop.take().unwrap().send(());
        self.running.await.unwrap().unwrap();
        self.ledger
    }

    async fn record(&self, key: &str) -> TaskRecord {
        self.ledger
            .find(&TaskKey::parse(key).unwrap())
            .await
            .unwrap()
            .unwrap()
    }

    /// Waits (in paused time, without waiting) until the task is in this state.
    async fn until(&self, key: &str, state: State) -> TaskRecord {
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

    fn metric(&self, line: &str) -> bool {
        self.parts
            .metrics
            .render()
            .lines()
            .any(|found| found == line)
    }
}

/// Handlers that count, and say when they ran.
fn counting(count: &Arc<AtomicU32>) -> HandlerRegistry {
    let mut handlers = HandlerRegistry::new();
    let count = Arc::clone(count);
    handlers.on("Job", "count", move |_: TaskContext, _: Vec<String>| {
        let count = Arc::clone(&count);
        async move {
            count.fetch_add(1, Ordering::SeqCst);
            Ok(())
        }
    });
    handlers
}

/// A handler that does what the closure says, given the attempt.
fn failing(
    act: impl Fn(u16) -> Result<(), HandlerError> + Send + Sync + 'static,
) -> HandlerRegistry {
    let mut handlers = HandlerRegistry::new();
    handlers.on("Job", "fail", move |ctx: TaskContext, ()| {
        let result = act(ctx.attempt());
        async move { result }
    });
    handlers
}

#[tokio::test(start_paused = true)]
async fn a_task_runs_once_at_its_due_millisecond() {
    let (seen, mut ran) = mpsc::unbounded_channel();
    let mut handlers = HandlerRegistry::new();
    handlers.on(
        "Order",
        "close",
        move |ctx: TaskContext, (id, why): (u64, String)| {
            let seen = seen.clone();
            async move {
                seen.send((ctx.id(), id, why, ctx.lateness_ms())).unwrap();
                Ok(())
            }
        },
    );
    let rig = start("", handlers);
    let made = rig
        .tasks
        .create(
            "Order",
            "close",
            ["42", "unpaid"],
            Duration::from_millis(5_000),
        )
        .await
        .unwrap();
    let (id, order, why, lateness_ms) = ran.recv().await.unwrap();
    assert_eq!((id, order, why.as_str()), (made.id(), 42, "unpaid"));
    assert!(lateness_ms <= 1, "{lateness_ms}");
    rig.until("Order@close@42@unpaid", State::Done).await;
    rig.stop().await;
    assert!(ran.recv().await.is_none(), "once");
}

#[tokio::test(start_paused = true)]
async fn what_fell_due_while_no_daemon_ran_runs_at_start() {
    let ledger = Arc::new(MemoryLedger::new(START));
    let tasks: Vec<NewTask> = (0..5_000)
        .map(|n| {
            NewTask::new(
                TaskKey::build("Job", "count", [n.to_string()]).unwrap(),
                UnixMs(START.0 - n),
            )
        })
        .collect();
    ledger.create(&tasks).await.unwrap();
    let count = Arc::default();
    let rig = start_on(ledger, "", counting(&count));
    while rig.ledger.stats().await.unwrap().done < 5_000 {
        tokio::time::sleep(Duration::from_millis(1)).await;
    }
    assert!(rig.ledger.clock().now().since(START) < Duration::from_secs(10));
    rig.stop().await;
    assert_eq!(count.load(Ordering::SeqCst), 5_000);
}

#[tokio::test(start_paused = true)]
async fn a_failure_climbs_the_ladder_until_it_succeeds() {
    let rig = start(
        "",
        failing(|attempt| {
            if attempt < 4 {
                Err(HandlerError::new("not yet"))
            } else {
                Ok(())
            }
        }),
    );
    rig.tasks
        .create("Job", "fail", [""; 0], Duration::ZERO)
        .await
        .unwrap();
    let record = rig.until("Job@fail", State::Done).await;
    assert_eq!((record.attempt, record.last_error), (4, None));
    let waited = record.finished.unwrap().since(START).as_secs_f64();
    assert!(
        (54.0..=67.0).contains(&waited),
        "15 + 15 + 30 s, each +-10 %: {waited}"
    );
    rig.stop().await;
}

#[tokio::test(start_paused = true)]
async fn after_the_ladder_the_task_is_dead_and_says_why() {
    let rig = start("", failing(|_| Err(HandlerError::new("never"))));
    rig.tasks
        .create("Job", "fail", [""; 0], Duration::ZERO)
        .await
        .unwrap();
    let record = rig.until("Job@fail", State::Dead).await;
    assert_eq!(
        (record.attempt, record.last_error.as_deref()),
        (16, Some("gave up after 16 of 16 attempts: never"))
    );
    assert!(rig.metric("lapsed_dead_total{route=\"Job@fail\",reason=\"exhausted\"} 1"));
    assert!(rig.metric("lapsed_runs_total{route=\"Job@fail\",outcome=\"failed\"} 16"));
    rig.stop().await;
}

#[tokio::test(start_paused = true)]
async fn a_permanent_error_and_arguments_that_do_not_parse_are_not_tried_again() {
    let mut handlers = failing(|_| Err(HandlerError::permanent("no such order")));
    handlers.on("Job", "typed", |_, (_,): (u64,)| async { Ok(()) });
    let rig = start("", handlers);
    rig.tasks
        .create("Job", "fail", [""; 0], Duration::ZERO)
        .await
        .unwrap();
    rig.tasks
        .create("Job", "typed", ["x"], Duration::ZERO)
        .await
        .unwrap();
    let record = rig.until("Job@fail", State::Dead).await;
    assert_eq!(
        (record.attempt, record.last_error.as_deref()),
        (1, Some("permanent failure: no such order"))
    );
    let record = rig.until("Job@typed@x", State::Dead).await;
    assert!(
        record
            .last_error
            .unwrap()
            .contains("argument 1: expected `u64`, found `x`")
    );
    rig.stop().await;
}

#[tokio::test(start_paused = true)]
async fn a_panic_is_an_outcome_and_the_daemon_lives() {
    let rig = start(
        "",
        failing(|attempt| if attempt == 1 { panic!("boom") } else { Ok(()) }),
    );
    rig.tasks
        .create("Job", "fail", [""; 0], Duration::ZERO)
        .await
        .unwrap();
    let record = rig.until("Job@fail", State::Waiting).await;
    assert_eq!(record.last_error.as_deref(), Some("panicked: boom"));
    assert_eq!(rig.until("Job@fail", State::Done).await.attempt, 2);
    rig.stop().await;
}

#[tokio::test(start_paused = true)]
async fn a_run_that_hangs_is_ended_at_its_timeout_and_renewed_until_then() {
    let mut handlers = HandlerRegistry::new();
    handlers.on("Job", "hang", |ctx: TaskContext, ()| async move {
        if ctx.attempt() == 1 {
            std::future::pending::<()>().await;
        }
        Ok(())
    });
    let rig = start("engine.timeout = '90s'\nengine.lease = '10s'", handlers);
    rig.tasks
        .create("Job", "hang", [""; 0], Duration::ZERO)
        .await
        .unwrap();
    let record = rig.until("Job@hang", State::Waiting).await;
    assert_eq!(
        (record.attempt, record.crashes, record.last_error.as_deref()),
        (1, 0, Some("timed out after 90 s"))
    );
    assert!(rig.ledger.clock().now().since(START) >= Duration::from_secs(90));
    assert_eq!(rig.until("Job@hang", State::Done).await.attempt, 2);
    rig.stop().await;
}

#[tokio::test(start_paused = true)]
async fn a_task_that_kills_its_daemons_is_buried_without_running() {
    let ledger = Arc::new(MemoryLedger::new(START));
    let key = TaskKey::parse("Job@count").unwrap();
    let arming = ledger.create(&[NewTask::new(key, START)]).await.unwrap()[0].arming;
    let dying = Claimant {
        daemon: "dies".into(),
        lease: Duration::from_secs(1),
    };
    for _ in 0..3 {
        assert_eq!(ledger.claim(&[arming], &dying).await.unwrap().len(), 1);
        tokio::time::advance(Duration::from_secs(2)).await;
    }
    let count = Arc::default();
    let rig = start_on(ledger, "", counting(&count));
    let record = rig.until("Job@count", State::Dead).await;
    assert_eq!(
        record.last_error.as_deref(),
        Some("poison: 3 leases ran out while it was running")
    );
    assert_eq!(count.load(Ordering::SeqCst), 0);
    rig.stop().await;
}

#[tokio::test(start_paused = true)]
async fn what_nothing_here_can_run_stays_pending_until_a_route_appears() {
    let count = Arc::default();
    let rig = start("", counting(&count));
    rig.tasks
        .create("Other", "job", ["1"], Duration::ZERO)
        .await
        .unwrap();
    rig.tasks
        .create("Job", "count", ["1"], Duration::from_secs(5))
        .await
        .unwrap();
    rig.until("Job@count@1", State::Done).await;
    let record = rig.record("Other@job@1").await;
    assert_eq!(
        (record.state, record.attempt, record.daemon.as_str()),
        (State::Pending, 0, "")
    );
    rig.parts
        .router
        .reload(&Config::from_toml("[[routes]]\nmatch = '^Other@'\nlog = {}").unwrap());
    rig.until("Other@job@1", State::Done).await;
    rig.stop().await;
}

#[tokio::test(start_paused = true)]
async fn two_daemons_on_one_ledger_run_each_task_once() {
    let ledger = Arc::new(MemoryLedger::new(START));
    let count = Arc::default();
    let one = start_on(
        Arc::clone(&ledger),
        "engine.concurrency = 8",
        counting(&count),
    );
    let two = start_on(
        Arc::clone(&ledger),
        "engine.concurrency = 8",
        counting(&count),
    );
    for n in 0..500u64 {
        one.tasks
            .create("Job", "count", [n], Duration::from_millis(n * 7))
            .await
            .unwrap();
    }
    while ledger.stats().await.unwrap().done < 500 {
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
    one.stop().await;
    two.stop().await;
    assert_eq!(count.load(Ordering::SeqCst), 500);
}

#[tokio::test(start_paused = true)]
async fn no_more_runs_go_on_than_there_are_slots() {
    let (now, most) = (Arc::new(AtomicU32::new(0)), Arc::new(AtomicU32::new(0)));
    let mut handlers = HandlerRegistry::new();
    let (at, peak) = (Arc::clone(&now), Arc::clone(&most));
    handlers.on("Job", "slow", move |_, (_,): (u64,)| {
        let (at, peak) = (Arc::clone(&at), Arc::clone(&peak));
        async move {
            peak.fetch_max(at.fetch_add(1, Ordering::SeqCst) + 1, Ordering::SeqCst);
            tokio::time::sleep(Duration::from_millis(100)).await;
            at.fetch_sub(1, Ordering::SeqCst);
            Ok(())
        }
    });
    let rig = start("engine.concurrency = 4", handlers);
    for n in 0..40u64 {
        rig.tasks
            .create("Job", "slow", [n], Duration::from_secs(3))
            .await
            .unwrap();
    }
    while rig.ledger.stats().await.unwrap().done < 40 {
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
    assert_eq!(most.load(Ordering::SeqCst), 4);
    rig.stop().await;
}

/// A handler that runs until it is let go.
fn held(started: mpsc::UnboundedSender<String>, go: &Arc<Notify>) -> HandlerRegistry {
    let mut handlers = HandlerRegistry::new();
    let go = Arc::clone(go);
    handlers.on("Job", "held", move |ctx: TaskContext, ()| {
        started.send(ctx.id()).unwrap();
        let go = Arc::clone(&go);
        async move {
            go.notified().await;
            Ok(())
        }
    });
    handlers
}

#[tokio::test(start_paused = true)]
async fn a_graceful_stop_waits_for_what_runs() {
    let (started, mut runs) = mpsc::unbounded_channel();
    let go = Arc::new(Notify::new());
    let rig = start("", held(started, &go));
    rig.tasks
        .create("Job", "held", [""; 0], Duration::ZERO)
        .await
        .unwrap();
    runs.recv().await.unwrap();
    let letting_go = Arc::clone(&go);
    tokio::spawn(async move {
        tokio::time::sleep(Duration::from_secs(20)).await;
        letting_go.notify_one();
    });
    let ledger = rig.stop().await;
    let record = ledger
        .find(&TaskKey::parse("Job@held").unwrap())
        .await
        .unwrap()
        .unwrap();
    assert_eq!(record.state, State::Done);
}

#[tokio::test(start_paused = true)]
async fn what_outlives_the_drain_is_released_without_counting() {
    let (started, mut runs) = mpsc::unbounded_channel();
    let rig = start(
        "engine.drain_timeout = '3s'",
        held(started, &Arc::default()),
    );
    rig.tasks
        .create("Job", "held", [""; 0], Duration::ZERO)
        .await
        .unwrap();
    runs.recv().await.unwrap();
    let ledger = rig.stop().await;
    let record = ledger
        .find(&TaskKey::parse("Job@held").unwrap())
        .await
        .unwrap()
        .unwrap();
    assert_eq!(
        (record.state, record.attempt, record.crashes),
        (State::Pending, 0, 0)
    );
}

#[tokio::test(start_paused = true)]
async fn an_occurrence_that_a_stop_interrupted_is_run_again_however_late() {
    let (started, mut runs) = mpsc::unbounded_channel();
    let rig = start(
        "engine.drain_timeout = '3s'",
        held(started, &Arc::default()),
    );
    let hourly = Recurrence::every(Duration::from_secs(3_600)).unwrap();
    let task = Task::new("Job", "held", [""; 0]).unwrap();
    rig.tasks.create_recurring(task, hourly).await.unwrap();
    let interrupted = runs.recv().await.unwrap();
    let ledger = rig.stop().await;
    tokio::time::sleep(Duration::from_secs(600)).await;
    let (started, mut runs) = mpsc::unbounded_channel();
    let rig = start_on(
        ledger,
        "engine.drain_timeout = '3s'",
        held(started, &Arc::default()),
    );
    assert_eq!(runs.recv().await.unwrap(), interrupted);
    rig.stop().await;
}

#[tokio::test(start_paused = true)]
async fn a_key_created_anew_during_its_run_runs_again_and_the_first_result_is_discarded() {
    let (started, mut runs) = mpsc::unbounded_channel();
    let go = Arc::new(Notify::new());
    let rig = start("", held(started, &go));
    let first = rig
        .tasks
        .create("Job", "held", [""; 0], Duration::ZERO)
        .await
        .unwrap();
    assert_eq!(runs.recv().await.unwrap(), first.id());
    let second = rig
        .tasks
        .create("Job", "held", [""; 0], Duration::from_millis(10))
        .await
        .unwrap();
    assert!(second.older_run());
    tokio::time::sleep(Duration::from_secs(5)).await;
    assert!(runs.try_recv().is_err(), "leases of one row never overlap");
    go.notify_one();
    assert_eq!(runs.recv().await.unwrap(), second.id());
    go.notify_one();
    let record = rig.until("Job@held", State::Done).await;
    assert_eq!(record.id, second.id());
    assert!(rig.metric("lapsed_fenced_total 1"));
    rig.stop().await;
}

#[tokio::test(start_paused = true)]
async fn a_cancelled_task_does_not_start() {
    let count = Arc::default();
    let rig = start("", counting(&count));
    rig.tasks
        .create("Job", "count", ["1"], Duration::from_secs(3))
        .await
        .unwrap();
    tokio::time::sleep(Duration::from_millis(2_999)).await;
    rig.tasks.cancel("Job", "count", ["1"]).await.unwrap();
    tokio::time::sleep(Duration::from_secs(30)).await;
    assert_eq!(rig.record("Job@count@1").await.state, State::Cancelled);
    rig.stop().await;
    assert_eq!(count.load(Ordering::SeqCst), 0);
}

#[tokio::test(start_paused = true)]
async fn the_parts_of_a_task_reach_its_handler() {
    let (seen, mut ran) = mpsc::unbounded_channel();
    let mut handlers = HandlerRegistry::new();
    handlers.on("Job", "json", move |ctx: TaskContext, _: Vec<String>| {
        let seen = seen.clone();
        async move {
            let amount: serde_json::Value = ctx.payload()?;
            seen.send((ctx.to_json(), amount)).unwrap();
            Ok(())
        }
    });
    let rig = start("", handlers);
    let key = TaskKey::parse("Job@json@a@b").unwrap();
    let due = lapsed::task::Due::at(UnixMs(START.0 + 250)).unwrap();
    let task = Task::from(key).payload("{\"amount\":3}").tag("vip");
    let made = rig.tasks.create_task(task, due).await.unwrap();
    let (json, amount) = ran.recv().await.unwrap();
    assert_eq!(amount["amount"], 3);
    assert_eq!(json["id"], made.id());
    assert_eq!(
        (json["class"].as_str(), json["method"].as_str()),
        (Some("Job"), Some("json"))
    );
    assert_eq!(json["args"], serde_json::json!(["a", "b"]));
    assert_eq!(
        (json["due"].as_str(), json["tag"].as_str()),
        (Some("2027-01-15T08:00:00.250Z"), Some("vip"))
    );
    assert_eq!(
        (json["attempt"].as_u64(), json["payload"]["amount"].as_u64()),
        (Some(1), Some(3))
    );
    rig.stop().await;
}

/// As many tasks of `Job@count` as asked for, all overdue.
async fn overdue(ledger: &MemoryLedger, count: i64) -> Vec<Arming> {
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

#[tokio::test(start_paused = true)]
async fn a_claim_that_was_won_is_run_though_the_others_cannot_be_looked_up() {
    let ledger = Arc::new(MemoryLedger::new(START));
    let armings = overdue(&ledger, 2).await;
    let faults = Arc::new(Faults::default());
    *faults.locked_row.lock().unwrap() = Some(armings[1].row);
    faults.look_up_fails.store(true, Ordering::SeqCst);
    let rig = start_with(ledger, faults, "", counting(&Arc::default()));
    let record = rig.until("Job@count@0", State::Done).await;
    assert_eq!((record.attempt, record.crashes), (1, 0));
    rig.stop().await;
}

#[tokio::test(start_paused = true)]
async fn a_row_that_cannot_be_claimed_is_not_swept_without_a_pause() {
    let ledger = Arc::new(MemoryLedger::new(START));
    let armings = overdue(&ledger, 1).await;
    let faults = Arc::new(Faults::default());
    *faults.locked_row.lock().unwrap() = Some(armings[0].row);
    let count = Arc::default();
    let rig = start_with(ledger, Arc::clone(&faults), "", counting(&count));
    tokio::time::sleep(Duration::from_secs(10)).await;
    let scans = faults.scans.load(Ordering::SeqCst);
    assert!(scans < 100, "{scans} scans in 10 s");
    *faults.locked_row.lock().unwrap() = None;
    rig.until("Job@count@0", State::Done).await;
    rig.stop().await;
}

#[tokio::test(start_paused = true)]
async fn sweeping_goes_on_after_a_settlement_was_refused_in_an_outage() {
    let ledger = Arc::new(MemoryLedger::new(START));
    let faults = Arc::new(Faults::default());
    let rig = start_with(ledger, Arc::clone(&faults), "", counting(&Arc::default()));
    rig.tasks
        .create("Job", "count", ["1"], Duration::from_secs(3))
        .await
        .unwrap();
    let errors = [unavailable(), refused(), unavailable(), refused()];
    faults.settle_errors.lock().unwrap().extend(errors);
    tokio::time::sleep(Duration::from_secs(10)).await;
    assert!(faults.settle_errors.lock().unwrap().is_empty());
    let made = rig.tasks.create("Job", "count", ["2"], Duration::ZERO);
    made.await.unwrap();
    tokio::time::sleep(Duration::from_secs(2)).await;
    assert_eq!(rig.record("Job@count@2").await.state, State::Done);
    rig.stop().await;
}

#[tokio::test(start_paused = true)]
async fn a_settlement_that_is_written_singly_is_tried_again_after_an_outage() {
    let ledger = Arc::new(MemoryLedger::new(START));
    let faults = Arc::new(Faults::default());
    let errors = [refused(), unavailable(), unavailable()];
    faults.settle_errors.lock().unwrap().extend(errors);
    let count = Arc::default();
    let rig = start_with(ledger, faults, "", counting(&count));
    rig.tasks
        .create("Job", "count", ["1"], Duration::ZERO)
        .await
        .unwrap();
    let record = rig.until("Job@count@1", State::Done).await;
    assert_eq!((record.attempt, record.crashes), (1, 0));
    rig.stop().await;
    assert_eq!(count.load(Ordering::SeqCst), 1);
}

#[tokio::test(start_paused = true)]
async fn what_is_claimed_while_the_engine_stops_is_released_without_counting() {
    let ledger = Arc::new(MemoryLedger::new(START));
    overdue(&ledger, 3).await;
    let faults = Arc::new(Faults::default());
    *faults.claim_answer_takes.lock().unwrap() = Duration::from_secs(2);
    let count = Arc::default();
    let rig = start_with(ledger, faults, "", counting(&count));
    while rig.ledger.stats().await.unwrap().running < 3 {
        tokio::time::sleep(Duration::from_millis(1)).await;
    }
    let ledger = rig.stop().await;
    let record = ledger.find(&TaskKey::parse("Job@count@2").unwrap()).await;
    let record = record.unwrap().unwrap();
    assert_eq!(
        (record.state, record.attempt, record.crashes),
        (State::Pending, 0, 0)
    );
    assert_eq!(count.load(Ordering::SeqCst), 0);
}

#[tokio::test(start_paused = true)]
async fn a_claim_that_was_a_little_early_by_the_ledgers_clock_is_made_again_at_once() {
    let ledger = Arc::new(MemoryLedger::new(START));
    let faults = Arc::new(Faults::default());
    *faults.clock_ahead.lock().unwrap() = Duration::from_millis(8);
    let rig = start_with(ledger, faults, "", counting(&Arc::default()));
    rig.tasks
        .create("Job", "count", ["1"], Duration::from_secs(5))
        .await
        .unwrap();
    tokio::time::sleep(Duration::from_millis(5_020)).await;
    assert_eq!(rig.record("Job@count@1").await.state, State::Done);
    rig.stop().await;
}

#[tokio::test(start_paused = true)]
async fn a_release_that_meets_a_lock_while_stopping_is_written_all_the_same() {
    let (started, mut runs) = mpsc::unbounded_channel();
    let faults = Arc::new(Faults::default());
    let rig = start_with(
        Arc::new(MemoryLedger::new(START)),
        Arc::clone(&faults),
        "engine.drain_timeout = '1s'",
        held(started, &Arc::default()),
    );
    rig.tasks
        .create("Job", "held", [""; 0], Duration::ZERO)
        .await
        .unwrap();
    runs.recv().await.unwrap();
    faults.settle_locked.store(4, Ordering::SeqCst);
    let ledger = rig.stop().await;
    let record = ledger.find(&TaskKey::parse("Job@held").unwrap()).await;
    let record = record.unwrap().unwrap();
    assert_eq!(
        (record.state, record.attempt, record.crashes),
        (State::Pending, 0, 0)
    );
}

#[tokio::test(start_paused = true)]
async fn a_stop_in_an_outage_ends() {
    let faults = Arc::new(Faults::default());
    let ledger = Arc::new(MemoryLedger::new(START));
    overdue(&ledger, 50).await;
    let outage = std::iter::repeat_with(unavailable).take(100_000);
    faults.settle_errors.lock().unwrap().extend(outage);
    let config = "engine.concurrency = 1\nengine.drain_timeout = '1s'";
    let rig = start_with(ledger, faults, config, counting(&Arc::default()));
    tokio::time::sleep(Duration::from_secs(5)).await;
    let stopped = tokio::time::timeout(Duration::from_secs(30), rig.stop()).await;
    assert!(stopped.is_ok(), "still waiting for its runs");
}

#[tokio::test(start_paused = true)]
async fn a_backlog_of_long_runs_takes_all_slots_but_an_eighth() {
    let (started, mut runs) = mpsc::unbounded_channel();
    let mut handlers = HandlerRegistry::new();
    handlers.on("Job", "long", move |_, (number,): (i64,)| {
        started.send(number).unwrap();
        std::future::pending()
    });
    let ledger = Arc::new(MemoryLedger::new(START));
    let key = |n: i64| TaskKey::build("Job", "long", [n.to_string()]).unwrap();
    let overdue: Vec<NewTask> = (0..20)
        .map(|n| NewTask::new(key(n), UnixMs(START.0 - 60_000)))
        .collect();
    ledger.create(&overdue).await.unwrap();
    let rig = start_on(
        ledger,
        "engine.concurrency = 16\nengine.drain_timeout = '0s'",
        handlers,
    );
    for _ in 0..14 {
        runs.recv().await.unwrap();
    }
    assert!(rig.ledger.clock().now().since(START) < Duration::from_secs(2));
    tokio::time::sleep(Duration::from_secs(10)).await;
    assert!(runs.try_recv().is_err(), "the rest is kept for fresh ones");
    rig.tasks
        .create("Job", "long", [99], Duration::from_millis(50))
        .await
        .unwrap();
    assert_eq!(runs.recv().await, Some(99));
    assert!(rig.ledger.clock().now().since(START) < Duration::from_secs(13));
    rig.stop().await;
}

/// A timer with a mistake in it.
struct Broken;

#[async_trait]
impl Timer for Broken {
    async fn run(&self, _: Arc<dyn SignalSink>, _: CancellationToken) {
        panic!("a mistake");
    }

    async fn arm(&self, _: &[Alarm], _: ArmMode) -> Result<Armed, TimerError> {
        Ok(Armed::default())
    }

    async fn disarm(&self, _: &[TaskKey]) -> Result<(), TimerError> {
        Ok(())
    }

    async fn remaining(&self, keys: &[TaskKey]) -> Result<Vec<Remaining>, TimerError> {
        Ok(vec![Remaining::Missing; keys.len()])
    }

    fn expect(&self, _: Vec<Alarm>) {}

    fn is_listening(&self) -> Option<bool> {
        None
    }
}

#[tokio::test(start_paused = true)]
async fn a_daemon_does_not_live_on_without_one_of_its_parts() {
    let config = Config::default();
    let parts = Parts {
        ledger: Arc::new(MemoryLedger::new(START)),
        catalog: None,
        timer: Arc::new(Broken),
        roster: Arc::new(MemoryRoster::default()),
        limiter: Arc::new(MemoryLimiter::default()),
        router: Arc::new(Router::new(HandlerRegistry::new(), &config)),
        metrics: Arc::new(Metrics::default()),
    };
    let engine = Engine::with_parts(parts, &config);
    let ended = engine.run_until(std::future::pending()).await;
    assert!(matches!(ended, Err(EngineError::Broken)), "{ended:?}");
}

/// A timer whose server some program has armed keys on.
#[derive(Debug, Default)]
struct Sees {
    sighted: Vec<Sighting>,
    /// Of these it then says that they are ours.
    ours: Vec<TaskKey>,
    expired: Vec<TaskKey>,
    expired_after: Duration,
}

#[async_trait]
impl Timer for Sees {
    async fn run(&self, sink: Arc<dyn SignalSink>, stop: CancellationToken) {
        for sighting in &self.sighted {
            assert!(sink.wants(&sighting.key));
            sink.sighted(sighting.clone());
        }
        self.ours.iter().for_each(|key| sink.ours(key));
        tokio::time::sleep(self.expired_after).await;
        for key in &self.expired {
            sink.raise(Signal {
                key: key.clone(),
                source: Source::Event,
                arming: None,
            });
        }
        stop.cancelled().await;
    }

    async fn arm(&self, _: &[Alarm], _: ArmMode) -> Result<Armed, TimerError> {
        Ok(Armed::default())
    }

    async fn disarm(&self, _: &[TaskKey]) -> Result<(), TimerError> {
        Ok(())
    }

    async fn remaining(&self, keys: &[TaskKey]) -> Result<Vec<Remaining>, TimerError> {
        Ok(vec![Remaining::Missing; keys.len()])
    }

    fn expect(&self, _: Vec<Alarm>) {}

    fn is_listening(&self) -> Option<bool> {
        None
    }
}

/// A key armed for a minute from the start.
fn armed(key: &TaskKey) -> Sighting {
    let seen = Seen::Armed(Countdown {
        slack: Duration::ZERO,
        alive_at: Some(START),
        due: UnixMs(START.0 + 60_000),
        heard: true,
        meant: None,
    });
    Sighting {
        key: key.clone(),
        seen,
    }
}

/// Runs an engine whose timer sees this, on a ledger with a fault that passes after ten seconds; tells how long it took from
/// then until the task ran.
async fn adopted_after(timer: Sees, fault: fn(&Faults) -> &AtomicBool) -> Duration {
    let inner = Arc::new(MemoryLedger::new(START));
    let faults = Arc::new(Faults::default());
    fault(&faults).store(true, Ordering::SeqCst);
    let ledger = Arc::new(Faulty {
        clock: inner.clock().clone(),
        inner: Arc::clone(&inner),
        faults: Arc::clone(&faults),
    });
    let mut handlers = HandlerRegistry::new();
    let (ran, mut runs) = mpsc::unbounded_channel();
    handlers.on("Job", "m", move |_, _: Vec<String>| {
        let ran = ran.clone();
        async move { Ok(ran.send(())?) }
    });
    let config = Config::default();
    let parts = Parts {
        roster: Arc::new(MemoryRoster::default()),
        limiter: Arc::new(MemoryLimiter::default()),
        ledger,
        catalog: None,
        timer: Arc::new(timer),
        router: Arc::new(Router::new(handlers, &config)),
        metrics: Arc::new(Metrics::default()),
    };
    let engine = Engine::with_parts(parts, &config);
    let (told, took) = oneshot::channel();
    let outcome = async {
        tokio::time::sleep(Duration::from_secs(10)).await;
        let key = TaskKey::parse("Job@m@1").unwrap();
        assert_eq!(inner.find(&key).await.unwrap(), None);
        fault(&faults).store(false, Ordering::SeqCst);
        let passed = Instant::now();
        let ran = tokio::time::timeout(Duration::from_secs(120), runs.recv()).await;
        assert!(ran.is_ok(), "it was lost");
        assert!(inner.find(&key).await.unwrap().unwrap().adopted);
        told.send(passed.elapsed()).unwrap();
    };
    engine.run_until(outcome).await.unwrap();
    took.await.unwrap()
}

#[tokio::test(start_paused = true)]
async fn a_key_is_adopted_when_the_ledger_answers_again() {
    let key = TaskKey::parse("Job@m@1").unwrap();
    let timer = Sees {
        sighted: vec![armed(&key)],
        ..Sees::default()
    };
    let took = adopted_after(timer, |faults| &faults.look_up_fails).await;
    assert!(took >= Duration::from_secs(49), "{took:?}");
}

#[tokio::test(start_paused = true)]
async fn a_key_that_expires_without_a_row_is_not_forgotten_while_the_ledger_takes_nothing() {
    let key = TaskKey::parse("Job@m@1").unwrap();
    for fault in [
        (|faults| &faults.look_up_fails) as fn(&Faults) -> &AtomicBool,
        |faults| &faults.adopt_fails,
    ] {
        let timer = Sees {
            expired: vec![key.clone()],
            ..Sees::default()
        };
        let took = adopted_after(timer, fault).await;
        assert!(took < Duration::from_secs(5), "{took:?}");
    }
}

#[tokio::test(start_paused = true)]
async fn what_was_seen_of_a_key_is_out_of_date_once_it_is_ours() {
    let [theirs, ours] = ["Job@m@1", "Job@m@2"].map(|key| TaskKey::parse(key).unwrap());
    let timer = Sees {
        sighted: vec![armed(&theirs), armed(&ours)],
        ours: vec![ours.clone()],
        ..Sees::default()
    };
    let ledger = Arc::new(MemoryLedger::new(START));
    let mut handlers = HandlerRegistry::new();
    handlers.on("Job", "m", |_, _: Vec<String>| async { Ok(()) });
    let config = Config::default();
    let parts = Parts {
        roster: Arc::new(MemoryRoster::default()),
        limiter: Arc::new(MemoryLimiter::default()),
        ledger: Arc::clone(&ledger) as _,
        catalog: None,
        timer: Arc::new(timer),
        router: Arc::new(Router::new(handlers, &config)),
        metrics: Arc::new(Metrics::default()),
    };
    let stop = tokio::time::sleep(Duration::from_secs(10));
    let engine = Engine::with_parts(parts, &config);
    engine.run_until(stop).await.unwrap();
    assert!(ledger.find(&theirs).await.unwrap().is_some());
    assert_eq!(ledger.find(&ours).await.unwrap(), None);
}

#[tokio::test(start_paused = true)]
async fn an_event_that_met_an_outage_does_not_run_a_finished_task_again() {
    let inner = Arc::new(MemoryLedger::new(START));
    let faults = Arc::new(Faults::default());
    faults.look_up_fails.store(true, Ordering::SeqCst);
    let ledger = Arc::new(Faulty {
        clock: inner.clock().clone(),
        inner: Arc::clone(&inner),
        faults: Arc::clone(&faults),
    });
    let key = TaskKey::parse("Job@m@1").unwrap();
    let adopted = Foundling {
        key: key.clone(),
        due: UnixMs(START.0 - 2_001),
        over: None,
    };
    inner.adopt(&[adopted]).await.unwrap();
    let timer = Sees {
        expired: vec![key.clone()],
        expired_after: Duration::from_secs(5),
        ..Sees::default()
    };
    let mut handlers = HandlerRegistry::new();
    let (ran, mut runs) = mpsc::unbounded_channel();
    handlers.on("Job", "m", move |_, _: Vec<String>| {
        let ran = ran.clone();
        async move { Ok(ran.send(())?) }
    });
    let config = Config::default();
    let parts = Parts {
        roster: Arc::new(MemoryRoster::default()),
        limiter: Arc::new(MemoryLimiter::default()),
        ledger,
        catalog: None,
        timer: Arc::new(timer),
        router: Arc::new(Router::new(handlers, &config)),
        metrics: Arc::new(Metrics::default()),
    };
    let outcome = async {
        runs.recv().await.unwrap(); // by the sweep
        tokio::time::sleep(Duration::from_secs(10)).await;
        faults.look_up_fails.store(false, Ordering::SeqCst);
        tokio::time::sleep(Duration::from_secs(10)).await;
    };
    let engine = Engine::with_parts(parts, &config);
    engine.run_until(outcome).await.unwrap();
    assert!(runs.try_recv().is_err(), "it ran twice");
    assert_eq!(inner.find(&key).await.unwrap().unwrap().state, State::Done);
}

/// `count` tasks of this class that fall due now, on a ledger where nobody works yet.
async fn backlog(ledger: &Arc<MemoryLedger>, class: &str, numbers: std::ops::Range<u64>) {
    let timer = Arc::new(LedgerPoll::new(ledger.clock().clone()));
    let client = TaskClient::with_parts(Arc::clone(ledger) as _, timer);
    let task = |n| {
        (
            Task::new(class, "count", [n]).unwrap(),
            lapsed::Due::after_ms(0).unwrap(),
        )
    };
    client
        .create_many(numbers.map(task).collect())
        .await
        .unwrap();
}

fn counting_as(handlers: &mut HandlerRegistry, class: &str) -> Arc<AtomicU32> {
    let count = Arc::new(AtomicU32::new(0));
    let counted = Arc::clone(&count);
    handlers.on(class, "count", move |_, _: Vec<String>| {
        counted.fetch_add(1, Ordering::SeqCst);
        async { Ok(()) }
    });
    count
}

#[tokio::test(start_paused = true)]
async fn the_backlog_of_a_route_with_a_rate_hides_nothing_and_does_not_make_the_sweep_spin() {
    let ledger = Arc::new(MemoryLedger::new(START));
    backlog(&ledger, "Paced", 0..10_000).await;
    tokio::time::sleep(Duration::from_millis(1)).await;
    backlog(&ledger, "Other", 0..1).await;
    tokio::time::sleep(Duration::from_millis(1)).await;
    backlog(&ledger, "Paced", 10_000..16_000).await;
    tokio::time::sleep(Duration::from_secs(10)).await;
    let mut handlers = HandlerRegistry::new();
    let paced = counting_as(&mut handlers, "Paced");
    counting_as(&mut handlers, "Other");
    let rate = "10/s".parse::<lapsed::task::Rate>().unwrap();
    let limits = lapsed::task::Limits::new().rate(rate.with_burst(1).unwrap());
    handlers.limit("Paced", "count", limits);
    let faults = Arc::new(Faults::default());
    let rig = start_with(Arc::clone(&ledger), Arc::clone(&faults), "", handlers);
    tokio::time::sleep(Duration::from_secs(10)).await;
    let ran = paced.load(Ordering::SeqCst);
    assert!((95..=102).contains(&ran), "{ran} in 10 s");
    assert_eq!(rig.record("Other@count@0").await.state, State::Done);
    let scans = faults.scans.load(Ordering::SeqCst);
    assert!(scans < 10 * 16, "{scans} scans in 10 s");
    rig.stop().await;
}

#[tokio::test(start_paused = true)]
async fn a_reload_changes_what_limits_a_route() {
    let ledger = Arc::new(MemoryLedger::new(START));
    backlog(&ledger, "Paced", 0..50).await;
    let route = "[[routes]]\nmatch = '^Paced@'\nlog = {}\n";
    let rig = start_on(
        ledger,
        &format!("{route}rate = '1/h'\n"),
        HandlerRegistry::new(),
    );
    tokio::time::sleep(Duration::from_secs(60)).await;
    assert_eq!(rig.ledger.stats().await.unwrap().done, 1);
    rig.parts.router.reload(&Config::from_toml(route).unwrap());
    tokio::time::sleep(Duration::from_secs(5)).await;
    assert_eq!(rig.ledger.stats().await.unwrap().done, 50);
    rig.stop().await;
}

#[tokio::test(start_paused = true)]
async fn nothing_starts_unless_it_is_known_what_is_paused() {
    let faults = Arc::<Faults>::default();
    faults.pauses_fail.store(true, Ordering::SeqCst);
    let ledger = Arc::new(MemoryLedger::new(START));
    let count = Arc::new(AtomicU32::new(0));
    let rig = start_with(
        Arc::clone(&ledger),
        Arc::clone(&faults),
        "",
        counting(&count),
    );
    let failed = rig.running.await.unwrap().unwrap_err();
    assert_eq!(failed.to_string(), "ledger refused: no");

    faults.pauses_fail.store(false, Ordering::SeqCst);
    let rig = start_with(ledger, Arc::clone(&faults), "", counting(&count));
    let create = async |number: u32| {
        let made = rig.tasks.create("Job", "count", [number], Duration::ZERO);
        made.await.unwrap();
    };
    create(1).await;
    rig.until("Job@count@1", State::Done).await;

    // What was read last is believed for a while, and no longer.
    faults.pauses_fail.store(true, Ordering::SeqCst);
    tokio::time::sleep(Duration::from_secs(2)).await;
    create(2).await;
    tokio::time::sleep(Duration::from_secs(60)).await;
    assert_eq!(count.load(Ordering::SeqCst), 1);
    assert!(
        rig.metric("lapsed_claims_total{result=\"won\"} 1"),
        "no claim either"
    );
    faults.pauses_fail.store(false, Ordering::SeqCst);
    rig.until("Job@count@2", State::Done).await;
    rig.stop().await;
}

#[tokio::test(start_paused = true)]
async fn what_was_paused_while_its_claim_was_on_its_way_is_given_back() {
    let faults = Arc::<Faults>::default();
    let ledger = Arc::new(MemoryLedger::new(START));
    let count = Arc::new(AtomicU32::new(0));
    let rig = start_with(ledger, Arc::clone(&faults), "", counting(&count));
    *faults.claim_answer_takes.lock().unwrap() = Duration::from_secs(3);
    let made = rig.tasks.create("Job", "count", [1], Duration::ZERO);
    made.await.unwrap();
    rig.until("Job@count@1", State::Running).await;
    let job = Scope::class("Job").unwrap();
    rig.tasks.pause(&job, "test", "").await.unwrap();
    let record = rig.until("Job@count@1", State::Pending).await;
    assert_eq!((record.attempt, record.crashes), (0, 0));
    tokio::time::sleep(Duration::from_secs(600)).await;
    assert_eq!(count.load(Ordering::SeqCst), 0);
    rig.tasks.resume(&job).await.unwrap().unwrap();
    let record = rig.until("Job@count@1", State::Done).await;
    assert_eq!(record.attempt, 1);
    assert_eq!(count.load(Ordering::SeqCst), 1);
    rig.stop().await;
}

#[tokio::test(start_paused = true)]
async fn an_occurrence_that_was_paused_while_its_claim_was_on_its_way_is_not_handed_on() {
    let faults = Arc::<Faults>::default();
    let ledger = Arc::new(MemoryLedger::new(START));
    let count = Arc::new(AtomicU32::new(0));
    let rig = start_with(ledger, Arc::clone(&faults), "", counting(&count));
    *faults.claim_answer_takes.lock().unwrap() = Duration::from_secs(3);
    let rule = Recurrence::every(Duration::from_secs(10)).unwrap();
    let task = Task::new("Job", "count", [1]).unwrap();
    let made = rig
        .tasks
        .create_recurring(task, rule.overlap(Overlap::Allow));
    let due = made.await.unwrap().due();
    rig.until("Job@count@1", State::Running).await;
    let job = Scope::class("Job").unwrap();
    rig.tasks.pause(&job, "test", "").await.unwrap();
    let record = rig.until("Job@count@1", State::Pending).await;
    assert_eq!(record.due, due);
    *faults.claim_answer_takes.lock().unwrap() = Duration::ZERO;
    rig.tasks.resume(&job).await.unwrap().unwrap();
    while rig.record("Job@count@1").await.due == due {
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
    let instance = format!("Job@count@1@~{}", due.0);
    rig.until(&instance, State::Done).await;
    rig.stop().await;
}

#[tokio::test(start_paused = true)]
async fn what_is_resumed_is_swept_at_once() {
    let count = Arc::new(AtomicU32::new(0));
    // Left alone, the sweep would come much later.
    let rig = start("sweep.interval = '1h'", counting(&count));
    let job = Scope::method("Job", "count").unwrap();
    rig.tasks.pause(&job, "test", "").await.unwrap();
    tokio::time::sleep(Duration::from_secs(2)).await;
    let made = rig.tasks.create("Job", "count", [1], Duration::ZERO);
    made.await.unwrap();
    tokio::time::sleep(Duration::from_secs(10)).await;
    assert_eq!(count.load(Ordering::SeqCst), 0);
    rig.tasks.resume(&job).await.unwrap().unwrap();
    tokio::time::sleep(Duration::from_secs(2)).await;
    assert_eq!(count.load(Ordering::SeqCst), 1);
    rig.stop().await;
}

#[tokio::test(start_paused = true)]
async fn an_engine_that_holds_what_is_overdue_runs_what_falls_due_later() {
    let ledger = Arc::new(MemoryLedger::new(START));
    let old = |name: &str| {
        let due = UnixMs(START.0 - 1_000);
        NewTask::new(TaskKey::build("Job", "count", [name]).unwrap(), due)
    };
    ledger.create(&[old("a"), old("b")]).await.unwrap();
    let count = Arc::new(AtomicU32::new(0));
    let rig = start_on(ledger, "engine.hold_overdue = true", counting(&count));
    tokio::time::sleep(Duration::from_secs(60)).await;
    rig.tasks
        .create("Job", "count", ["new"], Duration::ZERO)
        .await
        .unwrap();
    rig.until("Job@count@new", State::Done).await;
    assert_eq!(count.load(Ordering::SeqCst), 1);
    rig.tasks
        .resume_held(&Scope::EVERYTHING, "test")
        .await
        .unwrap();
    rig.until("Job@count@a", State::Done).await;
    rig.until("Job@count@b", State::Done).await;
    assert_eq!(count.load(Ordering::SeqCst), 3);
    rig.stop().await;
}

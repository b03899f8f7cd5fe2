//! Status of the background tasks.

use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use async_trait::async_trait;
use lapsed::engine::BackgroundStatus;
use lapsed::ledger::memory::MemoryLedger;
use lapsed::ledger::{Ledger as _, NewTask, Pauses as _, Producer as _};
use lapsed::task::{Scope, TaskKey, UnixMs};
use lapsed::timer::ledger_poll::LedgerPoll;
use lapsed::timer::{
    Alarm, AlarmStore, ArmMode, Armed, Cause, EngineSink, Listening, Remaining, Timer, TimerError,
};
use lapsed::{Config, Engine, Handlers};
use tokio_util::sync::CancellationToken;

use crate::engine::faults::Faults;
use crate::engine::faulty::Faulty;
use crate::engine::rig::{Rig, START, counting, parts, start, start_on_timer, start_with, until};

fn status(rig: &Rig, name: &str) -> BackgroundStatus {
    let mut all = rig.status.background().into_iter();
    let found = all.find(|status| status.name == name);
    found.expect("there is such a task")
}

#[tokio::test(start_paused = true)]
async fn each_background_task_has_a_status_in_a_stable_order() {
    let rig = start("", counting(&Arc::default()));
    let names: Vec<&str> = rig.status.background().iter().map(|one| one.name).collect();
    let expected = [
        "adoption",
        "arm_horizon",
        "audit",
        "history",
        "lease_checks",
        "lease_scan",
        "look_ahead",
        "membership",
        "pauses",
        "queue_gauges",
        "rate_limits",
        "recurring",
        "retention",
        "sweep",
        "task_gauges",
    ];
    assert_eq!(names, expected);
    rig.stop().await;
}

#[tokio::test(start_paused = true)]
async fn after_an_activation_the_status_tells_its_cause() {
    let rig = start("", counting(&Arc::default()));
    let cause = || status(&rig, "sweep").cause;
    until("it has swept", async || cause() == Some(Cause::Start)).await;
    until("it sweeps regularly", async || {
        cause() == Some(Cause::Interval)
    })
    .await;
    let scope = Scope::class("Job").unwrap();
    rig.ledger.pause(&scope, None, "a test", "").await.unwrap();
    until("the pause is read", async || rig.metric("lapsed_pauses 1")).await;
    rig.ledger.resume(&scope).await.unwrap();
    until("its end starts a sweep", async || {
        cause() == Some(Cause::Asked)
    })
    .await;
    rig.stop().await;
}

#[tokio::test(start_paused = true)]
async fn a_failing_pass_is_reported_until_one_succeeds() {
    let ledger = Arc::new(MemoryLedger::new(START));
    let faults = Arc::new(Faults::default());
    let rig = start_with(ledger, Arc::clone(&faults), "", counting(&Arc::default()));
    let error = || status(&rig, "pauses").error;
    until("it has read", async || status(&rig, "pauses").passes > 0).await;
    assert_eq!(error(), None);
    faults.pauses_fail.store(true, Ordering::SeqCst);
    until("a failure is reported", async || error().is_some()).await;
    assert_eq!(error().as_deref(), Some("ledger refused: no"));
    faults.pauses_fail.store(false, Ordering::SeqCst);
    until("it has recovered", async || error().is_none()).await;
    rig.stop().await;
}

#[tokio::test(start_paused = true)]
async fn a_count_that_failed_after_a_long_wait_is_repeated_soon() {
    let ledger = Arc::new(MemoryLedger::new(START));
    let faults = Arc::new(Faults::default());
    let rig = start_with(ledger, Arc::clone(&faults), "", counting(&Arc::default()));
    let error = || status(&rig, "task_gauges").error;
    *faults.counts_fail_after.lock().unwrap() = Some(Duration::from_secs(5));
    until("a failure is reported", async || error().is_some()).await;
    *faults.counts_fail_after.lock().unwrap() = None;
    let answered = tokio::time::Instant::now();
    until("it has recovered", async || error().is_none()).await;
    assert!(answered.elapsed() < Duration::from_secs(30));
    rig.stop().await;
}

/// A timer that may lose its alarms with its server, so that it is audited.
#[derive(Debug)]
struct Served(LedgerPoll);

#[async_trait]
impl AlarmStore for Served {
    async fn arm(&self, alarms: &[Alarm], mode: ArmMode) -> Result<Armed, TimerError> {
        self.0.arm(alarms, mode).await
    }

    async fn disarm(&self, keys: &[TaskKey]) -> Result<(), TimerError> {
        self.0.disarm(keys).await
    }

    async fn remaining(&self, keys: &[TaskKey]) -> Result<Vec<Remaining>, TimerError> {
        self.0.remaining(keys).await
    }
}

#[async_trait]
impl Timer for Served {
    async fn run(&self, sink: Arc<dyn EngineSink>, stop: CancellationToken) {
        self.0.run(sink, stop).await;
    }

    fn expect(&self, alarms: Vec<Alarm>) {
        self.0.expect(alarms);
    }

    fn listening(self: Arc<Self>) -> Option<Arc<dyn Listening>> {
        Some(self)
    }
}

impl Listening for Served {
    fn is_listening(&self) -> bool {
        true
    }
}

#[tokio::test(start_paused = true)]
async fn an_audit_yields_to_due_tasks_and_ends() {
    /// Time that the first audit takes on 2,500 future tasks, while `due` tasks are due and one can run.
    async fn audit_beside(due: u64) -> Duration {
        let ledger = Arc::new(MemoryLedger::new(START));
        let far = (0..2_500).map(|n: i64| {
            let key = TaskKey::build("Job", "held", [n.to_string()]).unwrap();
            NewTask::new(key, UnixMs(START.0 + 86_400_000 + n))
        });
        ledger.create(&far.collect::<Vec<_>>()).await.unwrap();
        let mut handlers = Handlers::new();
        handlers.on(("Job", "held"), |_: u64| std::future::pending());
        let config = "engine.concurrency = 1\nengine.drain_timeout = '0s'";
        let faults = Arc::new(Faults::default());
        *faults.scan_ahead_takes.lock().unwrap() = Duration::from_millis(200);
        let faulty = Arc::new(Faulty::new(ledger, faults));
        let timer = Arc::new(Served(LedgerPoll::new(faulty.clock().clone())));
        let rig = start_on_timer(faulty, timer, config, handlers);
        for n in 0..due {
            let key = ("Job", "held", [100_000 + n]);
            rig.tasks.create(key, Duration::ZERO).await.unwrap();
        }
        let audited = async || status(&rig, "audit").passes > 0;
        until("it has audited", audited).await;
        let took = status(&rig, "audit").took.unwrap();
        rig.stop().await;
        took
    }

    let (alone, beside) = (audit_beside(1).await, audit_beside(20).await);
    let pages = 2_500 / 250;
    let (least, most) = (pages - 5, pages + 5);
    let extra = beside.saturating_sub(alone);
    let per_page = Duration::from_millis(100);
    assert!(
        (least * per_page..most * per_page).contains(&extra),
        "{alone:?} {beside:?}"
    );
}

#[tokio::test(start_paused = true)]
async fn an_audit_of_a_timer_without_a_server_reads_no_pending_task() {
    let ledger = Arc::new(MemoryLedger::new(START));
    let far = NewTask::new(
        TaskKey::build("Job", "far", ["1"]).unwrap(),
        UnixMs(START.0 + 86_400_000),
    );
    ledger.create(&[far]).await.unwrap();
    for (is_served, pending) in [(true, 1), (false, 0)] {
        let poll = LedgerPoll::new(ledger.clock().clone());
        let timer: Arc<dyn Timer> = match is_served {
            true => Arc::new(Served(poll)),
            false => Arc::new(poll),
        };
        let parts = parts(
            Arc::clone(&ledger) as _,
            timer,
            Handlers::new(),
            &Config::default(),
        );
        let engine = Engine::with_parts(parts, &Config::default());
        let (_, audited) = engine.reconcile().await.unwrap();
        assert_eq!((audited.pending, audited.complete), (pending, true));
    }
}

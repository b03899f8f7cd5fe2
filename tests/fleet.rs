//! Several daemons on one ledger, without any server: time moves only when nothing else can.

use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use async_trait::async_trait;
use lapsed::engine::Parts;
use lapsed::fleet::memory::MemoryRoster;
use lapsed::fleet::{LIFETIME, MemberId, Note, REFRESH, Readiness, Roster, Skills, Turn};
use lapsed::handler::Router;
use lapsed::ledger::memory::MemoryLedger;
use lapsed::ledger::{Catalog, Ledger, NewTask};
use lapsed::limiter::MemoryLimiter;
use lapsed::telemetry::Metrics;
use lapsed::timer::ledger_poll::LedgerPoll;
use lapsed::timer::{Alarm, ArmMode, Armed, Cause, Remaining, SignalSink, Timer, TimerError};
use lapsed::{Config, Engine, HandlerRegistry, TaskContext, TaskKey, UnixMs};
use tokio::time::{sleep, timeout};
use tokio_util::sync::CancellationToken;

const START: UnixMs = UnixMs(1_800_000_000_000);

/// What daemons share.
#[derive(Clone)]
struct Ground {
    ledger: Arc<MemoryLedger>,
    roster: Arc<MemoryRoster>,
    /// How late each run was, in milliseconds.
    late: Arc<Mutex<Vec<u64>>>,
}

struct Daemon {
    metrics: Arc<Metrics>,
    status: lapsed::engine::Status,
    stop: CancellationToken,
    running: tokio::task::JoinHandle<()>,
}

impl Ground {
    fn new() -> Self {
        Self {
            ledger: Arc::new(MemoryLedger::new(START)),
            roster: Arc::default(),
            late: Arc::default(),
        }
    }

    fn daemon(&self) -> Daemon {
        let clock = self.ledger.clock().clone();
        self.daemon_with(Arc::new(LedgerPoll::new(clock)))
    }

    fn daemon_with(&self, timer: Arc<dyn Timer>) -> Daemon {
        self.daemon_by(timer, &Config::default())
    }

    fn daemon_by(&self, timer: Arc<dyn Timer>, config: &Config) -> Daemon {
        let mut handlers = HandlerRegistry::new();
        let late = Arc::clone(&self.late);
        handlers.on("Job", "run", move |task: TaskContext, _: Vec<String>| {
            late.lock().unwrap().push(task.lateness_ms());
            async { Ok(()) }
        });
        let parts = Parts {
            ledger: Arc::clone(&self.ledger) as _,
            catalog: Some(Arc::clone(&self.ledger) as _),
            timer,
            roster: Arc::clone(&self.roster) as _,
            limiter: Arc::new(MemoryLimiter::default()),
            router: Arc::new(Router::new(handlers, config)),
            metrics: Arc::default(),
        };
        let metrics = Arc::clone(&parts.metrics);
        let engine = Engine::with_parts(parts, config);
        let status = engine.status().unwrap();
        let stop = CancellationToken::new();
        let running = engine.run_until(stop.clone().cancelled_owned());
        Daemon {
            metrics,
            status,
            stop,
            running: tokio::spawn(async move { running.await.unwrap() }),
        }
    }

    /// Tasks ten milliseconds apart.
    async fn create(&self, prefix: &str, count: i64, first: Duration) {
        let now = self.ledger.clock().now().plus(first);
        let tasks = (0..count).map(|n| {
            let key = TaskKey::build("Job", "run", [format!("{prefix}{n}")]).unwrap();
            NewTask::new(key, UnixMs(now.0 + 10 * n))
        });
        self.ledger
            .create(&tasks.collect::<Vec<_>>())
            .await
            .unwrap();
    }

    async fn until_done(&self, count: u64) {
        let done = async {
            while self.ledger.stats().await.unwrap().done < count {
                sleep(Duration::from_millis(1)).await;
            }
        };
        timeout(Duration::from_secs(60), done).await.unwrap();
    }

    /// A member that says this about itself and does nothing.
    async fn show(&self, id: u64, readiness: Readiness, handler: &str) {
        let now = self.ledger.clock().now();
        let note = Note {
            id: MemberId(id),
            name: "silent".into(),
            until: now.plus(LIFETIME),
            readiness,
            skills: Skills {
                handlers: vec![handler.to_owned()],
                routes: Vec::new(),
            },
        };
        self.roster.exchange(&note, now).await.unwrap();
    }

    /// Keeps on showing it.
    fn keep_shown(&self, readiness: Readiness, handler: &'static str) {
        let ground = self.clone();
        tokio::spawn(async move {
            loop {
                ground.show(7, readiness, handler).await;
                sleep(REFRESH).await;
            }
        });
    }

    fn late(&self) -> Vec<u64> {
        std::mem::take(&mut *self.late.lock().unwrap())
    }
}

impl Daemon {
    fn metric(&self, name: &str) -> u64 {
        let text = self.metrics.render();
        let mut values = text.lines().filter_map(|line| line.rsplit_once(' '));
        let value = values.find(|(found, _)| *found == name);
        value.map_or(0, |(_, value)| value.parse().unwrap())
    }

    async fn until_members(&self, count: usize) {
        let counted = async {
            while self.status.members() != count {
                sleep(Duration::from_millis(10)).await;
            }
        };
        timeout(Duration::from_secs(10), counted).await.unwrap();
    }

    async fn stop(self) {
        self.stop.cancel();
        self.running.await.unwrap();
    }
}

#[tokio::test(start_paused = true)]
async fn engines_that_know_each_other_claim_nothing_in_vain() {
    let ground = Ground::new();
    let daemons = [ground.daemon(), ground.daemon(), ground.daemon()];
    for daemon in &daemons {
        daemon.until_members(3).await;
    }
    ground.create("", 300, Duration::from_secs(5)).await;
    ground.until_done(300).await;
    let claims = |result| {
        let name = format!("lapsed_claims_total{{result=\"{result}\"}}");
        daemons.each_ref().map(|daemon| daemon.metric(&name))
    };
    assert_eq!(claims("won").iter().sum::<u64>(), 300);
    assert!(
        claims("won").iter().all(|won| *won > 60),
        "{:?}",
        claims("won")
    );
    assert_eq!(claims("missed"), [0; 3]);
    assert!(ground.late().iter().all(|late| *late < 10));
}

#[tokio::test(start_paused = true)]
async fn what_a_silent_owner_leaves_starts_within_two_seconds() {
    let ground = Ground::new();
    ground.keep_shown(Readiness::Ready, "Job@run");
    let daemon = ground.daemon();
    daemon.until_members(2).await;
    ground.create("", 500, Duration::from_secs(5)).await;
    ground.until_done(500).await;
    let (own, others): (Vec<u64>, Vec<u64>) =
        ground.late().into_iter().partition(|late| *late < 500);
    assert!(
        own.len() > 200 && others.len() > 200,
        "{} {}",
        own.len(),
        others.len()
    );
    assert!(own.iter().all(|late| *late < 10), "{own:?}");
    assert!(
        others.iter().all(|late| (1_000..1_800).contains(late)),
        "{others:?}"
    );
}

#[tokio::test(start_paused = true)]
async fn who_is_full_or_goes_or_cannot_run_it_owns_nothing() {
    for (readiness, handler) in [
        (Readiness::Full, "Job@run"),
        (Readiness::Away, "Job@run"),
        (Readiness::Ready, "Job@other"),
    ] {
        let ground = Ground::new();
        ground.keep_shown(readiness, handler);
        let daemon = ground.daemon();
        daemon.until_members(2).await;
        ground.create("", 100, Duration::from_secs(5)).await;
        ground.until_done(100).await;
        let late = ground.late();
        assert!(
            late.iter().all(|late| *late < 10),
            "{readiness:?} {handler}: {late:?}"
        );
    }
}

#[tokio::test(start_paused = true)]
async fn a_member_that_falls_silent_is_forgotten() {
    let ground = Ground::new();
    let daemon = ground.daemon();
    sleep(2 * REFRESH).await;
    ground.show(7, Readiness::Ready, "Job@run").await;
    daemon.until_members(2).await;
    daemon.until_members(1).await;
    ground.create("", 100, Duration::from_secs(5)).await;
    ground.until_done(100).await;
    assert!(ground.late().iter().all(|late| *late < 10));
}

#[tokio::test(start_paused = true)]
async fn a_stopping_engine_hands_over_without_a_late_task() {
    let ground = Ground::new();
    let (first, second) = (ground.daemon(), ground.daemon());
    first.until_members(2).await;
    second.until_members(2).await;
    ground.create("", 500, Duration::from_secs(5)).await;
    sleep(Duration::from_secs(6)).await;
    first.stop().await;
    ground.until_done(500).await;
    let late = ground.late();
    assert_eq!(late.len(), 500);
    assert!(late.iter().all(|late| *late < 10), "{late:?}");
}

#[tokio::test(start_paused = true)]
async fn a_backlog_is_worked_on_by_all_and_each_begins_with_its_own() {
    let ground = Ground::new();
    ground.keep_shown(Readiness::Ready, "Job@run");
    let daemon = ground.daemon();
    daemon.until_members(2).await;
    // Overdue by a minute: also what the silent one owns is done.
    let now = ground.ledger.clock().now();
    let tasks = (0..3_000).map(|n| {
        let key = TaskKey::build("Job", "run", [n.to_string()]).unwrap();
        NewTask::new(key, UnixMs(now.0 - 60_000))
    });
    ground
        .ledger
        .create(&tasks.collect::<Vec<_>>())
        .await
        .unwrap();
    ground.until_done(3_000).await;
    assert!(ground.ledger.clock().now().since(now) < Duration::from_secs(10));
    drop(daemon);
}

/// Arms into a list, and fails when told to.
#[derive(Default)]
struct Ledgered {
    armed: Mutex<Vec<TaskKey>>,
    calls: AtomicUsize,
    fails_at: usize,
    sink: Mutex<Option<Arc<dyn SignalSink>>>,
    failed: AtomicBool,
}

#[async_trait]
impl Timer for Ledgered {
    async fn run(&self, sink: Arc<dyn SignalSink>, stop: CancellationToken) {
        *self.sink.lock().unwrap() = Some(sink);
        stop.cancelled().await;
    }

    async fn arm(&self, alarms: &[Alarm], _: ArmMode) -> Result<Armed, TimerError> {
        if self.calls.fetch_add(1, Ordering::SeqCst) == self.fails_at {
            self.failed.store(true, Ordering::SeqCst);
            return Err(TimerError::new("gone", "gone"));
        }
        let keys = alarms.iter().map(|alarm| alarm.key.clone());
        self.armed.lock().unwrap().extend(keys);
        Ok(Armed {
            written: alarms.len(),
            present: 0,
        })
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

/// An audit of 2,500 tasks whose second page fails, and another five seconds later if there is a cause. How many keys
/// were armed in all.
async fn audited_again(cause: Option<Cause>) -> usize {
    let ground = Ground::new();
    ground.create("", 2_500, Duration::from_secs(3_600)).await;
    let timer = Arc::new(Ledgered {
        fails_at: 1,
        ..Ledgered::default()
    });
    let daemon = ground.daemon_with(Arc::clone(&timer) as _);
    let broke_off = async {
        while !timer.failed.load(Ordering::SeqCst) {
            sleep(Duration::from_millis(1)).await;
        }
    };
    timeout(Duration::from_secs(10), broke_off).await.unwrap();
    assert_eq!(timer.armed.lock().unwrap().len(), 1_000);
    if let Some(cause) = cause {
        sleep(Duration::from_secs(5)).await;
        let sink = timer.sink.lock().unwrap().clone().unwrap();
        sink.audit(cause);
    }
    let cause = cause.unwrap_or(Cause::Start);
    let name = format!("lapsed_audits_total{{reason=\"{}\"}}", cause.as_str());
    let audited = async {
        while daemon.metric(&name) == 0 {
            sleep(Duration::from_millis(1)).await;
        }
    };
    timeout(Duration::from_secs(15), audited).await.unwrap();
    daemon.stop().await;
    timer.armed.lock().unwrap().len()
}

#[tokio::test(start_paused = true)]
async fn an_audit_goes_on_where_it_broke_off_unless_redis_lost_its_data_since() {
    assert_eq!(audited_again(None).await, 2_500);
    assert_eq!(audited_again(Some(Cause::Subscribed)).await, 2_500);
    assert_eq!(audited_again(Some(Cause::RedisChanged)).await, 3_500);
}

#[tokio::test(start_paused = true)]
async fn an_audit_is_left_to_the_daemon_whose_turn_it_is() {
    let ground = Ground::new();
    let other = MemberId(7);
    for _ in 0..2 {
        let turn = ground.roster.take_audit(other, UnixMs(0)).await.unwrap();
        assert_eq!(turn, Turn::Ours, "also when it goes on");
    }
    let timer = Arc::new(Ledgered {
        fails_at: usize::MAX,
        ..Ledgered::default()
    });
    let daemon = ground.daemon_with(Arc::clone(&timer) as _);
    sleep(Duration::from_secs(20)).await;
    assert_eq!(daemon.metric("lapsed_audits_skipped_total"), 0);
    let began = ground.ledger.clock().now();
    ground.roster.audited(other, began).await.unwrap();
    let skipped = async {
        while daemon.metric("lapsed_audits_skipped_total") == 0 {
            sleep(Duration::from_millis(1)).await;
        }
    };
    timeout(Duration::from_secs(30), skipped).await.unwrap();
    assert_eq!(timer.calls.load(Ordering::SeqCst), 0);
    sleep(Duration::from_secs(60)).await;
    let sink = timer.sink.lock().unwrap().clone().unwrap();
    sink.audit(Cause::Sentinel);
    let audited = async {
        while daemon.metric("lapsed_audits_total{reason=\"sentinel\"}") == 0 {
            sleep(Duration::from_millis(1)).await;
        }
    };
    timeout(Duration::from_secs(10), audited).await.unwrap();
}

#[tokio::test(start_paused = true)]
async fn an_auditor_that_dies_is_replaced() {
    let ground = Ground::new();
    ground.create("", 10, Duration::from_secs(3_600)).await;
    ground
        .roster
        .take_audit(MemberId(7), UnixMs(0))
        .await
        .unwrap();
    let timer = Arc::new(Ledgered {
        fails_at: usize::MAX,
        ..Ledgered::default()
    });
    let daemon = ground.daemon_with(Arc::clone(&timer) as _);
    let audited = async {
        while daemon.metric("lapsed_audits_total{reason=\"start\"}") == 0 {
            sleep(Duration::from_millis(10)).await;
        }
    };
    timeout(Duration::from_secs(85), audited).await.unwrap();
    assert_eq!(timer.armed.lock().unwrap().len(), 10);
}

#[tokio::test(start_paused = true)]
async fn one_daemon_prunes_and_another_when_that_has_gone() {
    const PRUNED: &str = "lapsed_pruned_total{state=\"done\"}";
    let ground = Ground::new();
    let config = Config::from_toml("retention.done = '60s'").unwrap();
    let daemons = [(); 3].map(|()| {
        let timer = LedgerPoll::new(ground.ledger.clock().clone());
        ground.daemon_by(Arc::new(timer), &config)
    });
    for daemon in &daemons {
        daemon.until_members(3).await;
    }
    // Something is old enough whenever anybody looks, and each looks twenty times.
    let many_looks = async |ground: &Ground, prefix: &str| {
        for n in 0..100 {
            ground
                .create(&format!("{prefix}{n}-"), 1, Duration::ZERO)
                .await;
            sleep(Duration::from_secs(2)).await;
        }
    };
    many_looks(&ground, "a").await;
    let pruned = |daemon: &Daemon| daemon.metric(PRUNED);
    let (pruning, mut idle): (Vec<Daemon>, Vec<Daemon>) =
        daemons.into_iter().partition(|daemon| pruned(daemon) > 0);
    assert_eq!(pruning.len(), 1, "one of them prunes");
    assert!(pruned(&pruning[0]) > 50);
    for daemon in pruning {
        daemon.stop().await;
    }
    idle[0].until_members(2).await;
    many_looks(&ground, "b").await;
    idle.retain(|daemon| pruned(daemon) > 0);
    assert_eq!(idle.len(), 1, "one of those that are left prunes");
}

//! Who audits, and what becomes of an audit that broke off.

use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use async_trait::async_trait;
use lapsed::ledger::{Ledger, Producer};
use lapsed::membership::{Audit, AuditLockState, Capabilities, MemberId, Membership, Readiness};
use lapsed::timer::{
    Alarm, AlarmStore, ArmMode, Armed, ArmedPage, Cause, EngineSink, Listening, Remaining, Timer,
    TimerError,
};
use lapsed::{TaskKey, UnixMs};
use tokio::time::{sleep, timeout};
use tokio_util::sync::CancellationToken;

use crate::membership::rig::Ground;

/// Arms into a list, and fails when told to.
#[derive(Default)]
struct Ledgered {
    armed: Mutex<Vec<TaskKey>>,
    calls: AtomicUsize,
    /// Keys that were looked for.
    looked_for: AtomicUsize,
    fails_at: Option<usize>,
    sink: Mutex<Option<Arc<dyn EngineSink>>>,
    failed: AtomicBool,
}

#[async_trait]
impl AlarmStore for Ledgered {
    async fn arm(&self, alarms: &[Alarm], _: ArmMode) -> Result<Armed, TimerError> {
        if Some(self.calls.fetch_add(1, Ordering::SeqCst)) == self.fails_at {
            self.failed.store(true, Ordering::SeqCst);
            return Err(TimerError::new("gone", "gone"));
        }
        let keys = alarms.iter().map(|alarm| alarm.key.clone());
        self.armed.lock().unwrap().extend(keys);
        Ok(Armed {
            written: alarms.len(),
            present: 0,
            missing: 0,
        })
    }

    async fn disarm(&self, _: &[TaskKey]) -> Result<(), TimerError> {
        Ok(())
    }

    async fn remaining(&self, keys: &[TaskKey]) -> Result<Vec<Remaining>, TimerError> {
        self.looked_for.fetch_add(keys.len(), Ordering::SeqCst);
        Ok(vec![Remaining::Missing; keys.len()])
    }
}

#[async_trait]
impl Timer for Ledgered {
    async fn run(&self, sink: Arc<dyn EngineSink>, stop: CancellationToken) {
        *self.sink.lock().unwrap() = Some(sink);
        stop.cancelled().await;
    }

    fn expect(&self, _: Vec<Alarm>) {}

    fn listening(self: Arc<Self>) -> Option<Arc<dyn Listening>> {
        Some(self)
    }
}

impl Listening for Ledgered {
    fn is_listening(&self) -> bool {
        true
    }
}

/// An audit of 2,500 tasks whose second page fails, and another five seconds later if there is a cause. How many keys
/// were armed in all.
const PAGE: usize = 250;

async fn audited_again(cause: Option<Cause>) -> usize {
    let ground = Ground::new();
    ground.create("", 2_500, Duration::from_secs(7_200)).await;
    let timer = Arc::new(Ledgered {
        fails_at: Some(1),
        ..Ledgered::default()
    });
    let daemon = ground.daemon_with(Arc::clone(&timer) as _);
    let broke_off = async {
        while !timer.failed.load(Ordering::SeqCst) {
            sleep(Duration::from_millis(1)).await;
        }
    };
    timeout(Duration::from_secs(10), broke_off).await.unwrap();
    assert_eq!(timer.armed.lock().unwrap().len(), PAGE);
    if let Some(cause) = cause {
        sleep(Duration::from_secs(5)).await;
        let sink = timer.sink.lock().unwrap().clone().unwrap();
        sink.audit(cause);
    }
    let cause = cause.unwrap_or(Cause::Start);
    let name = format!("lapsed_audits_total{{reason=\"{}\"}}", cause.as_str());
    daemon.until_counted(&name, Duration::from_secs(15)).await;
    daemon.stop().await;
    timer.armed.lock().unwrap().len()
}

#[tokio::test(start_paused = true)]
async fn an_audit_resumes_where_it_stopped_unless_redis_has_lost_its_data() {
    assert_eq!(audited_again(None).await, 2_500);
    assert_eq!(audited_again(Some(Cause::Subscribed)).await, 2_500);
    assert_eq!(audited_again(Some(Cause::RedisChanged)).await, 2_500 + PAGE);
}

#[tokio::test(start_paused = true)]
async fn an_audit_arms_no_key_whose_deletion_cancels_its_task_a_moment_later() {
    let ground = Ground::new();
    ground.create("", 10, Duration::from_secs(3_600)).await;
    let timer = Arc::new(Ledgered::default());
    let daemon = ground.daemon_with(Arc::clone(&timer) as _);
    let looked = async {
        while timer.looked_for.load(Ordering::SeqCst) == 0 {
            sleep(Duration::from_millis(1)).await;
        }
    };
    timeout(Duration::from_secs(10), looked).await.unwrap();
    sleep(Duration::from_secs(1)).await;
    let deleted = TaskKey::parse("Job@run@0").unwrap();
    let keys = std::slice::from_ref(&deleted);
    ground.ledger.cancel(keys).await.unwrap();
    let audited = "lapsed_audits_total{reason=\"start\"}";
    daemon.until_counted(audited, Duration::from_secs(10)).await;
    let armed = timer.armed.lock().unwrap().clone();
    assert_eq!(armed.len(), 9);
    assert!(!armed.contains(&deleted));
}

#[tokio::test(start_paused = true)]
async fn an_audit_is_left_to_the_daemon_whose_turn_it_is() {
    let ground = Ground::new();
    ground.keep_shown(Readiness::Ready, "Job@run");
    let other = MemberId(7);
    for _ in 0..2 {
        let turn = ground
            .membership
            .lock_audit(other, audit(UnixMs(0)))
            .await
            .unwrap();
        assert_eq!(turn, AuditLockState::Acquired, "also when it goes on");
    }
    let timer = Arc::new(Ledgered::default());
    let daemon = ground.daemon_with(Arc::clone(&timer) as _);
    sleep(Duration::from_secs(20)).await;
    assert_eq!(daemon.metric("lapsed_audits_skipped_total"), 0);
    let began = ground.ledger.clock().now();
    ground
        .membership
        .finish_audit(other, audit(began))
        .await
        .unwrap();
    let skipped = "lapsed_audits_skipped_total";
    daemon.until_counted(skipped, Duration::from_secs(30)).await;
    assert_eq!(timer.calls.load(Ordering::SeqCst), 0);
    sleep(Duration::from_secs(60)).await;
    let sink = timer.sink.lock().unwrap().clone().unwrap();
    sink.audit(Cause::Sentinel);
    let audited = "lapsed_audits_total{reason=\"sentinel\"}";
    daemon.until_counted(audited, Duration::from_secs(10)).await;
}

/// An audit by a daemon with the capabilities of those of [`Ground`].
fn audit(began: UnixMs) -> Audit {
    audit_by("Job@run", began)
}

fn audit_by(handler: &str, began: UnixMs) -> Audit {
    let capabilities = Capabilities {
        handlers: vec![handler.to_owned()],
        ..Capabilities::default()
    };
    Audit {
        began,
        capabilities: capabilities.digest(),
    }
}

#[tokio::test(start_paused = true)]
async fn a_daemon_that_starts_audits_although_another_audit_began_a_moment_before() {
    let ground = Ground::new();
    ground.create("", 10, Duration::from_secs(3_600)).await;
    let began = ground.ledger.clock().now();
    let other = MemberId(7);
    ground
        .membership
        .finish_audit(other, audit(began))
        .await
        .unwrap();
    let timer = Arc::new(Ledgered::default());
    let daemon = ground.daemon_with(Arc::clone(&timer) as _);
    let audited = "lapsed_audits_total{reason=\"start\"}";
    daemon.until_counted(audited, Duration::from_secs(10)).await;
    assert_eq!(timer.armed.lock().unwrap().len(), 10);
}

#[tokio::test(start_paused = true)]
async fn an_auditor_that_stops_gives_up_its_turn() {
    let ground = Ground::new();
    ground.create("", 10, Duration::from_secs(3_600)).await;
    let other = MemberId(7);
    let turn = ground.membership.lock_audit(other, audit(UnixMs(0))).await;
    assert_eq!(turn.unwrap(), AuditLockState::Acquired);
    ground.membership.leave(other).await.unwrap();
    let timer = Arc::new(Ledgered::default());
    let daemon = ground.daemon_with(Arc::clone(&timer) as _);
    let audited = "lapsed_audits_total{reason=\"start\"}";
    daemon.until_counted(audited, Duration::from_secs(10)).await;
}

#[tokio::test(start_paused = true)]
async fn an_audit_by_a_daemon_that_runs_other_tasks_does_not_serve() {
    let ground = Ground::new();
    ground.keep_shown(Readiness::Ready, "Job@run");
    ground.create("", 10, Duration::from_secs(3_600)).await;
    let other = MemberId(7);
    let turn = ground.membership.lock_audit(other, audit(UnixMs(0))).await;
    assert_eq!(turn.unwrap(), AuditLockState::Acquired);
    let timer = Arc::new(Ledgered::default());
    let daemon = ground.daemon_with(Arc::clone(&timer) as _);
    sleep(Duration::from_secs(5)).await;
    let began = ground.ledger.clock().now();
    let audited = audit_by("Other@run", began);
    ground
        .membership
        .finish_audit(other, audited)
        .await
        .unwrap();
    let audited = "lapsed_audits_total{reason=\"start\"}";
    daemon.until_counted(audited, Duration::from_secs(30)).await;
    assert_eq!(daemon.metric("lapsed_audits_skipped_total"), 0);
}

/// Tells in which order rows and keys are gone through.
#[derive(Default)]
struct Traced {
    seen: Mutex<Vec<&'static str>>,
    arms: Mutex<Vec<i64>>,
}

#[async_trait]
impl AlarmStore for Traced {
    async fn arm(&self, alarms: &[Alarm], _: ArmMode) -> Result<Armed, TimerError> {
        let due = alarms.iter().map(|alarm| alarm.due.0);
        self.arms.lock().unwrap().extend(due);
        Ok(Armed::default())
    }

    async fn disarm(&self, _: &[TaskKey]) -> Result<(), TimerError> {
        Ok(())
    }

    async fn remaining(&self, keys: &[TaskKey]) -> Result<Vec<Remaining>, TimerError> {
        self.seen.lock().unwrap().push("rows");
        Ok(vec![Remaining::Missing; keys.len()])
    }
}

#[async_trait]
impl Timer for Traced {
    async fn run(&self, _: Arc<dyn EngineSink>, stop: CancellationToken) {
        stop.cancelled().await;
    }

    fn expect(&self, _: Vec<Alarm>) {}

    fn listening(self: Arc<Self>) -> Option<Arc<dyn Listening>> {
        Some(self)
    }
}

#[async_trait]
impl Listening for Traced {
    fn is_listening(&self) -> bool {
        true
    }

    async fn scan_foreign(
        &self,
        cursor: Option<u64>,
        _: &(dyn for<'a> Fn(&'a TaskKey) -> bool + Send + Sync),
    ) -> Result<ArmedPage, TimerError> {
        self.seen.lock().unwrap().push("keys");
        let next = match cursor {
            None => Some(1),
            Some(_) => None,
        };
        Ok(ArmedPage {
            next,
            ..ArmedPage::default()
        })
    }
}

#[tokio::test(start_paused = true)]
async fn tasks_due_within_the_hour_come_first_then_the_keys_then_the_rest() {
    let ground = Ground::new();
    ground.create("far", 300, Duration::from_secs(7_200)).await;
    ground.create("soon", 300, Duration::from_secs(1_800)).await;
    let timer = Arc::new(Traced::default());
    let daemon = ground.daemon_with(Arc::clone(&timer) as _);
    let audited = "lapsed_audits_total{reason=\"start\"}";
    daemon.until_counted(audited, Duration::from_secs(30)).await;
    let seen = timer.seen.lock().unwrap().clone();
    assert_eq!(seen, ["rows", "rows", "keys", "keys", "rows", "rows"]);
    let arms = timer.arms.lock().unwrap();
    assert_eq!(arms.len(), 600);
    assert!(arms.is_sorted(), "each row once, in the order of due times");
}

#[tokio::test(start_paused = true)]
async fn an_auditor_that_dies_is_replaced() {
    let ground = Ground::new();
    ground.create("", 10, Duration::from_secs(3_600)).await;
    ground
        .membership
        .lock_audit(MemberId(7), audit(UnixMs(0)))
        .await
        .unwrap();
    let timer = Arc::new(Ledgered::default());
    let daemon = ground.daemon_with(Arc::clone(&timer) as _);
    let audited = "lapsed_audits_total{reason=\"start\"}";
    daemon.until_counted(audited, Duration::from_secs(15)).await;
    assert_eq!(timer.armed.lock().unwrap().len(), 10);
}

//! Daemons of one ledger that are members of each other.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use async_trait::async_trait;
use lapsed::engine::{Metrics, Parts};
use lapsed::ledger::memory::MemoryLedger;
use lapsed::ledger::{Admin, Ledger, NewTask, Producer};
use lapsed::membership::MemoryMembership;
use lapsed::membership::{
    Audit, AuditLockState, Capabilities, Heartbeat, LIFETIME, MemberId, Membership,
    MembershipError, REFRESH, Readiness,
};
use lapsed::timer::Timer;
use lapsed::timer::ledger_poll::LedgerPoll;
use lapsed::{Config, Engine, Handlers, TaskContext, TaskKey, UnixMs};
use tokio::time::sleep;
use tokio_util::sync::CancellationToken;

use crate::engine::rig::parts;
use crate::support::metrics;
use crate::support::wait::{until, until_within};

const START: UnixMs = UnixMs(1_800_000_000_000);

/// What daemons share.
#[derive(Clone)]
pub struct Ground {
    pub ledger: Arc<MemoryLedger>,
    pub membership: Arc<MemoryMembership>,
    /// Whether other members are seen to be gone, whatever their notes say.
    pub others_are_gone: Arc<AtomicBool>,
    /// How late each run was, in milliseconds.
    pub late: Arc<Mutex<Vec<u64>>>,
}

/// Membership, as a daemon sees it.
struct Seen(Ground);

#[async_trait]
impl Membership for Seen {
    async fn exchange(
        &self,
        own: &Heartbeat,
        now: UnixMs,
    ) -> Result<Vec<Heartbeat>, MembershipError> {
        self.0.membership.exchange(own, now).await
    }

    async fn leave(&self, id: MemberId) -> Result<(), MembershipError> {
        self.0.membership.leave(id).await
    }

    async fn is_reachable(&self, _: MemberId) -> Result<bool, MembershipError> {
        Ok(!self.0.others_are_gone.load(Ordering::SeqCst))
    }

    async fn lock_audit(
        &self,
        id: MemberId,
        wanted: Audit,
    ) -> Result<AuditLockState, MembershipError> {
        self.0.membership.lock_audit(id, wanted).await
    }

    async fn unlock_audit(&self, gone: MemberId) -> Result<(), MembershipError> {
        self.0.membership.unlock_audit(gone).await
    }

    async fn finish_audit(&self, id: MemberId, audit: Audit) -> Result<(), MembershipError> {
        self.0.membership.finish_audit(id, audit).await
    }
}

pub struct Daemon {
    pub metrics: Arc<Metrics>,
    pub status: lapsed::engine::Handle,
    pub stop: CancellationToken,
    pub running: tokio::task::JoinHandle<()>,
}

impl Ground {
    pub fn new() -> Self {
        Self {
            ledger: Arc::new(MemoryLedger::new(START)),
            membership: Arc::default(),
            others_are_gone: Arc::default(),
            late: Arc::default(),
        }
    }

    pub fn daemon(&self) -> Daemon {
        let clock = self.ledger.clock().clone();
        self.daemon_with(Arc::new(LedgerPoll::new(clock)))
    }

    pub fn daemon_with(&self, timer: Arc<dyn Timer>) -> Daemon {
        self.daemon_by(timer, &Config::default())
    }

    pub fn daemon_by(&self, timer: Arc<dyn Timer>, config: &Config) -> Daemon {
        let mut handlers = Handlers::new();
        let late = Arc::clone(&self.late);
        handlers.on(("Job", "run"), move |task: TaskContext, _: Vec<String>| {
            late.lock().unwrap().push(task.lateness_ms());
            async { Ok(()) }
        });
        let parts = Parts {
            membership: Arc::new(Seen(self.clone())),
            ..parts(Arc::clone(&self.ledger) as _, timer, handlers, config)
        };
        let metrics = Arc::clone(&parts.metrics);
        let engine = Engine::with_parts(parts, config);
        let status = engine.handle();
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
    pub async fn create(&self, prefix: &str, count: i64, first: Duration) {
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

    pub async fn until_done(&self, count: u64) {
        until(format!("{count} tasks are done"), async || {
            self.ledger.stats().await.unwrap().done >= count
        })
        .await;
    }

    /// A member that says this about itself and does nothing.
    pub async fn show(&self, id: u64, readiness: Readiness, handler: &str) {
        self.show_hearing(id, readiness, handler, false).await;
    }

    /// One that also says whether it hears what happens to keys.
    pub async fn show_hearing(
        &self,
        id: u64,
        readiness: Readiness,
        handler: &str,
        listening: bool,
    ) {
        let now = self.ledger.clock().now();
        let note = Heartbeat {
            id: MemberId(id),
            name: "silent".into(),
            version: String::new(),
            since: UnixMs(0),
            until: now.plus(LIFETIME),
            readiness,
            listening,
            expired_only: false,
            forwards: listening,
            timer: String::new(),
            capabilities: Capabilities {
                handlers: vec![handler.to_owned()],
                ..Capabilities::default()
            },
            idle_since: Vec::new(),
            queues: Default::default(),
        };
        self.membership.exchange(&note, now).await.unwrap();
    }

    /// Keeps on showing it.
    pub fn keep_shown(&self, readiness: Readiness, handler: &'static str) {
        let ground = self.clone();
        tokio::spawn(async move {
            loop {
                ground.show(7, readiness, handler).await;
                sleep(REFRESH).await;
            }
        });
    }

    pub fn late(&self) -> Vec<u64> {
        std::mem::take(&mut *self.late.lock().unwrap())
    }
}

impl Daemon {
    pub fn metric(&self, name: &str) -> u64 {
        metrics::value(&self.metrics.render(), name) as u64
    }

    /// Waits until this has been counted once or more.
    pub async fn until_counted(&self, name: &str, within: Duration) {
        until_within(within, format!("`{name}` is counted"), async || {
            self.metric(name) > 0
        })
        .await;
    }

    pub async fn until_members(&self, count: usize) {
        until(format!("{count} members are known"), async || {
            self.status.members() == count
        })
        .await;
    }

    pub async fn stop(self) {
        self.stop.cancel();
        self.running.await.unwrap();
    }
}

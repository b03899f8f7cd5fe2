//! Background tasks, which run beside the main path. Each is a value with its own state; all are started and supervised
//! here.

pub mod adoption;
pub mod arm_horizon;
pub mod audit;
pub mod audit_lock;
pub mod gauges;
pub mod history;
pub mod look_ahead;
pub mod membership;
pub mod overdue;
pub mod pauses;
pub mod rate_limit;
pub mod recovery;
pub mod recurring;
pub mod retention;
pub mod sweep;
pub mod unarmed;

use std::sync::Arc;

use futures_util::future::BoxFuture;
use tokio::sync::watch;
use tokio_util::task::TaskTracker;

use self::adoption::Adopter;
use self::arm_horizon::ArmHorizon;
use self::audit::Audit;
use self::audit_lock::AuditLock;
use self::gauges::{QueueGauges, TaskGauges};
use self::history::HistoryKeeper;
use self::look_ahead::LookAhead;
use self::membership::MembershipTask;
use self::pauses::PauseReader;
use self::rate_limit::RateLimits;
use self::recovery::Recovery;
use self::recurring::Recurring;
use self::retention::Retention;
use self::sweep::Sweep;
use self::unarmed::Unarmed;
use super::candidates::Candidates;
use super::claimant::Processes;
use super::handle::Handle;
use super::history::History;
use super::lease_watch::LeaseWatch;
use super::pipeline::Pipeline;
use super::pull::PullQueues;
use super::pull::idle::IdleWatch;
use super::sink::TimerSink;
use crate::config::{RecurringConfig, RetentionConfig};

/// The background tasks of an engine, and what they work on.
pub struct Background {
    /// Membership heartbeat. Runs until the last run is settled.
    pub membership: Arc<MembershipTask>,
    /// Reads the pauses.
    pub pauses: PauseReader,
    /// Compares the armed keys with the ledger.
    pub audit: Audit,
    adopter: Arc<Adopter>,
    pipeline: Arc<Pipeline>,
    candidates: Arc<Candidates>,
    lease_watch: Arc<LeaseWatch>,
    processes: Processes,
    pull: PullQueues,
    handle: Handle,
    history: Arc<History>,
    recurring: watch::Receiver<Vec<RecurringConfig>>,
    retention: watch::Receiver<RetentionConfig>,
}

impl Background {
    /// Creates the background tasks of a pipeline.
    pub fn new(
        pipeline: Arc<Pipeline>,
        handle: &Handle,
        candidates: Arc<Candidates>,
        lease_watch: Arc<LeaseWatch>,
        processes: Processes,
    ) -> Self {
        let deps = || Arc::clone(&pipeline.deps);
        let queue = || Arc::clone(&pipeline.queue);
        let adopter = Arc::new(Adopter {
            deps: deps(),
            queue: queue(),
            candidates: Arc::clone(&candidates),
        });
        Self {
            membership: Arc::new(MembershipTask {
                deps: deps(),
                queue: queue(),
            }),
            pauses: PauseReader {
                deps: deps(),
                pauses: Arc::clone(&pipeline.pauses),
            },
            audit: Audit {
                deps: deps(),
                queue: queue(),
                adopter: Arc::clone(&adopter),
                lock: AuditLock { deps: deps() },
            },
            adopter,
            pipeline,
            candidates,
            lease_watch,
            processes,
            pull: handle.pull(),
            handle: handle.clone(),
            history: handle.history(),
            recurring: handle.recurring.subscribe(),
            retention: handle.retention.subscribe(),
        }
    }

    /// Starts all background tasks except the heartbeat. They end when the engine stops.
    pub fn start(self, tasks: &TaskTracker) {
        let deps = || Arc::clone(&self.pipeline.deps);
        let queue = || Arc::clone(&self.pipeline.queue);
        let pauses = || Arc::clone(&self.pipeline.pauses);
        let sweep = Sweep {
            deps: deps(),
            queue: queue(),
            pauses: pauses(),
        };
        let recovery = Recovery {
            deps: deps(),
            queue: queue(),
            leases: Arc::clone(&self.pipeline.leases),
            watch: self.lease_watch,
            processes: self.processes,
        };
        let recurring = Recurring {
            deps: deps(),
            wanted: self.recurring,
        };
        let rate_limits = Arc::new(RateLimits {
            deps: deps(),
            queue: queue(),
            pauses: pauses(),
            claimer: Arc::clone(&self.pipeline.claimer),
            local: Default::default(),
        });
        let queue_gauges = QueueGauges {
            deps: deps(),
            queue: queue(),
        };
        let retention = Retention {
            deps: deps(),
            configured: self.retention,
        };
        let task_gauges = TaskGauges {
            deps: deps(),
            handle: self.handle,
            pauses: pauses(),
        };
        let history = HistoryKeeper {
            deps: deps(),
            history: self.history,
        };
        let unarmed = Unarmed {
            deps: deps(),
            queue: queue(),
            candidates: Arc::clone(&self.candidates),
            claimer: Arc::clone(&self.pipeline.claimer),
            pauses: pauses(),
        };
        let sink = Arc::new(TimerSink {
            deps: deps(),
            queue: queue(),
            candidates: self.candidates,
            claimer: Arc::clone(&self.pipeline.claimer),
        });

        // A panic in one of these ends the engine.
        let vital: [BoxFuture<'static, ()>; 9] = [
            Box::pin(self.pauses.run()),
            Box::pin(sweep.run()),
            Box::pin(recovery.run()),
            Box::pin(LookAhead { deps: deps() }.run()),
            Box::pin(self.audit.run()),
            Box::pin(ArmHorizon { deps: deps() }.run()),
            Box::pin(recurring.run()),
            Box::pin(rate_limits.run()),
            Box::pin(IdleWatch(self.pull).run()),
        ];
        // A panic in one of these does not: they only count or prune.
        let expendable: [BoxFuture<'static, ()>; 3] = [
            Box::pin(task_gauges.run()),
            Box::pin(queue_gauges.run()),
            Box::pin(retention.run()),
        ];
        let lifecycle = &self.pipeline.deps.lifecycle;
        for task in vital {
            tasks.spawn(lifecycle.watched(lifecycle.until_stopped(task)));
        }
        for task in expendable {
            tasks.spawn(lifecycle.until_stopped(task));
        }
        // These have work left when the engine stops.
        tasks.spawn(history.run());
        tasks.spawn(lifecycle.watched(self.adopter.run()));
        tasks.spawn(lifecycle.watched(lifecycle.lookups.track_future(unarmed.run())));
        let (timer, stopping) = (Arc::clone(&deps().timer), lifecycle.stopping.clone());
        let timer = async move { timer.run(sink, stopping).await };
        tasks.spawn(lifecycle.watched(lifecycle.lookups.track_future(timer)));
    }
}

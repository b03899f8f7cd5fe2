//! Background tasks, which run beside the main path. Each is a value with its own state; all are started and supervised
//! here.

pub mod adoption;
pub mod arm_horizon;
pub mod audit;
pub mod audit_lock;
pub mod gauges;
pub mod look_ahead;
pub mod membership;
pub mod pauses;
pub mod rate_limit;
pub mod recovery;
pub mod recurring;
pub mod retention;
pub mod sweep;

use std::sync::Arc;

use tokio_util::task::TaskTracker;

use self::adoption::Adopter;
use self::arm_horizon::ArmHorizon;
use self::audit::Audit;
use self::audit_lock::AuditLock;
use self::gauges::{QueueGauges, TaskGauges};
use self::look_ahead::LookAhead;
use self::membership::MembershipTask;
use self::pauses::PauseReader;
use self::rate_limit::RateLimits;
use self::recovery::Recovery;
use self::recurring::Recurring;
use self::retention::Retention;
use self::sweep::Sweep;
use super::candidates::Candidates;
use super::claimant::Processes;
use super::deps::Deps;
use super::handle::Handle;
use super::lease_watch::LeaseWatch;
use super::pipeline::Pipeline;
use super::sink::TimerSink;

/// The background tasks of an engine.
pub struct Background {
    deps: Arc<Deps>,
    sink: TimerSink,
    /// Membership heartbeat. Runs until the last run is settled.
    pub membership: Arc<MembershipTask>,
    /// Reads the pauses.
    pub pauses: PauseReader,
    /// Compares the armed keys with the ledger.
    pub audit: Audit,
    sweep: Sweep,
    recovery: Recovery,
    look_ahead: LookAhead,
    arm_horizon: ArmHorizon,
    adopter: Arc<Adopter>,
    recurring: Recurring,
    task_gauges: TaskGauges,
    queue_gauges: QueueGauges,
    rate_limits: Arc<RateLimits>,
    retention: Retention,
}

impl Background {
    /// Creates the background tasks of a pipeline.
    pub fn new(
        pipeline: &Pipeline,
        handle: &Handle,
        candidates: Arc<Candidates>,
        lease_watch: Arc<LeaseWatch>,
        processes: Processes,
    ) -> Self {
        let deps = || Arc::clone(&pipeline.deps);
        let queue = || Arc::clone(&pipeline.queue);
        let pauses = || Arc::clone(&pipeline.pauses);
        let adopter = Arc::new(Adopter {
            deps: deps(),
            queue: queue(),
            candidates: Arc::clone(&candidates),
        });
        Self {
            deps: deps(),
            sink: TimerSink {
                deps: deps(),
                queue: queue(),
                candidates,
            },
            membership: Arc::new(MembershipTask {
                deps: deps(),
                queue: queue(),
            }),
            pauses: PauseReader {
                deps: deps(),
                pauses: pauses(),
            },
            audit: Audit {
                deps: deps(),
                adopter: Arc::clone(&adopter),
                lock: AuditLock { deps: deps() },
            },
            sweep: Sweep {
                deps: deps(),
                queue: queue(),
                pauses: pauses(),
            },
            recovery: Recovery {
                deps: deps(),
                queue: queue(),
                leases: Arc::clone(&pipeline.leases),
                watch: lease_watch,
                processes,
            },
            look_ahead: LookAhead { deps: deps() },
            arm_horizon: ArmHorizon { deps: deps() },
            adopter,
            recurring: Recurring::new(deps(), handle.recurring.subscribe()),
            task_gauges: TaskGauges { deps: deps() },
            queue_gauges: QueueGauges {
                deps: deps(),
                queue: queue(),
            },
            rate_limits: Arc::new(RateLimits {
                deps: deps(),
                queue: queue(),
                pauses: pauses(),
                claimer: Arc::clone(&pipeline.claimer),
                local: Default::default(),
            }),
            retention: Retention {
                deps: deps(),
                configured: handle.retention.subscribe(),
            },
        }
    }

    /// Starts all background tasks except the heartbeat. They end when the engine stops. A panic in a task ends the
    /// engine, except in those that only count or prune.
    pub fn start(self, tasks: &TaskTracker) {
        let Self {
            deps,
            sink,
            membership: _,
            pauses,
            audit,
            sweep,
            recovery,
            look_ahead,
            arm_horizon,
            adopter,
            recurring,
            task_gauges,
            queue_gauges,
            rate_limits,
            retention,
        } = self;
        let lifecycle = &deps.lifecycle;
        tasks.spawn(lifecycle.watched(pauses.run()));
        tasks.spawn(lifecycle.watched(sweep.run()));
        tasks.spawn(lifecycle.watched(recovery.run()));
        tasks.spawn(lifecycle.watched(look_ahead.run()));
        tasks.spawn(lifecycle.watched(audit.run()));
        tasks.spawn(lifecycle.watched(arm_horizon.run()));
        tasks.spawn(lifecycle.watched(adopter.run()));
        tasks.spawn(lifecycle.watched(recurring.run()));
        tasks.spawn(lifecycle.watched(rate_limits.run()));
        tasks.spawn(task_gauges.run());
        tasks.spawn(queue_gauges.run());
        tasks.spawn(retention.run());
        let (timer, stopping) = (Arc::clone(&deps.timer), lifecycle.stopping.clone());
        tasks.spawn(lifecycle.watched(async move {
            timer.run(Arc::new(sink), stopping).await;
        }));
    }
}

//! Background tasks, which run beside the main path. Each is a value with its own state and its own dependencies; all are
//! started and supervised here.

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
use tokio_util::task::TaskTracker;

use self::adoption::Adopter;
use self::arm_horizon::ArmHorizon;
use self::audit::Audit;
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
use super::lifecycle::Lifecycle;
use super::pull::idle::IdleWatch;
use super::sink::TimerSink;
use crate::timer::Timer;

/// The background tasks of an engine.
pub struct Background {
    /// Membership heartbeat. Runs until the last run is settled.
    pub membership: Arc<MembershipTask>,
    /// Reads the pauses.
    pub pauses: PauseReader,
    /// Compares the armed keys with the ledger.
    pub audit: Audit,
    pub adopter: Arc<Adopter>,
    pub sweep: Sweep,
    pub recovery: Recovery,
    pub look_ahead: LookAhead,
    pub arm_horizon: ArmHorizon,
    pub recurring: Recurring,
    pub rate_limits: Arc<RateLimits>,
    pub idle_watch: IdleWatch,
    pub task_gauges: TaskGauges,
    pub queue_gauges: QueueGauges,
    pub retention: Retention,
    pub history: HistoryKeeper,
    pub unarmed: Unarmed,
    pub timer: Arc<dyn Timer>,
    pub sink: Arc<TimerSink>,
}

impl Background {
    /// Starts all background tasks except the heartbeat. They end when the engine stops.
    pub fn start(self, tasks: &TaskTracker, lifecycle: &Lifecycle) {
        let Self {
            membership: _,
            pauses,
            audit,
            adopter,
            sweep,
            recovery,
            look_ahead,
            arm_horizon,
            recurring,
            rate_limits,
            idle_watch,
            task_gauges,
            queue_gauges,
            retention,
            history,
            unarmed,
            timer,
            sink,
        } = self;
        // A panic in one of these ends the engine.
        let vital: [BoxFuture<'static, ()>; 9] = [
            Box::pin(pauses.run()),
            Box::pin(sweep.run()),
            Box::pin(recovery.run()),
            Box::pin(look_ahead.run()),
            Box::pin(audit.run()),
            Box::pin(arm_horizon.run()),
            Box::pin(recurring.run()),
            Box::pin(rate_limits.run()),
            Box::pin(idle_watch.run()),
        ];
        // A panic in one of these does not: they only count or prune.
        let expendable: [BoxFuture<'static, ()>; 3] = [
            Box::pin(task_gauges.run()),
            Box::pin(queue_gauges.run()),
            Box::pin(retention.run()),
        ];
        for task in vital {
            tasks.spawn(lifecycle.watched(lifecycle.until_stopped(task)));
        }
        for task in expendable {
            tasks.spawn(lifecycle.until_stopped(task));
        }
        // These have work left when the engine stops.
        tasks.spawn(history.run());
        tasks.spawn(lifecycle.watched(adopter.run()));
        tasks.spawn(lifecycle.watched(lifecycle.lookups.track_future(unarmed.run())));
        let stopping = lifecycle.stopping.clone();
        let timer = async move { timer.run(sink, stopping).await };
        tasks.spawn(lifecycle.watched(lifecycle.lookups.track_future(timer)));
    }
}

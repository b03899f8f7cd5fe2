//! Constructs the background tasks.

use std::sync::Arc;

use super::{Common, keeps_entries};
use crate::engine::activity::Activities;
use crate::engine::background::Background;
use crate::engine::background::adoption::Adopter;
use crate::engine::background::arm_horizon::ArmHorizon;
use crate::engine::background::audit::Audit;
use crate::engine::background::audit_lock::AuditLock;
use crate::engine::background::gauges::{QueueGauges, TaskGauges};
use crate::engine::background::history::HistoryKeeper;
use crate::engine::background::look_ahead::LookAhead;
use crate::engine::background::membership::MembershipTask;
use crate::engine::background::pauses::PauseReader;
use crate::engine::background::rate_limit::RateLimits;
use crate::engine::background::recovery::Recovery;
use crate::engine::background::recurring::Recurring;
use crate::engine::background::retention::Retention;
use crate::engine::background::sweep::Sweep;
use crate::engine::background::unarmed::Unarmed;
use crate::engine::claim::Claimer;
use crate::engine::handle::Handle;
use crate::engine::pull::idle::IdleWatch;
use crate::engine::sink::TimerSink;

impl Common<'_> {
    /// Constructs the background tasks of these stages.
    pub(super) fn background(&self, handle: &Handle, claimer: Arc<Claimer>) -> Background {
        let ledger = &self.parts.ledger;
        let clock = || self.clock.clone();
        let lifecycle = || self.lifecycle.clone();
        let health = || Arc::clone(&self.health);
        let timer = || Arc::clone(&self.parts.timer);
        let router = || Arc::clone(&self.parts.router);
        let ownership = || Arc::clone(&self.ownership);
        let membership = || Arc::clone(&self.parts.membership);
        let metrics = || Arc::clone(&self.parts.metrics);
        let reporter = || Arc::clone(&self.reporter);
        let queue = || Arc::clone(&self.queue);
        let pauses = || Arc::clone(&self.pauses);
        let candidates = || Arc::clone(&self.candidates);
        let daemon = || self.claimant.daemon.clone();
        let Activities {
            adoption,
            arm_horizon,
            audit,
            history,
            lease_checks,
            lease_scan,
            look_ahead,
            membership: heartbeat,
            pauses: pause_reads,
            queue_gauges,
            rate_limits,
            recurring,
            retention,
            sweep,
            task_gauges,
        } = self.activities.clone();
        let adopter = Arc::new(Adopter {
            claims: ledger.clone(),
            adoption: ledger.clone(),
            clock: clock(),
            health: health(),
            timer: timer(),
            entries: self.entries.clone(),
            listening: self.listening.clone(),
            horizon: self.config.nudge.horizon,
            membership: membership(),
            router: router(),
            queue: queue(),
            candidates: candidates(),
            lifecycle: lifecycle(),
            reporter: reporter(),
            activity: adoption,
        });
        Background {
            membership: Arc::new(MembershipTask {
                clock: clock(),
                health: health(),
                timer: timer(),
                listening: self.listening.clone(),
                membership: membership(),
                ownership: ownership(),
                router: router(),
                queue: queue(),
                running: Arc::clone(&self.running),
                daemon: daemon(),
                concurrency: self.config.engine.concurrency,
                drain_timeout: self.config.engine.drain_timeout,
                lifecycle: lifecycle(),
                reporter: reporter(),
                activity: heartbeat,
                lease_scan: Arc::clone(&lease_scan),
                look_ahead: Arc::clone(&look_ahead),
                pull: handle.pull(),
            }),
            pauses: PauseReader {
                ledger: ledger.clone(),
                health: health(),
                daemon: daemon(),
                pauses: pauses(),
                metrics: metrics(),
                activity: pause_reads,
                sweep: Arc::clone(&sweep),
            },
            audit: Audit {
                claims: ledger.clone(),
                scans: ledger.clone(),
                clock: clock(),
                health: health(),
                timer: timer(),
                entries: self.entries.clone(),
                listening: self.listening.clone(),
                router: router(),
                undeleter: Arc::clone(&self.undeleter),
                queue: queue(),
                adopter: Arc::clone(&adopter),
                lock: AuditLock {
                    membership: membership(),
                    ownership: ownership(),
                    router: router(),
                    clock: clock(),
                },
                reporter: reporter(),
                activity: Arc::clone(&audit),
            },
            adopter,
            sink: Arc::new(TimerSink {
                claims: ledger.clone(),
                router: router(),
                ownership: ownership(),
                queue: queue(),
                candidates: candidates(),
                claimer: Arc::clone(&claimer),
                sweep: Arc::clone(&sweep),
                audit,
                metrics: metrics(),
            }),
            sweep: Sweep {
                scans: ledger.clone(),
                clock: clock(),
                health: health(),
                router: router(),
                ownership: ownership(),
                queue: queue(),
                pauses: pauses(),
                config: self.config.sweep,
                activity: sweep,
            },
            recovery: Recovery {
                claims: ledger.clone(),
                scans: ledger.clone(),
                clock: clock(),
                health: health(),
                router: router(),
                ownership: ownership(),
                queue: queue(),
                leases: Arc::clone(&self.leases),
                watch: Arc::clone(&self.lease_watch),
                processes: self.processes.clone(),
                lease: self.claimant.lease,
                lease_scan,
                lease_checks,
            },
            look_ahead: LookAhead {
                scans: ledger.clone(),
                clock: clock(),
                health: health(),
                timer: timer(),
                router: router(),
                ownership: ownership(),
                undeleter: Arc::clone(&self.undeleter),
                nudge: self.config.nudge,
                probe: self.config.probe().filter(|_| self.config.nudge.enabled),
                interval: self.config.sweep.interval,
                activity: look_ahead,
            },
            arm_horizon: ArmHorizon {
                scans: ledger.clone(),
                clock: clock(),
                health: health(),
                timer: timer(),
                ownership: ownership(),
                activity: arm_horizon,
            },
            recurring: Recurring {
                ledger: ledger.clone(),
                clock: clock(),
                health: health(),
                router: router(),
                rearmer: Arc::clone(&self.rearmer),
                wanted: handle.recurring.subscribe(),
                activity: recurring,
            },
            rate_limits: Arc::new(RateLimits {
                limiter: Arc::clone(&self.parts.limiter),
                ownership: ownership(),
                queue: queue(),
                pauses: pauses(),
                claimer: Arc::clone(&claimer),
                lifecycle: lifecycle(),
                local: Default::default(),
                activity: rate_limits,
            }),
            idle_watch: IdleWatch(handle.pull()),
            task_gauges: TaskGauges {
                admin: ledger.clone(),
                scans: ledger.clone(),
                clock: clock(),
                health: health(),
                router: router(),
                ownership: ownership(),
                handle: handle.clone(),
                pauses: pauses(),
                reporter: reporter(),
                activity: task_gauges,
            },
            queue_gauges: QueueGauges {
                health: health(),
                queue: queue(),
                metrics: metrics(),
                activity: queue_gauges,
            },
            retention: Retention {
                ledger: ledger.clone(),
                health: health(),
                timer: timer(),
                keeps_entries: keeps_entries(&self.entries),
                router: router(),
                ownership: ownership(),
                configured: handle.retention.subscribe(),
                reporter: reporter(),
                activity: retention,
            },
            history: HistoryKeeper {
                clock: clock(),
                ownership: ownership(),
                history: handle.history(),
                lifecycle: lifecycle(),
                reporter: reporter(),
                activity: history,
            },
            unarmed: Unarmed {
                queue: queue(),
                candidates: candidates(),
                claimer,
                pauses: pauses(),
                lifecycle: lifecycle(),
            },
            timer: timer(),
        }
    }
}

//! Wiring: constructs the stages and background tasks of an engine. Each gets what it needs, and no more.

mod background;

use std::sync::Arc;

use tokio::sync::{Semaphore, watch};

use super::activity::Activities;
use super::background::Background;
use super::candidates::Candidates;
use super::claim::Claimer;
use super::claimant::Processes;
use super::conditions::Conditions;
use super::entries::EntryRemover;
use super::execute::Executor;
use super::execute::running::RunningHandlers;
use super::handle::Handle;
use super::health::LedgerHealth;
use super::history::History;
use super::lease::{LeaseKeeper, Leases};
use super::lease_watch::LeaseWatch;
use super::lifecycle::Lifecycle;
use super::negative_cache::NegativeCache;
use super::occurrence::Occurrences;
use super::parts::Parts;
use super::pauses::PauseWatch;
use super::pipeline::Pipeline;
use super::pull::dispatch::Dispatcher;
use super::pull::{PullParts, PullQueues};
use super::queue::SignalQueue;
use super::rearm::Rearmer;
use super::reports::Reporter;
use super::settle::Settler;
use super::suspects::Suspects;
use super::undelete::{Undeleter, UnderWay};
use crate::clock::LedgerClock;
use crate::config::Config;
use crate::ledger::Claimant;
use crate::membership::{MemberId, Ownership};
use crate::timer::{Entries, Listening};

/// The stages and background tasks of an engine, wired to each other.
pub struct Wired {
    pub parts: Parts,
    pub claimant: Claimant,
    pub handle: Handle,
    pub pipeline: Arc<Pipeline>,
    pub lease_keeper: LeaseKeeper,
    pub background: Background,
}

impl Wired {
    /// Constructs the stages and background tasks of an engine that is not started.
    pub fn new(parts: Parts, config: &Config) -> Self {
        let common = Common::new(parts, config);
        let claimer = Arc::new(common.claimer());
        let executor = Arc::new(common.executor());
        let pull = common.pull_queues();
        let pipeline = Arc::new(Pipeline {
            concurrency: config.engine.concurrency,
            lifecycle: common.lifecycle.clone(),
            queue: Arc::clone(&common.queue),
            pauses: Arc::clone(&common.pauses),
            leases: Arc::clone(&common.leases),
            claimer: Arc::clone(&claimer),
            executor: Arc::clone(&executor),
            dispatcher: Arc::new(Dispatcher {
                executor,
                queues: pull.clone(),
            }),
            settler: Arc::new(common.settler()),
        });
        let handle = common.handle(pull);
        Self {
            lease_keeper: LeaseKeeper {
                leases: Arc::clone(&common.leases),
                claims: common.parts.ledger.clone(),
                health: Arc::clone(&common.health),
            },
            background: common.background(&handle, claimer),
            claimant: common.claimant,
            parts: common.parts,
            handle,
            pipeline,
        }
    }
}

/// The components that several stages or background tasks share.
struct Common<'a> {
    parts: Parts,
    config: &'a Config,
    entries: Option<Arc<dyn Entries>>,
    listening: Option<Arc<dyn Listening>>,
    clock: LedgerClock,
    processes: Processes,
    claimant: Claimant,
    lifecycle: Lifecycle,
    activities: Activities,
    reporter: Arc<Reporter>,
    health: Arc<LedgerHealth>,
    ownership: Arc<Ownership>,
    queue: Arc<SignalQueue>,
    pauses: Arc<PauseWatch>,
    suspects: Arc<Suspects>,
    running: Arc<RunningHandlers>,
    candidates: Arc<Candidates>,
    leases: Arc<Leases>,
    lease_watch: Arc<LeaseWatch>,
    rearmer: Arc<Rearmer>,
    undeleter: Arc<Undeleter>,
}

impl<'a> Common<'a> {
    fn new(parts: Parts, config: &'a Config) -> Self {
        let lease = config.engine.lease;
        let clock = parts.ledger.clock().clone();
        let entries = Arc::clone(&parts.timer).entries();
        let listening = Arc::clone(&parts.timer).listening();
        let processes = Processes::here();
        let lifecycle = Lifecycle::default();
        let activities = Activities::default();
        let reporter = Arc::new(Reporter::new(Arc::clone(&parts.metrics)));
        let health = Arc::new(LedgerHealth::new(
            Arc::clone(&parts.ledger),
            lease,
            Arc::clone(&activities.lease_scan),
            Arc::clone(&reporter),
        ));
        let ownership = Arc::new(Ownership::new(MemberId::random(), clock.clone()));
        let queue = Arc::new(SignalQueue::new(
            Arc::clone(&parts.metrics),
            Arc::clone(&ownership),
            Arc::clone(&parts.router),
            config.engine.concurrency,
        ));
        let rearmer = Arc::new(Rearmer {
            timer: Arc::clone(&parts.timer),
            entries: entries.clone(),
            clock: clock.clone(),
            horizon: config.nudge.horizon,
            lifecycle: lifecycle.clone(),
        });
        let undeleter = Arc::new(Undeleter {
            scans: parts.ledger.clone(),
            adoption: parts.ledger.clone(),
            timer: Arc::clone(&parts.timer),
            keeps_entries: keeps_entries(&entries),
            clock: clock.clone(),
            health: Arc::clone(&health),
            rearmer: Arc::clone(&rearmer),
            lifecycle: lifecycle.clone(),
            queue: Arc::clone(&queue),
            metrics: Arc::clone(&parts.metrics),
            under_way: UnderWay::default(),
        });
        Self {
            claimant: Claimant {
                daemon: processes.own_name(),
                lease,
            },
            processes,
            pauses: Arc::default(),
            suspects: Arc::default(),
            running: Arc::default(),
            candidates: Arc::new(Candidates::new(clock.clone())),
            leases: Arc::new(Leases::new(lease)),
            lease_watch: Arc::default(),
            parts,
            config,
            entries,
            listening,
            clock,
            lifecycle,
            activities,
            reporter,
            health,
            ownership,
            queue,
            rearmer,
            undeleter,
        }
    }

    fn claimer(&self) -> Claimer {
        Claimer {
            claims: self.parts.ledger.clone(),
            clock: self.clock.clone(),
            health: Arc::clone(&self.health),
            claimant: self.claimant.clone(),
            timer: Arc::clone(&self.parts.timer),
            rearmer: Arc::clone(&self.rearmer),
            entries: EntryRemover {
                entries: self.entries.clone(),
                claims: self.parts.ledger.clone(),
                adoption: self.parts.ledger.clone(),
                reporter: Arc::clone(&self.reporter),
            },
            undeleter: Arc::clone(&self.undeleter),
            router: Arc::clone(&self.parts.router),
            ownership: Arc::clone(&self.ownership),
            suspects: Arc::clone(&self.suspects),
            queue: Arc::clone(&self.queue),
            pauses: Arc::clone(&self.pauses),
            candidates: Arc::clone(&self.candidates),
            lease_watch: Arc::clone(&self.lease_watch),
            sweep: Arc::clone(&self.activities.sweep),
            lifecycle: self.lifecycle.clone(),
            reporter: Arc::clone(&self.reporter),
            tracer: self.parts.tracer.clone(),
            without_row: NegativeCache::default(),
            turn: Semaphore::new(1),
        }
    }

    fn executor(&self) -> Executor {
        Executor {
            ledger: Arc::clone(&self.parts.ledger),
            claims: self.parts.ledger.clone(),
            clock: self.clock.clone(),
            health: Arc::clone(&self.health),
            occurrences: Occurrences {
                producer: self.parts.ledger.clone(),
                clock: self.clock.clone(),
                router: Arc::clone(&self.parts.router),
                health: Arc::clone(&self.health),
                rearmer: Arc::clone(&self.rearmer),
            },
            conditions: Conditions::new(
                self.parts.ledger.clone(),
                self.clock.clone(),
                Arc::clone(&self.health),
            ),
            router: Arc::clone(&self.parts.router),
            pauses: Arc::clone(&self.pauses),
            suspects: Arc::clone(&self.suspects),
            running: Arc::clone(&self.running),
            sweep: Arc::clone(&self.activities.sweep),
            lifecycle: self.lifecycle.clone(),
            reporter: Arc::clone(&self.reporter),
            tracer: self.parts.tracer.clone(),
        }
    }

    fn settler(&self) -> Settler {
        Settler {
            claims: self.parts.ledger.clone(),
            clock: self.clock.clone(),
            health: Arc::clone(&self.health),
            daemon: self.claimant.daemon.clone(),
            rearmer: Arc::clone(&self.rearmer),
            queue: Arc::clone(&self.queue),
            leases: Arc::clone(&self.leases),
            lifecycle: self.lifecycle.clone(),
            reporter: Arc::clone(&self.reporter),
        }
    }

    fn pull_queues(&self) -> PullQueues {
        PullQueues::new(PullParts {
            claims: self.parts.ledger.clone(),
            documents: self.parts.ledger.clone(),
            clock: self.clock.clone(),
            router: Arc::clone(&self.parts.router),
            ownership: Arc::clone(&self.ownership),
            queue: Arc::clone(&self.queue),
            lifecycle: self.lifecycle.clone(),
            reporter: Arc::clone(&self.reporter),
            tracer: self.parts.tracer.clone(),
            sweep: Arc::clone(&self.activities.sweep),
            membership: Arc::clone(&self.activities.membership),
        })
    }

    fn handle(&self, pull: PullQueues) -> Handle {
        let daemon = &self.claimant.daemon;
        let history = History::new(
            self.parts.ledger.clone(),
            self.clock.clone(),
            daemon.clone(),
        );
        Handle {
            daemon: daemon.as_str().into(),
            clock: self.clock.clone(),
            health: Arc::clone(&self.health),
            listening: self.listening.clone(),
            keeps_entries: keeps_entries(&self.entries),
            router: Arc::clone(&self.parts.router),
            ownership: Arc::clone(&self.ownership),
            shows_all_daemons: self.parts.membership.shows_all(),
            lifecycle: self.lifecycle.clone(),
            activities: self.activities.clone(),
            leases: Arc::clone(&self.leases),
            pull,
            queue: Arc::clone(&self.queue),
            history: Arc::new(history),
            recurring: watch::Sender::new(self.config.recurring.clone()),
            retention: watch::Sender::new(self.config.retention),
        }
    }
}

/// True if the timer keeps an entry for every task, rather than a key.
fn keeps_entries(entries: &Option<Arc<dyn Entries>>) -> bool {
    entries.as_ref().is_some_and(|entries| entries.has(None))
}

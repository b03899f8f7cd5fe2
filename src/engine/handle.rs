//! Handle to a running engine: status, and changed configuration.

use std::sync::Arc;
use std::time::Duration;

use tokio::sync::watch;

use super::activity::{Activities, BackgroundStatus};
use super::capabilities::capabilities;
use super::health::LedgerHealth;
use super::history::History;
use super::lease::Leases;
use super::lifecycle::Lifecycle;
use super::pull::PullQueues;
use super::queue::SignalQueue;
use super::queue::fair::Blocked;
use crate::clock::LedgerClock;
use crate::config::{RecurringConfig, RetentionConfig};
use crate::diagnosis::{Daemons, Facts, LedgerState, RouteFacts, Unlisted, WhyCause, WhyFacts};
use crate::handler::Router;
use crate::membership::{GoneMember, Member, Ownership, Readiness};
use crate::task::{Pause, TaskKey, UnixMs};
use crate::timer::{Cause, Listening};

/// Handle to a running engine, for health checks and changes of its configuration. Cheap to clone.
#[derive(Clone)]
pub struct Handle {
    pub(super) daemon: Arc<str>,
    pub(super) clock: LedgerClock,
    pub(super) health: Arc<LedgerHealth>,
    pub(super) listening: Option<Arc<dyn Listening>>,
    /// True if entries stay after their due time, unlike keys.
    pub(super) keeps_entries: bool,
    pub(super) router: Arc<Router>,
    pub(super) ownership: Arc<Ownership>,
    /// False if daemons that are not listed may share the ledger.
    pub(super) shows_all_daemons: bool,
    pub(super) lifecycle: Lifecycle,
    pub(super) activities: Activities,
    pub(super) leases: Arc<Leases>,
    pub(super) pull: PullQueues,
    pub(super) queue: Arc<SignalQueue>,
    pub(super) history: Arc<History>,
    pub(super) recurring: watch::Sender<Vec<RecurringConfig>>,
    pub(super) retention: watch::Sender<RetentionConfig>,
}

impl Handle {
    /// True if the ledger carried out the latest statements, at most some seconds ago.
    pub fn ledger_answers(&self) -> bool {
        self.health.is_good()
    }

    /// Describes the latest failure if the ledger does not [answer](Self::ledger_answers). Contains no names or data.
    pub fn ledger_trouble(&self) -> Option<String> {
        self.health.trouble()
    }

    /// How long the ledger has not answered; `None` if it answers, or has not failed yet.
    pub fn ledger_fails_for(&self) -> Option<Duration> {
        self.health.failing_for()
    }

    /// Whether the ledger answers, as far as this daemon knows.
    pub fn ledger_state(&self) -> LedgerState {
        let now = self.clock.now();
        let since = self.ledger_fails_for().map(|ago| now.minus(ago));
        LedgerState::of(self.ledger_answers(), self.ledger_trouble(), since)
    }

    /// What the daemon knows of itself at once, without asking anyone.
    pub fn facts(&self) -> Facts {
        let background = self.background().into_iter();
        let failing = background.filter_map(|task| Some((task.name, task.error?)));
        Facts {
            ledger: self.ledger_state(),
            is_listening: self.is_listening(),
            clock_step: self.clock.latest_step(),
            hears_keys: self.hears_keys(),
            is_stopping: self.is_stopping(),
            failing: failing.collect(),
            ..Facts::default()
        }
    }

    /// True if the timer receives expired events; `None` for a timer without a server.
    pub fn is_listening(&self) -> Option<bool> {
        let server = self.listening.as_ref()?;
        Some(server.is_listening())
    }

    /// True if the daemon adopts keys that it hears being armed: without events, a bare `SETEX` may be lost.
    pub fn hears_keys(&self) -> bool {
        let has_keys = self.listening.is_some() && !self.keeps_entries;
        has_keys && self.router.adopts_any()
    }

    /// Waits until the daemon is ready: the ledger answers, and the timer receives events if it has a server.
    pub async fn ready(&self) {
        const LOOK_EVERY: Duration = Duration::from_millis(5);
        while !self.ledger_answers() || self.is_listening() == Some(false) {
            tokio::time::sleep(LOOK_EVERY).await;
        }
    }

    /// The pull queues, from which workers take tasks.
    pub fn pull(&self) -> PullQueues {
        self.pull.clone()
    }

    /// Name of the pull queue from which workers take the tasks of this key; `None` if this daemon runs them itself, or has
    /// no route for them.
    pub fn pull_queue_of(&self, key: &TaskKey) -> Option<Arc<str>> {
        let route = self.router.find(key)?;
        route.pull.map(|pull| pull.queue)
    }

    /// True if this daemon has a handler or a route for the key.
    pub fn runs(&self, key: &TaskKey) -> bool {
        self.router.runs(key)
    }

    /// Status of the engine's background tasks, by name.
    pub fn background(&self) -> Vec<BackgroundStatus> {
        self.activities.status()
    }

    /// What the daemons did in each minute of the last 24 h.
    pub fn history(&self) -> Arc<History> {
        Arc::clone(&self.history)
    }

    /// The name of this daemon, as claimed rows have it.
    pub fn daemon(&self) -> &str {
        &self.daemon
    }

    /// True for one of the daemons that share the ledger: it does what need not be done by each.
    pub fn is_first(&self) -> bool {
        self.ownership.is_first()
    }

    /// Number of daemons known to share the ledger, including this one.
    pub fn members(&self) -> usize {
        self.ownership.members()
    }

    /// The daemons known to share the ledger, this one first. Empty until the first heartbeats were exchanged.
    pub fn daemons(&self) -> Vec<Member> {
        self.ownership.fleet()
    }

    /// The names of the daemons that have ended without saying so, at most `span` ago, and whose place no other has taken
    /// since.
    pub fn gone(&self, span: Duration) -> Vec<String> {
        let gone = self.ownership.gone(span).into_iter();
        gone.map(|GoneMember { name, .. }| name).collect()
    }

    /// True if the heartbeats of the other daemons were read lately, or there can be no others.
    pub fn hears_daemons(&self) -> bool {
        self.ownership.is_current()
    }

    /// What is known of daemons that are not [listed](Self::daemons).
    pub fn unlisted(&self) -> Unlisted {
        match (self.shows_all_daemons, self.hears_daemons()) {
            (false, _) => Unlisted::Unknown,
            (true, false) => Unlisted::Unheard,
            (true, true) => Unlisted::None,
        }
    }

    /// What is known here about why tasks do not start. `pauses` are all pauses and holds.
    pub fn why_facts(&self, pauses: Vec<Pause>) -> WhyFacts {
        /// Daemons that are gone for longer are forgotten.
        const GONE_FOR: Duration = Duration::from_secs(3600);
        let now = self.clock.now();
        let others = self.daemons().into_iter().filter(|member| !member.is_this);
        let live = std::iter::once(self.this(now)).chain(others).collect();
        let gone = self.ownership.gone(GONE_FOR);
        let fails_for = self.ledger_fails_for();
        WhyFacts {
            daemons: Daemons::new(live, gone).with_unlisted(self.unlisted()),
            pauses,
            ledger_gone: (!self.ledger_answers()).then(|| Some(now.minus(fails_for?))),
            now,
        }
    }

    /// What is known here about the route of a key; `None` if it has none here.
    pub fn route_facts(&self, key: &TaskKey) -> Option<RouteFacts> {
        let route = self.router.find(key)?;
        let rate = route.limits.rate.map(WhyCause::Rate);
        let waits = || {
            let routes = self.queue.waiting_by_route();
            routes
                .iter()
                .any(|(name, waiting)| **name == *route.name && *waiting > 0)
        };
        let limit = match self.queue.blocked_like(&route, key) {
            Some(Blocked::Concurrency) => {
                let limit = route.limits.concurrency;
                limit.map(|limit| WhyCause::Concurrency(limit.get()))
            }
            Some(Blocked::Slots) => Some(WhyCause::NoSlot),
            Some(Blocked::Rate) => rate,
            Some(Blocked::Demand) => None,
            // Between two grants, some of those that wait may start.
            None => rate.filter(|_| waits()),
        };
        Some(RouteFacts::of_route(&route).limited(limit))
    }

    /// This daemon as it is now, which is newer than its heartbeat.
    fn this(&self, now: UnixMs) -> Member {
        let this_member = self.daemons().into_iter().find(|member| member.is_this);
        let status = self.pull.status();
        let (mut idle, mut idle_since) = (Vec::new(), Vec::new());
        for (at, pull) in self.router.pull_queues() {
            let queue = status.iter().find(|status| *status.queue == *pull.queue);
            let workers = queue.map_or(&[][..], |status| &status.workers);
            let asks = workers.iter().any(|worker| worker.waiting > 0);
            if let (false, Ok(at)) = (asks, u16::try_from(at)) {
                let seen = workers.iter().map(|worker| worker.seen_ago).min();
                idle.push(at);
                idle_since.push(seen.map_or(UnixMs(0), |ago| now.minus(ago)));
            }
        }
        Member {
            id: self.ownership.me(),
            name: self.daemon().to_owned(),
            version: env!("CARGO_PKG_VERSION").to_owned(),
            since: this_member
                .as_ref()
                .map_or(UnixMs(0), |this_member| this_member.since),
            readiness: match (self.is_stopping(), this_member) {
                (true, _) => Readiness::Away,
                (false, Some(this_member)) => this_member.readiness,
                (false, None) => Readiness::Ready,
            },
            listening: false,
            expired_only: false,
            timer: String::new(),
            capabilities: Arc::new(capabilities(&self.router, idle)),
            idle_since,
            queues: Arc::new(self.pull.asked()),
            is_this: true,
        }
    }

    /// True if the engine is stopping.
    pub fn is_stopping(&self) -> bool {
        self.lifecycle.leaving.is_cancelled() || self.lifecycle.stopping.is_cancelled()
    }

    /// Ends every run at once, without waiting for its settlement: for a process that is about to exit, so that no
    /// program it started outlives it.
    pub async fn end_runs(&self) {
        const PATIENCE: Duration = Duration::from_millis(500);
        self.lifecycle.stopping.cancel();
        self.lifecycle.runs.close();
        self.leases.interrupt_all();
        let _ = tokio::time::timeout(PATIENCE, self.lifecycle.runs.wait()).await;
    }

    /// Looks for due tasks at once: the ledger's clock was set forward.
    pub fn find_due(&self) {
        self.activities.sweep.activate(Cause::Asked);
    }

    /// Replaces the recurring tasks of the configuration. New and changed ones are written; removed ones continue, with
    /// a warning.
    pub fn take_recurring(&self, tasks: Vec<RecurringConfig>) {
        self.recurring.send_replace(tasks);
    }

    /// True if finished tasks are moved to the archive.
    pub fn archives(&self) -> bool {
        self.retention.borrow().archive
    }

    /// Replaces the retention of finished tasks. Pruning by the old one ends with the current batch.
    pub fn take_retention(&self, retention: RetentionConfig) {
        self.retention.send_if_modified(|kept| {
            let changed = *kept != retention;
            *kept = retention;
            changed
        });
    }

    /// Number of runs that are running or wait to be settled.
    pub fn running(&self) -> usize {
        self.leases.len()
    }
}

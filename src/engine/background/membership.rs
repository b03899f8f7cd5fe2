//! Membership heartbeat: publishes this daemon and updates task ownership.

use std::sync::Arc;
use std::time::Duration;

use tokio::time::{Instant, timeout};

use crate::clock::LedgerClock;
use crate::engine::activity::Activity;
use crate::engine::capabilities::capabilities;
use crate::engine::execute::running::RunningHandlers;
use crate::engine::health::LedgerHealth;
use crate::engine::lifecycle::Lifecycle;
use crate::engine::pull::PullQueues;
use crate::engine::queue::SignalQueue;
use crate::engine::reports::Reporter;
use crate::handler::Router;
use crate::membership::{
    Change, Heartbeat, LIFETIME, Member, Membership, MembershipError, Ownership, REFRESH, Readiness,
};
use crate::task::UnixMs;
use crate::timer::{Cause, Listening, Timer};

/// A daemon is full if no slot becomes free for this long, and handlers hold half of them.
const FULL_AFTER: Duration = Duration::from_millis(200);

/// A full daemon is ready again when one in this many of its slots is free, so that it does not flap.
const ROOM: usize = 8;

/// Timeout for an exchange of heartbeats.
const TIMEOUT: Duration = Duration::from_secs(1);

/// Time that a stopping daemon keeps working while the others learn that it leaves.
const HAND_OVER: Duration = Duration::from_millis(1_200);

/// Publishes this daemon's heartbeat, and keeps task ownership up to date.
pub struct MembershipTask {
    pub clock: LedgerClock,
    pub health: Arc<LedgerHealth>,
    pub timer: Arc<dyn Timer>,
    pub listening: Option<Arc<dyn Listening>>,
    pub membership: Arc<dyn Membership>,
    pub ownership: Arc<Ownership>,
    pub router: Arc<Router>,
    pub daemon: String,
    pub concurrency: usize,
    pub drain_timeout: Duration,
    pub lifecycle: Lifecycle,
    pub reporter: Arc<Reporter>,
    pub activity: Arc<Activity>,
    pub lease_scan: Arc<Activity>,
    pub look_ahead: Arc<Activity>,
    pub queue: Arc<SignalQueue>,
    pub running: Arc<RunningHandlers>,
    pub pull: PullQueues,
}

impl MembershipTask {
    /// Exchanges heartbeats with the other daemons every second. Never returns.
    pub async fn run(&self) {
        let mut readiness = Readiness::Ready;
        let since = self.clock.now();
        let activity = &self.activity;
        let mut cause = Cause::Start;
        let mut fleet = Vec::new();
        loop {
            readiness = self.readiness(readiness).await;
            let exchanged = activity.pass(cause, self.exchange(since, readiness));
            if let Err(error) = exchanged.await {
                self.log_failure(&error);
            }
            self.reporter.metrics.members(self.ownership.members());
            let fleet_now = self.ownership.fleet().into_iter();
            let mut now: Vec<Member> = fleet_now.map(Member::steady).collect();
            for this in now.iter_mut().filter(|member| member.is_this) {
                // What the workers of this daemon do is noted when they do it.
                this.queues = Arc::default();
            }
            let before = std::mem::replace(&mut fleet, now);
            if before != fleet {
                self.reporter.metrics.members_changed();
            }
            cause = activity.next(REFRESH).await;
        }
    }

    async fn exchange(&self, since: UnixMs, readiness: Readiness) -> Result<(), MembershipError> {
        let now = self.clock.now();
        let hearing = self
            .listening
            .as_ref()
            .map(|server| server.hearing())
            .unwrap_or_default();
        let (idle, idle_since) = self.idle_routes();
        let own = Heartbeat {
            id: self.ownership.me(),
            name: self.daemon.clone(),
            version: env!("CARGO_PKG_VERSION").to_owned(),
            since,
            until: now.plus(LIFETIME),
            readiness,
            listening: hearing.all,
            expired_only: hearing.expired_only,
            forwards: hearing.forwards,
            timer: self.timer.scope(),
            capabilities: capabilities(&self.router, idle),
            idle_since,
            queues: self.pull.asked(),
        };
        let asked = Instant::now();
        let exchange = timeout(TIMEOUT, self.membership.exchange(&own, now));
        let heartbeats = exchange
            .await
            .unwrap_or_else(|late| Err(MembershipError::new("no answer in time", true, late)))?;
        self.apply_change(self.ownership.update(&own, heartbeats, asked));
        Ok(())
    }

    /// Positions of the pull routes for which no worker asks this daemon, and when one asked last for each.
    fn idle_routes(&self) -> (Vec<u16>, Vec<UnixMs>) {
        let demands = self.queue.demands();
        let pulls = self.router.pull_queues().into_iter();
        let idle = pulls.filter_map(|(at, pull)| {
            let demand = demands.of(&pull.queue);
            // More routes than that do not fit in a heartbeat.
            let at = u16::try_from(at).ok()?;
            (!demand.is_active()).then(|| (at, demand.asked()))
        });
        idle.unzip()
    }

    fn log_failure(&self, error: &MembershipError) {
        if error.is_transient() {
            tracing::debug!(%error, "could not exchange heartbeats");
        } else if let Some(held_back) = self.reporter.warnings.admit("membership") {
            let error: &dyn std::error::Error = error;
            tracing::warn!(
                error,
                held_back,
                "daemons do not share the tasks: each tries to claim all; see the rights in SECURITY.md"
            );
        }
    }

    fn apply_change(&self, change: Change) {
        let Change {
            joined,
            left,
            lost,
            owners,
        } = change;
        if !lost.is_empty() {
            self.reporter.metrics.members_lost(lost.len());
            if let Some(held_back) = self.reporter.failures.admit("vanished") {
                let daemons = lost.join(" ");
                tracing::warn!(daemons, held_back, "daemons have ended without saying so");
            }
            self.lease_scan.activate(Cause::Members);
            if let Some(server) = &self.listening {
                server.replay_events();
            }
        }
        if owners {
            // Newly owned tasks may fall due before the next look-ahead.
            self.look_ahead.activate(Cause::Members);
        }
        if joined.is_empty() && left.is_empty() {
            return;
        }
        if let Some(held_back) = self.reporter.failures.admit("members") {
            let (joined, left) = (joined.join(" "), left.join(" "));
            tracing::info!(
                joined,
                left,
                members = self.ownership.members(),
                held_back,
                "other daemons came or went"
            );
        }
    }

    async fn readiness(&self, before: Readiness) -> Readiness {
        if self.lifecycle.leaving.is_cancelled() || !self.health.answers() {
            return Readiness::Away;
        }
        let no_slot_frees = self.stays_crowded().await || self.stays_without_slot(before).await;
        match no_slot_frees && self.handlers_hold_slots() {
            true => Readiness::Full,
            false => Readiness::Ready,
        }
    }

    /// True if handlers hold half of the slots. Slots that wait for the ledger do not make a daemon full: its tasks would
    /// wait for the same ledger on the others, and each change of owners costs it more reads.
    fn handlers_hold_slots(&self) -> bool {
        2 * self.running.count() >= self.concurrency
    }

    /// True if no slot becomes free within [`FULL_AFTER`]. For a daemon that is full, true until some are free.
    async fn stays_without_slot(&self, before: Readiness) -> bool {
        let free = self.queue.free_slots();
        if before == Readiness::Full {
            return free < (self.concurrency / ROOM).max(1);
        }
        // Under load all slots are taken most of the time. The daemon is full only if none becomes free.
        free == 0
            && timeout(FULL_AFTER, self.queue.has_free_slot())
                .await
                .is_err()
    }

    /// True if throughout [`FULL_AFTER`] some signals wait only for slots that are reserved for other routes: other
    /// daemons would start them sooner.
    async fn stays_crowded(&self) -> bool {
        const CHECKS: u32 = 20;
        for _ in 0..CHECKS {
            if !self.queue.is_crowded() {
                return false;
            }
            tokio::time::sleep(FULL_AFTER / CHECKS).await;
        }
        true
    }

    /// Tells the other daemons that this one leaves, and keeps working until they have had time to learn it.
    pub async fn hand_over(&self) {
        self.lifecycle.leaving.cancel();
        self.activity.activate(Cause::Asked);
        if self.ownership.members() > 1 {
            let time = HAND_OVER.min(self.drain_timeout);
            // A panic cuts the wait short.
            self.lifecycle
                .broken
                .run_until_cancelled(tokio::time::sleep(time))
                .await;
        }
    }

    /// Removes the heartbeat of this daemon.
    pub async fn leave(&self) {
        let left = timeout(TIMEOUT, self.membership.leave(self.ownership.me())).await;
        if !matches!(left, Ok(Ok(()))) {
            tracing::debug!("could not tell the other daemons; they will find out");
        }
    }
}

//! Membership heartbeat: publishes this daemon and updates task ownership.

use std::sync::Arc;
use std::time::Duration;

use tokio::time::{Instant, timeout};

use crate::engine::deps::Deps;
use crate::engine::queue::SignalQueue;
use crate::membership::{Change, Heartbeat, LIFETIME, MembershipError, REFRESH, Readiness};
use crate::task::UnixMs;
use crate::timer::Cause;

/// A daemon without a free slot for this long is full.
const FULL_AFTER: Duration = Duration::from_millis(200);

/// A full daemon is ready again when one in this many of its slots is free, so that it does not flap.
const ROOM: usize = 8;

/// Timeout for an exchange of heartbeats.
const TIMEOUT: Duration = Duration::from_secs(1);

/// Time that a stopping daemon keeps working while the others learn that it leaves.
const HAND_OVER: Duration = Duration::from_millis(1_200);

/// Publishes this daemon's heartbeat, and keeps task ownership up to date.
pub struct MembershipTask {
    pub deps: Arc<Deps>,
    pub queue: Arc<SignalQueue>,
}

impl MembershipTask {
    /// Exchanges heartbeats with the other daemons every second. Never returns.
    pub async fn run(&self) {
        let mut readiness = Readiness::Ready;
        let since = self.deps.ledger.clock().now();
        let activity = &self.deps.background.membership;
        let mut cause = Cause::Start;
        let mut fleet = Vec::new();
        loop {
            readiness = self.readiness(readiness).await;
            let exchanged = activity.pass(cause, self.exchange(since, readiness));
            if let Err(error) = exchanged.await {
                self.log_failure(&error);
            }
            self.deps.metrics.members(self.deps.ownership.members());
            let before = std::mem::replace(&mut fleet, self.deps.ownership.fleet());
            if before != fleet {
                self.deps.metrics.members_changed();
            }
            cause = activity.next(REFRESH).await;
        }
    }

    async fn exchange(&self, since: UnixMs, readiness: Readiness) -> Result<(), MembershipError> {
        let now = self.deps.ledger.clock().now();
        let hearing = self.deps.timer.hearing();
        let (idle, idle_since) = self.idle_routes();
        let own = Heartbeat {
            id: self.deps.ownership.me(),
            name: self.deps.claimant.daemon.clone(),
            version: env!("CARGO_PKG_VERSION").to_owned(),
            since,
            until: now.plus(LIFETIME),
            readiness,
            listening: hearing.all,
            expired_only: hearing.expired_only,
            forwards: hearing.forwards,
            timer: self.deps.timer.scope(),
            capabilities: self.deps.capabilities(idle),
            idle_since,
        };
        let asked = Instant::now();
        let exchange = timeout(TIMEOUT, self.deps.membership.exchange(&own, now));
        let heartbeats = exchange
            .await
            .unwrap_or_else(|late| Err(MembershipError::new("no answer in time", true, late)))?;
        self.apply_change(self.deps.ownership.update(&own, heartbeats, asked));
        Ok(())
    }

    /// Positions of the pull routes for which no worker asks this daemon, and when one asked last for each.
    fn idle_routes(&self) -> (Vec<u16>, Vec<UnixMs>) {
        let demands = self.queue.demands();
        let pulls = self.deps.router.pull_queues().into_iter();
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
        } else if let Some(held_back) = self.deps.warnings.admit("membership") {
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
            vanished,
            owners,
        } = change;
        if !vanished.is_empty() {
            self.deps.metrics.members_vanished(vanished.len());
            if let Some(held_back) = self.deps.failures.admit("vanished") {
                let daemons = vanished.join(" ");
                tracing::warn!(daemons, held_back, "daemons have ended without saying so");
            }
            self.deps.background.lease_scan.activate(Cause::Members);
            self.deps.timer.replay_events();
        }
        if owners {
            // Newly owned tasks may fall due before the next look-ahead.
            self.deps.background.look_ahead.activate(Cause::Members);
        }
        if joined.is_empty() && left.is_empty() {
            return;
        }
        if let Some(held_back) = self.deps.failures.admit("members") {
            let (joined, left) = (joined.join(" "), left.join(" "));
            tracing::info!(
                joined,
                left,
                members = self.deps.ownership.members(),
                held_back,
                "other daemons came or went"
            );
        }
    }

    async fn readiness(&self, before: Readiness) -> Readiness {
        if self.deps.lifecycle.leaving.is_cancelled() || !self.deps.health.answers() {
            return Readiness::Away;
        }
        if self.stays_crowded().await {
            return Readiness::Full;
        }
        let free = self.queue.free_slots();
        let enough = match before {
            Readiness::Full => (self.deps.config.concurrency / ROOM).max(1),
            Readiness::Ready | Readiness::Away => 1,
        };
        if free >= enough {
            return Readiness::Ready;
        }
        // Under load all slots are taken most of the time. The daemon is full only if none becomes free.
        let freed = timeout(FULL_AFTER, self.queue.has_free_slot());
        if before != Readiness::Full && freed.await.is_ok() {
            Readiness::Ready
        } else {
            Readiness::Full
        }
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
        self.deps.lifecycle.leaving.cancel();
        self.deps.background.membership.activate(Cause::Asked);
        if self.deps.ownership.members() > 1 {
            let time = HAND_OVER.min(self.deps.config.drain_timeout);
            // A panic cuts the wait short.
            self.deps
                .lifecycle
                .broken
                .run_until_cancelled(tokio::time::sleep(time))
                .await;
        }
    }

    /// Removes the heartbeat of this daemon.
    pub async fn leave(&self) {
        let left = timeout(
            TIMEOUT,
            self.deps.membership.leave(self.deps.ownership.me()),
        )
        .await;
        if !matches!(left, Ok(Ok(()))) {
            tracing::debug!("could not tell the other daemons; they will find out");
        }
    }
}

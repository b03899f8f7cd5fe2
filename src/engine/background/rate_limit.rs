//! Rate limits: requests starts for rate-limited routes before the claim, a batch at a time. Workers never wait for it.

use std::collections::HashMap;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use tokio::time::Instant;

use crate::engine::activity::Activity;
use crate::engine::claim::Claimer;
use crate::engine::lifecycle::Lifecycle;
use crate::engine::pauses::PauseWatch;
use crate::engine::queue::SignalQueue;
use crate::engine::queue::fair::{Blocked, SetAside, StartsWanted};
use crate::limiter::{LimiterError, MemoryLimiter, RateLimiter};
use crate::membership::Ownership;
use crate::task::Grant;
use crate::timer::Cause;

/// Maximum number of starts requested at once: those of one claim.
const BATCH_MAX: usize = 512;

/// Minimum rest before the next request if fewer starts were granted than wanted, so that starts are granted in small
/// batches and not singly.
const PAUSE: Duration = Duration::from_millis(20);

/// Pause when no slot is free.
const NO_SLOT_PAUSE: Duration = Duration::from_millis(20);

/// Delay before a limiter that did not answer is asked again.
const RETRY_AFTER: Duration = Duration::from_secs(1);

/// Local rate limits: each daemon takes its own share while the shared limiter does not answer.
#[derive(Debug, Default)]
pub struct LocalRates {
    local: MemoryLimiter,
    /// Time until which the limiter is not asked, by route.
    unavailable_until: Mutex<HashMap<Arc<str>, Instant>>,
}

/// Fetches starts for rate-limited routes.
pub struct RateLimits {
    pub limiter: Arc<dyn RateLimiter>,
    pub ownership: Arc<Ownership>,
    pub lifecycle: Lifecycle,
    pub activity: Arc<Activity>,
    pub queue: Arc<SignalQueue>,
    pub pauses: Arc<PauseWatch>,
    pub claimer: Arc<Claimer>,
    pub local: LocalRates,
}

impl RateLimits {
    /// Fetches starts for the routes that need them.
    pub async fn run(self: Arc<Self>) {
        loop {
            for want in self.queue.starts_wanted().await {
                let limits = Arc::clone(&self);
                // A slow answer about one route must not delay the others.
                self.lifecycle.spawn(async move {
                    let asking = limits.fetch_starts(want);
                    limits.lifecycle.until_stopped(asking).await;
                });
            }
        }
    }

    async fn fetch_starts(&self, want: StartsWanted) {
        let free = self.queue.free_slots();
        // Starts that wait for slots would be lost to the other daemons.
        if free == 0 || self.queue.blocked(&want.name) == Some(Blocked::Slots) {
            tokio::time::sleep(NO_SLOT_PAUSE).await;
            return self.queue.end_request(&want.name);
        }
        // A paused task does not start, so no start is requested for it.
        self.pauses.fresh().await;
        let SetAside { signals, startable } =
            self.queue.set_aside(&want.name, BATCH_MAX, |signal| {
                self.pauses.may_hinder(signal)
            });
        if !signals.is_empty() {
            let claimer = Arc::clone(&self.claimer);
            let lifecycle = &self.lifecycle;
            lifecycle.spawn_lookup(async move { claimer.process_set_aside(signals).await });
        }
        let wanted = startable.min(free).min(BATCH_MAX);
        if wanted == 0 {
            return self.queue.end_request(&want.name);
        }
        let wanted = u32::try_from(wanted).expect("a batch is small");
        let Grant { granted, next_in } = self.starts(&want, wanted).await;
        self.queue.grant(&want.name, granted);
        if granted < wanted {
            tokio::time::sleep(next_in.max(PAUSE)).await;
        }
        self.queue.end_request(&want.name);
    }

    /// Takes starts from the limiter or, if it does not answer, from this daemon's share.
    async fn starts(&self, want: &StartsWanted, wanted: u32) -> Grant {
        let StartsWanted { name, rate } = want;
        let members = u32::try_from(self.ownership.members()).unwrap_or(u32::MAX);
        if !self.local.is_unavailable(name) {
            let activity = &self.activity;
            let taken = activity.pass(Cause::Work, self.limiter.take(name, *rate, wanted));
            match taken.await {
                Ok(grant) => {
                    // So that an outage does not begin with a burst.
                    self.local
                        .local
                        .take_share(name, *rate, members, grant.granted);
                    if self.local.mark_available(name) {
                        tracing::info!(route = &**name, %rate, "the rate is shared by all daemons again");
                    }
                    return grant;
                }
                Err(error) => self.fall_back(want, members, &error),
            }
        }
        self.local.local.take_share(name, *rate, members, wanted)
    }

    fn fall_back(&self, want: &StartsWanted, members: u32, error: &LimiterError) {
        let first = self.local.mark_unavailable(&want.name);
        if !first {
            return;
        }
        let error: &dyn std::error::Error = error;
        tracing::warn!(
            error,
            route = &*want.name,
            rate = %want.rate,
            members,
            "the rate is not shared: each daemon takes its part of it"
        );
    }
}

impl LocalRates {
    fn is_unavailable(&self, name: &str) -> bool {
        let until = self.unavailable_until();
        until.get(name).is_some_and(|until| Instant::now() < *until)
    }

    /// Stops asking the limiter about a route for [`RETRY_AFTER`]. Returns true if it was asked until now.
    fn mark_unavailable(&self, name: &Arc<str>) -> bool {
        let until = Instant::now() + RETRY_AFTER;
        self.unavailable_until()
            .insert(Arc::clone(name), until)
            .is_none()
    }

    /// Records that the limiter answered. Returns true if it had failed before.
    fn mark_available(&self, name: &str) -> bool {
        self.unavailable_until().remove(name).is_some()
    }

    fn unavailable_until(&self) -> std::sync::MutexGuard<'_, HashMap<Arc<str>, Instant>> {
        self.unavailable_until
            .lock()
            .expect("nothing panics while holding it")
    }
}

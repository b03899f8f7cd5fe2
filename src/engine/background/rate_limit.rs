//! Starts for routes that have a rate: asked for before the claim, for a batch at a time, and beside the dispatchers,
//! who never wait for it.

use std::collections::HashMap;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use tokio::time::Instant;

use crate::engine::claim::Claimer;
use crate::engine::deps::Deps;
use crate::engine::pauses::PauseWatch;
use crate::engine::queue::SignalQueue;
use crate::engine::queue::fair::{Held, SetAside, StartsWanted};
use crate::limiter::{LimiterError, MemoryLimiter};
use crate::task::Grant;

/// Most starts asked for at once: those of one claim.
const BATCH_MAX: usize = 512;

/// Rest before more is asked for, where less was granted than wanted: starts come in small batches then, and not
/// singly.
const PAUSE: Duration = Duration::from_millis(20);

/// How long to wait for a slot.
const NO_SLOT_PAUSE: Duration = Duration::from_millis(20);

/// When a limiter that did not answer is asked again.
const ASK_AGAIN_AFTER: Duration = Duration::from_secs(1);

/// Where every daemon takes its own share, while nothing is known of what the others take.
#[derive(Debug, Default)]
pub struct LocalRates {
    local: MemoryLimiter,
    /// Until when the limiter is not asked, by route.
    alone_until: Mutex<HashMap<Arc<str>, Instant>>,
}

/// Fetches starts for routes that have a rate.
pub struct RateLimits {
    pub deps: Arc<Deps>,
    pub queue: Arc<SignalQueue>,
    pub pauses: Arc<PauseWatch>,
    pub claimer: Arc<Claimer>,
    pub local: LocalRates,
}

impl RateLimits {
    /// Sees to it that routes with a rate get the starts that are theirs, until the engine stops.
    pub async fn run(self: Arc<Self>) {
        let work = async {
            loop {
                for want in self.queue.starts_wanted().await {
                    let limits = Arc::clone(&self);
                    // A slow answer about one route is no reason for the others to wait.
                    self.deps.lifecycle.spawn(async move {
                        let asking = limits.fetch_starts(want);
                        limits.deps.lifecycle.until_stopped(asking).await;
                    });
                }
            }
        };
        self.deps.lifecycle.until_stopped(work).await;
    }

    async fn fetch_starts(&self, want: StartsWanted) {
        let free = self.queue.free_slots();
        // Starts that wait for slots would be lost to every other daemon.
        if free == 0 || self.queue.held(&want.name) == Some(Held::Slots) {
            tokio::time::sleep(NO_SLOT_PAUSE).await;
            return self.queue.end_request(&want.name);
        }
        // What is paused starts nothing, so no start is taken for it.
        self.pauses.fresh().await;
        let SetAside { signals, startable } =
            self.queue.set_aside(&want.name, BATCH_MAX, |signal| {
                self.pauses.may_hinder(signal)
            });
        if !signals.is_empty() {
            let claimer = Arc::clone(&self.claimer);
            let lifecycle = &self.deps.lifecycle;
            lifecycle.spawn(async move { claimer.see_off(signals).await });
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

    /// Asks the limiter; if it does not answer, takes of this daemon's share.
    async fn starts(&self, want: &StartsWanted, wanted: u32) -> Grant {
        let StartsWanted { name, rate } = want;
        let members = u32::try_from(self.deps.ownership.members()).unwrap_or(u32::MAX);
        if !self.local.is_alone(name) {
            match self.deps.limiter.take(name, *rate, wanted).await {
                Ok(grant) => {
                    // So that an outage does not begin with a burst.
                    self.local
                        .local
                        .take_share(name, *rate, members, grant.granted);
                    if self.local.is_back(name) {
                        tracing::info!(route = &**name, %rate, "the rate is shared by all daemons again");
                    }
                    return grant;
                }
                Err(error) => self.rate_not_shared(want, members, &error),
            }
        }
        self.local.local.take_share(name, *rate, members, wanted)
    }

    fn rate_not_shared(&self, want: &StartsWanted, members: u32, error: &LimiterError) {
        let first = self.local.leave_alone(&want.name);
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
    fn is_alone(&self, name: &str) -> bool {
        let until = self.alone_until();
        until.get(name).is_some_and(|until| Instant::now() < *until)
    }

    /// Answers whether that is new.
    fn leave_alone(&self, name: &Arc<str>) -> bool {
        let until = Instant::now() + ASK_AGAIN_AFTER;
        self.alone_until().insert(Arc::clone(name), until).is_none()
    }

    /// The limiter has answered. Answers whether that is new.
    fn is_back(&self, name: &str) -> bool {
        self.alone_until().remove(name).is_some()
    }

    fn alone_until(&self) -> std::sync::MutexGuard<'_, HashMap<Arc<str>, Instant>> {
        self.alone_until
            .lock()
            .expect("nothing panics while holding it")
    }
}

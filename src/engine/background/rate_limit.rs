//! Starts for routes that have a rate: asked for before the claim, for a batch at a time, and beside the dispatchers, who
//! never wait for it.

use std::collections::HashMap;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use tokio::time::Instant;

use crate::engine::Shared;
use crate::engine::queue::fair::{Held, SetAside, StartsWanted};
use crate::limiter::{LimiterError, MemoryLimiter};
use crate::task::Grant;

/// Most starts asked for at once: those of one claim.
const BATCH_MAX: usize = 512;

/// Rest before more is asked for, where less was granted than wanted: starts come in small batches then, and not singly.
const PAUSE: Duration = Duration::from_millis(20);

/// How long to wait for a slot.
const NO_SLOT_PAUSE: Duration = Duration::from_millis(20);

/// When a limiter that did not answer is asked again.
const ASK_AGAIN_AFTER: Duration = Duration::from_secs(1);

/// Where every daemon takes its own share, while nothing is known of what the others take.
#[derive(Debug, Default)]
pub(crate) struct LocalRates {
    local: MemoryLimiter,
    /// Until when the limiter is not asked, by route.
    alone_until: Mutex<HashMap<Arc<str>, Instant>>,
}

impl Shared {
    /// Sees to it that routes with a rate get the starts that are theirs, until the engine stops.
    pub(crate) async fn ration_until_stopped(self: Arc<Self>) {
        let work = async {
            loop {
                for want in self.intake.wants().await {
                    let shared = Arc::clone(&self);
                    // A slow answer about one route is no reason for the others to wait.
                    self.runs.spawn(self.watched(async move {
                        let asking = shared.ration(want);
                        shared.stopping.run_until_cancelled(asking).await;
                    }));
                }
            }
        };
        self.stopping.run_until_cancelled(work).await;
    }

    async fn ration(self: &Arc<Self>, want: StartsWanted) {
        let free = self.slots.available_permits();
        // Starts that wait for slots would be lost to every other daemon.
        if free == 0 || self.intake.held(&want.name) == Some(Held::Permits) {
            tokio::time::sleep(NO_SLOT_PAUSE).await;
            return self.intake.answered(&want.name);
        }
        // What is paused starts nothing, so no start is taken for it.
        self.pauses.fresh().await;
        let SetAside { signals, startable } =
            self.intake.set_aside(&want.name, BATCH_MAX, |signal| {
                self.pauses.may_hinder(signal)
            });
        if !signals.is_empty() {
            self.runs
                .spawn(self.watched(Arc::clone(self).see_off(signals)));
        }
        let wanted = startable.min(free).min(BATCH_MAX);
        if wanted == 0 {
            return self.intake.answered(&want.name);
        }
        let wanted = u32::try_from(wanted).expect("a batch is small");
        let Grant { granted, next_in } = self.starts(&want, wanted).await;
        self.intake.grant(&want.name, granted);
        if granted < wanted {
            tokio::time::sleep(next_in.max(PAUSE)).await;
        }
        self.intake.answered(&want.name);
    }

    /// Asks the limiter; if it does not answer, takes of this daemon's share.
    async fn starts(&self, want: &StartsWanted, wanted: u32) -> Grant {
        let StartsWanted { name, rate } = want;
        let members = u32::try_from(self.share.members()).unwrap_or(u32::MAX);
        if !self.rations.is_alone(name) {
            match self.parts.limiter.take(name, *rate, wanted).await {
                Ok(grant) => {
                    // So that an outage does not begin with a burst.
                    self.rations
                        .local
                        .take_share(name, *rate, members, grant.granted);
                    if self.rations.is_back(name) {
                        tracing::info!(route = &**name, %rate, "the rate is shared by all daemons again");
                    }
                    return grant;
                }
                Err(error) => self.rate_not_shared(want, members, &error),
            }
        }
        self.rations.local.take_share(name, *rate, members, wanted)
    }

    fn rate_not_shared(&self, want: &StartsWanted, members: u32, error: &LimiterError) {
        let first = self.rations.leave_alone(&want.name);
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

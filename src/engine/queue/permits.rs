//! Permits: how many runs there may be at a time.

use std::sync::Arc;
use std::time::Duration;

use tokio::sync::{OwnedSemaphorePermit, Semaphore};

use super::SignalQueue;
use super::class::SignalClass;
use super::route_load::RoutePermit;

/// Most signals of one claim.
pub(super) const BATCH_MAX: usize = 512;

impl SignalQueue {
    /// Waits for at least one slot, and takes as many more as are free and wanted.
    ///
    /// # Cancel safety
    /// Cancel safe.
    pub async fn permits(&self, class: SignalClass, wanted: usize) -> Permits {
        match class {
            SignalClass::Fresh => Permits {
                slots: some_of(&self.slots, wanted).await,
                backlog: None,
                route: None,
            },
            SignalClass::Backlog => self.backlog_permits(wanted).await,
        }
    }

    /// Permits for what the sweep found: a quarter of the slots is left to fresh signals, so that a backlog does not make
    /// them late. When long runs hold the backlog's share and nothing fresh waits, it gets of that quarter too, but never
    /// the last eighth.
    async fn backlog_permits(&self, wanted: usize) -> Permits {
        const PATIENCE: Duration = Duration::from_millis(100);
        let kept = (self.concurrency / 8).max(1);
        loop {
            if let Ok(backlog) =
                tokio::time::timeout(PATIENCE, some_of(&self.backlog_slots, wanted)).await
            {
                let slots = some_of(&self.slots, backlog.num_permits()).await;
                return Permits {
                    slots,
                    backlog: Some(backlog),
                    route: None,
                };
            }
            let spare = self
                .slots
                .available_permits()
                .saturating_sub(kept)
                .min(wanted);
            if spare > 0 && self.startable(SignalClass::Fresh) == 0 {
                return Permits {
                    slots: some_of(&self.slots, spare).await,
                    backlog: None,
                    route: None,
                };
            }
        }
    }
}

/// Permits to run: each is a slot of the process and, for what the sweep found, one of the backlog's share. The permit of
/// one run includes that of its route, which is dropped last: it tells those who wait that there is a slot.
pub struct Permits {
    slots: OwnedSemaphorePermit,
    backlog: Option<OwnedSemaphorePermit>,
    route: Option<RoutePermit>,
}

impl Permits {
    /// For how many runs they are.
    pub fn count(&self) -> usize {
        let backlog = self
            .backlog
            .as_ref()
            .map_or(usize::MAX, OwnedSemaphorePermit::num_permits);
        self.slots.num_permits().min(backlog)
    }

    /// Nothing was run: the start that the route's rate granted goes to its next run.
    pub fn give_start_back(&mut self) {
        if let Some(route) = &mut self.route {
            route.give_back();
        }
    }

    /// Takes off the permit for one run of this route; `None` if there is none left.
    pub fn split(&mut self, mut route: RoutePermit) -> Option<Self> {
        let backlog = match &mut self.backlog {
            Some(backlog) => Some(backlog.split(1)?),
            None => None,
        };
        let slots = self.slots.split(1)?;
        route.start();
        Some(Self {
            slots,
            backlog,
            route: Some(route),
        })
    }
}

/// Waits for one permit, and takes as many more as are free, up to `wanted`.
async fn some_of(semaphore: &Arc<Semaphore>, wanted: usize) -> OwnedSemaphorePermit {
    let one = Arc::clone(semaphore).acquire_owned().await;
    let mut permits = one.expect("the semaphore is never closed");
    let more = wanted
        .min(BATCH_MAX)
        .saturating_sub(1)
        .min(semaphore.available_permits());
    if let Ok(more) = Arc::clone(semaphore).try_acquire_many_owned(u32::try_from(more).unwrap_or(0))
    {
        permits.merge(more);
    }
    permits
}

//! Permits: bound the number of concurrent runs.

use std::sync::Arc;
use std::time::Duration;

use tokio::sync::{OwnedSemaphorePermit, Semaphore};

use super::SignalQueue;
use super::class::SignalClass;
use super::route_load::RoutePermit;

/// Maximum number of signals in one claim.
pub(super) const BATCH_MAX: usize = 512;

impl SignalQueue {
    /// Waits for one slot, and takes as many more as are free, up to `wanted`.
    ///
    /// # Cancel safety
    /// Cancel safe.
    pub async fn permits(&self, class: SignalClass, wanted: usize) -> Permits {
        match class {
            SignalClass::Fresh => Permits {
                slots: acquire_up_to(&self.slots, wanted).await,
                backlog: None,
                route: None,
            },
            SignalClass::Backlog => self.backlog_permits(wanted).await,
        }
    }

    /// Permits for the backlog. A quarter of the slots is reserved for fresh signals, so that a backlog does not delay
    /// them. When long runs use up the backlog's share and no fresh signal waits, the backlog may use that quarter too,
    /// except for the last eighth of all slots.
    async fn backlog_permits(&self, wanted: usize) -> Permits {
        const SHARE_WAIT: Duration = Duration::from_millis(100);
        let reserved = (self.concurrency / 8).max(1);
        loop {
            if let Ok(backlog) =
                tokio::time::timeout(SHARE_WAIT, acquire_up_to(&self.backlog_slots, wanted)).await
            {
                let slots = acquire_up_to(&self.slots, backlog.num_permits()).await;
                return Permits {
                    slots,
                    backlog: Some(backlog),
                    route: None,
                };
            }
            let spare = self
                .slots
                .available_permits()
                .saturating_sub(reserved)
                .min(wanted);
            if spare > 0 && self.startable(SignalClass::Fresh) == 0 {
                return Permits {
                    slots: acquire_up_to(&self.slots, spare).await,
                    backlog: None,
                    route: None,
                };
            }
        }
    }
}

/// Permits to run. Each is a slot of the process and, for the backlog, a slot of the backlog's share. The permit of
/// one run includes the permit of its route, which is dropped last: dropping it wakes the workers that wait for a slot.
pub struct Permits {
    slots: OwnedSemaphorePermit,
    backlog: Option<OwnedSemaphorePermit>,
    route: Option<RoutePermit>,
}

impl Permits {
    /// Number of runs that these permits allow.
    pub fn count(&self) -> usize {
        let backlog = self
            .backlog
            .as_ref()
            .map_or(usize::MAX, OwnedSemaphorePermit::num_permits);
        self.slots.num_permits().min(backlog)
    }

    /// Gives back the start that the route's rate limit granted, since nothing was run. The route's next run uses it.
    pub fn give_start_back(&mut self) {
        if let Some(route) = &mut self.route {
            route.give_back();
        }
    }

    /// Gives the slot back, since the run goes on in another process. Returns the permit of the route.
    pub fn into_route_permit(self) -> Option<RoutePermit> {
        let mut route = self.route?;
        route.end_reservation();
        Some(route)
    }

    /// Splits off the permit for one run of this route; `None` if none is left.
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
async fn acquire_up_to(semaphore: &Arc<Semaphore>, wanted: usize) -> OwnedSemaphorePermit {
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

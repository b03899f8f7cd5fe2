//! Permits: how many runs there may be at a time.

use std::sync::Arc;
use std::time::Duration;

use tokio::sync::{OwnedSemaphorePermit, Semaphore};

use crate::engine::Shared;
use crate::engine::claim::BATCH_MAX;
use crate::engine::queue::class::SignalClass;
use crate::engine::queue::route_load::RoutePermit;

impl Shared {
    /// At least one slot, and as many more as are free and wanted.
    pub(crate) async fn free_slots(&self, lane: SignalClass, wanted: usize) -> Permits {
        match lane {
            SignalClass::Fresh => Permits {
                runs: some_of(&self.slots, wanted).await,
                backlog: None,
                seat: None,
            },
            SignalClass::Backlog => self.backlog_slots(wanted).await,
        }
    }

    /// Permits for what the sweep found: a quarter is left to fresh signals, so that a backlog does not make them late.
    /// When long runs hold the backlog's share and nothing fresh waits, it gets of that quarter too, but never the
    /// last eighth.
    async fn backlog_slots(&self, wanted: usize) -> Permits {
        const PATIENCE: Duration = Duration::from_millis(100);
        let kept = (self.config.concurrency / 8).max(1);
        loop {
            if let Ok(backlog) =
                tokio::time::timeout(PATIENCE, some_of(&self.backlog_slots, wanted)).await
            {
                let runs = some_of(&self.slots, backlog.num_permits()).await;
                return Permits {
                    runs,
                    backlog: Some(backlog),
                    seat: None,
                };
            }
            let spare = self
                .slots
                .available_permits()
                .saturating_sub(kept)
                .min(wanted);
            if spare > 0 && self.intake.startable(SignalClass::Fresh) == 0 {
                return Permits {
                    runs: some_of(&self.slots, spare).await,
                    backlog: None,
                    seat: None,
                };
            }
        }
    }
}

/// Rights to run: each is a slot of the process and, for what the sweep found, one of the backlog's share. That of a run
/// is one of its route, too; it goes last, since it tells those who wait that there is a slot.
pub(crate) struct Permits {
    runs: OwnedSemaphorePermit,
    backlog: Option<OwnedSemaphorePermit>,
    seat: Option<RoutePermit>,
}

impl Permits {
    pub(crate) fn count(&self) -> usize {
        let backlog = self
            .backlog
            .as_ref()
            .map_or(usize::MAX, OwnedSemaphorePermit::num_permits);
        self.runs.num_permits().min(backlog)
    }

    /// What was claimed was not run: its start goes to the next one.
    pub(crate) fn give_start_back(&mut self) {
        if let Some(seat) = &mut self.seat {
            seat.give_back();
        }
    }

    pub(crate) fn split(&mut self, mut seat: RoutePermit) -> Option<Self> {
        let backlog = match &mut self.backlog {
            Some(backlog) => Some(backlog.split(1)?),
            None => None,
        };
        let runs = self.runs.split(1)?;
        seat.start();
        Some(Self {
            runs,
            backlog,
            seat: Some(seat),
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

//! Unarmed signals: keys that are looked up before their signals wait for their route. An expired key may have no row yet,
//! and its event may be the only trace of its task.

use std::pin::pin;
use std::sync::Arc;
use std::time::Duration;

use tokio::time::sleep;

use crate::engine::candidates::Candidates;
use crate::engine::claim::Claimer;
use crate::engine::lifecycle::Lifecycle;
use crate::engine::pauses::PauseWatch;
use crate::engine::queue::SignalQueue;

/// Maximum number of keys of one look-up.
const BATCH_MAX: usize = 512;

/// Time in which workers may take a signal without an arming.
const LEFT_TO_WORKERS: Duration = Duration::from_millis(100);

/// Pause when there is no room for adoption candidates.
const NO_ROOM_PAUSE: Duration = Duration::from_millis(50);

/// Looks up the keys of such signals, and adopts those without a row.
pub struct Unarmed {
    pub lifecycle: Lifecycle,
    pub queue: Arc<SignalQueue>,
    pub candidates: Arc<Candidates>,
    pub claimer: Arc<Claimer>,
    pub pauses: Arc<PauseWatch>,
}

impl Unarmed {
    /// Looks up keys until the engine stops. A look-up under way is completed; the adopter takes what is left.
    pub async fn run(self) {
        let stopping = &self.lifecycle.stopping;
        let some_wait = async || {
            self.queue.unarmed_waits().await;
            sleep(LEFT_TO_WORKERS).await;
        };
        let mut waiting = pin!(some_wait());
        loop {
            let signals = tokio::select! {
                biased;
                () = stopping.cancelled() => return,
                () = &mut waiting => {
                    self.queue.list_waiting_unarmed();
                    waiting.set(some_wait());
                    continue;
                }
                signals = self.queue.unarmed(BATCH_MAX) => signals,
            };
            let ready = async {
                while !self.candidates.has_room(BATCH_MAX) {
                    sleep(NO_ROOM_PAUSE).await;
                }
                self.pauses.fresh().await;
            };
            match stopping.run_until_cancelled(ready).await {
                Some(()) => self.claimer.process_set_aside(signals).await,
                None => self.queue.list_again(signals),
            }
        }
    }
}

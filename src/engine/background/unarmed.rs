//! Unarmed signals: keys of pull routes that are looked up while no worker asks. An expired key may have no row yet, and
//! its event may be the only trace of its task.

use std::sync::Arc;

use tokio::sync::mpsc;

use crate::engine::claim::Claimer;
use crate::engine::pauses::PauseWatch;
use crate::timer::Signal;

/// Maximum number of keys of one look-up.
const BATCH_MAX: usize = 512;

/// Looks up the keys of such signals, and adopts those without a row.
pub struct Unarmed {
    pub claimer: Arc<Claimer>,
    pub pauses: Arc<PauseWatch>,
    pub signals: Option<mpsc::Receiver<Signal>>,
}

impl Unarmed {
    /// Looks up keys as their signals come. Never returns.
    pub async fn run(self) {
        let Some(mut signals) = self.signals else {
            return std::future::pending().await;
        };
        let mut batch = Vec::new();
        while signals.recv_many(&mut batch, BATCH_MAX).await > 0 {
            self.pauses.fresh().await;
            let signals = std::mem::take(&mut batch);
            self.claimer.process_set_aside(signals).await;
        }
    }
}

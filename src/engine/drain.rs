//! Graceful stop: drains runs and writes the last settlements.

use std::time::Duration;

use tokio::sync::mpsc;
use tokio::task::JoinHandle;
use tokio::time::timeout;

use super::execute::Ended;
use super::lease::Leases;
use super::lifecycle::Lifecycle;

/// Timeout for the last settlements of a stopping engine.
const FLUSH_TIMEOUT: Duration = Duration::from_secs(5);

/// Timeout for arming the keys of released tasks.
const ARM_TIMEOUT: Duration = Duration::from_secs(1);

/// Waits for the runs to end, interrupts those that remain, and writes the last settlements.
pub async fn drain(
    lifecycle: &Lifecycle,
    drain_timeout: Duration,
    leases: &Leases,
    ended: mpsc::Sender<Ended>,
    mut settler: JoinHandle<()>,
) {
    let running = leases.len();
    tracing::info!(
        running,
        timeout_ms = drain_timeout.as_millis() as u64,
        "stopping: no new run starts"
    );
    lifecycle.stopping.cancel();
    lifecycle.runs.close();
    if timeout(drain_timeout, lifecycle.runs.wait()).await.is_err() {
        tracing::warn!(
            running = leases.len(),
            "runs outlived the drain timeout: releasing them"
        );
        leases.interrupt_all();
        // In an outage, runs may wait for ever to be settled.
        if timeout(FLUSH_TIMEOUT, lifecycle.runs.wait()).await.is_err() {
            tracing::error!(
                running = leases.len(),
                "some runs did not end: their tasks run again when their leases expire"
            );
        }
    }
    drop(ended);
    if timeout(FLUSH_TIMEOUT, &mut settler).await.is_err() {
        tracing::error!(
            "the ledger did not take the last settlements: these tasks run again when their leases expire"
        );
        settler.abort();
    }
    // The sweeps of other daemons find tasks that are not armed.
    let _ = timeout(ARM_TIMEOUT, lifecycle.runs.wait()).await;
    tracing::info!("stopped");
}

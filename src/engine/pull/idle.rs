//! Idle watch: notices when no worker asks for the tasks of a queue any more, so that they go to another daemon.

use std::sync::Arc;
use std::time::Duration;

use tokio::time::{Instant, sleep};

use super::{PullQueues, WaitingWorkers};
use crate::timer::Cause;

/// A queue stays with a daemon for this long after its last worker has left: the worker may come back for more.
const LINGER: Duration = Duration::from_secs(2);

/// The same for a daemon that is alone.
const LINGER_ALONE: Duration = Duration::from_secs(60);

/// Makes queues idle that no worker asks for.
pub struct IdleWatch(pub PullQueues);

impl IdleWatch {
    /// Looks when a worker has left. Never returns.
    pub async fn run(self) {
        let shared = &self.0.0;
        loop {
            shared.last_left.notified().await;
            while let Some(next) = self.next_to_be_idle() {
                sleep(next).await;
                self.make_idle();
            }
        }
    }

    fn linger(&self) -> Duration {
        match self.0.0.parts.ownership.members() {
            0 | 1 => LINGER_ALONE,
            _ => LINGER,
        }
    }

    /// Time until the next queue becomes idle, at most [`LINGER`], since another daemon may join. `None` if workers ask
    /// for all of them, or have not for long.
    fn next_to_be_idle(&self) -> Option<Duration> {
        let now = Instant::now();
        let linger = self.linger();
        let left = self.unasked().into_iter().map(|(_, workers)| {
            let idle_at = workers.asked() + linger;
            idle_at.saturating_duration_since(now)
        });
        left.min().map(|left| left.min(LINGER))
    }

    fn make_idle(&self) {
        let shared = &self.0.0;
        let linger = self.linger();
        for (queue, workers) in self.unasked() {
            if workers.asked().elapsed() < linger {
                continue;
            }
            let now = shared.parts.clock.now();
            workers
                .demand
                .set_asked(now.minus(workers.asked().elapsed()));
            workers.demand.set_active(false);
            if !workers.demand.is_zero() {
                // A worker has just asked, and may have seen the queue active.
                workers.demand.set_active(true);
                continue;
            }
            tracing::debug!(queue = &*queue, "no worker asks: the queue is idle here");
            shared.parts.queue.drop_pulled(&queue);
            shared.parts.membership.activate(Cause::Work);
        }
    }

    /// The active queues without a worker.
    fn unasked(&self) -> Vec<(Arc<str>, Arc<WaitingWorkers>)> {
        let workers = self.0.workers();
        let active = workers
            .iter()
            .filter(|(_, workers)| workers.demand.is_active() && workers.demand.is_zero());
        active
            .map(|(queue, workers)| (Arc::clone(queue), Arc::clone(workers)))
            .collect()
    }
}

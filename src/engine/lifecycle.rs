//! Lifecycle of an engine: running, leaving, stopping, broken; and the tasks that a graceful stop waits for.

use std::future::Future;

use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;

/// Progress of an engine's stop. Cheap to clone: all clones are of one engine.
#[derive(Debug, Clone, Default)]
pub struct Lifecycle {
    /// Cancelled when the other daemons are told that this one leaves.
    pub leaving: CancellationToken,
    /// Cancelled when no new run may start.
    pub stopping: CancellationToken,
    /// Cancelled when a part of the engine panicked.
    pub broken: CancellationToken,
    /// Runs, claims under way, and tasks that either has spawned. A graceful stop waits for them.
    pub runs: TaskTracker,
    /// What may still find keys without a row: the timer, claims and look-ups. The last adoption waits for them.
    pub lookups: TaskTracker,
}

impl Lifecycle {
    /// Ends `work` when the engine stops.
    pub fn until_stopped<W: Future<Output = ()>>(
        &self,
        work: W,
    ) -> impl Future<Output = ()> + use<W> {
        let stopping = self.stopping.clone();
        async move {
            stopping.run_until_cancelled(work).await;
        }
    }

    /// Wraps `work` so that its panic ends the engine: a daemon that lacks one of its parts only looks alive.
    pub fn watched<W: Future<Output = ()> + Send + 'static>(
        &self,
        work: W,
    ) -> impl Future<Output = ()> + Send + 'static + use<W> {
        let on_panic = CancelOnPanic(self.broken.clone());
        async move {
            let _on_panic = on_panic;
            work.await;
        }
    }

    /// Spawns work that looks up keys, among the runs.
    pub fn spawn_lookup(&self, work: impl Future<Output = ()> + Send + 'static) {
        self.spawn(self.lookups.track_future(work));
    }

    /// Spawns `work` among the runs.
    pub fn spawn(&self, work: impl Future<Output = ()> + Send + 'static) {
        self.runs.spawn(self.watched(work));
    }
}

struct CancelOnPanic(CancellationToken);

impl Drop for CancelOnPanic {
    fn drop(&mut self) {
        if std::thread::panicking() {
            self.0.cancel();
        }
    }
}

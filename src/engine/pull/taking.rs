//! Taking: workers wait for tasks of a queue.

use std::sync::Arc;
use std::time::Duration;

use tokio::sync::{Notify, oneshot};

use super::{PullError, PullQueues, TakenTasks};
use crate::engine::workers::Ticket;
use crate::task::{ClassGlob, is_invisible};
use crate::telemetry::Metrics;
use crate::timer::Cause;

/// Maximum number of tasks that a worker takes at once.
pub const TAKE_MAX: usize = 512;

/// Longest name of a worker, in characters, as the ledger stores it.
const WORKER_CHARS_MAX: usize = 64;

/// How long a take that does not block waits for tasks that are being signalled and claimed.
const UNDER_WAY: Duration = Duration::from_millis(500);

impl PullQueues {
    /// Takes up to `count` tasks that are due. If there are none, waits for `block`; `None` waits only for tasks that
    /// are being claimed. WaitingWorkers of a queue get tasks in order of arrival; a task with a crash goes to the one that asked
    /// last. Returns no task when the time is up, and when the daemon stops.
    ///
    /// # Errors
    /// [`PullError`]: an unknown queue, a bad count or name.
    ///
    /// # Cancel safety
    /// Cancel safe: tasks that were claimed for this worker go to another one.
    pub async fn take(
        &self,
        queue: &str,
        count: usize,
        block: Option<Duration>,
        worker: &str,
    ) -> Result<TakenTasks, PullError> {
        self.take_of(&[], queue, count, block, worker).await
    }

    /// As [`take`](Self::take), for a worker that may have tasks of some classes only; empty: of all. Tasks of other classes
    /// are left to other workers.
    ///
    /// # Errors
    /// As [`take`](Self::take), and for too many different `classes`.
    ///
    /// # Cancel safety
    /// As [`take`](Self::take).
    pub async fn take_of(
        &self,
        classes: &[ClassGlob],
        queue: &str,
        count: usize,
        block: Option<Duration>,
        worker: &str,
    ) -> Result<TakenTasks, PullError> {
        if !(1..=TAKE_MAX).contains(&count) {
            return Err(PullError::Count {
                found: count,
                max: TAKE_MAX,
            });
        }
        if worker.chars().count() > WORKER_CHARS_MAX || worker.contains(is_invisible) {
            return Err(PullError::Worker);
        }
        let workers = self.workers_of(queue)?;
        let lifecycle = &self.0.parts.lifecycle;
        if lifecycle.leaving.is_cancelled() || lifecycle.stopping.is_cancelled() {
            return Ok(self.nothing());
        }
        let Some((group, is_new)) = workers.demand.group_of(classes) else {
            return Err(PullError::Groups);
        };
        if is_new {
            // Queued signals were assigned to the old groups: drop them and sweep again.
            self.0.parts.queue.drop_pulled(queue);
            self.0.parts.sweep.activate(Cause::Asked);
        }
        let (give, mut given) = oneshot::channel();
        let _seen = Seen(&self.0.parts.reporter.metrics);
        // Before the place, because it is dropped after it.
        let _check = NotifyOnDrop(&self.0.last_left);
        let place = workers.join(Ticket {
            count,
            worker: Arc::from(worker),
            classes: classes.into(),
            group,
            give,
        });
        self.0.parts.reporter.metrics.members_changed();
        let was_active = workers.demand.set_active(true);
        if !was_active {
            // Tasks that fell due while no worker asked are found by a sweep, and the other daemons leave ours to us.
            self.0.parts.sweep.activate(Cause::Asked);
            self.0.parts.membership.activate(Cause::Asked);
        }
        let block = match block {
            Some(block) => block,
            None if was_active && !is_new && !self.0.parts.queue.has_pulled(queue) => {
                Duration::ZERO
            }
            None => UNDER_WAY,
        };
        self.0.parts.queue.demand_grew();
        tokio::select! {
            biased;
            taken = &mut given => return Ok(taken.unwrap_or_else(|_| self.nothing())),
            () = lifecycle.leaving.cancelled() => {}
            () = lifecycle.stopping.cancelled() => {}
            () = tokio::time::sleep(block) => {}
        }
        drop(place);
        // Tasks may have been delivered until the place was given up.
        Ok(given.try_recv().unwrap_or_else(|_| self.nothing()))
    }
}

/// Notes that a worker has come, and that it has left.
struct Seen<'a>(&'a Metrics);

impl Drop for Seen<'_> {
    fn drop(&mut self) {
        self.0.members_changed();
    }
}

/// Has the idle watch look when a worker is done, after it has left.
struct NotifyOnDrop<'a>(&'a Notify);

impl Drop for NotifyOnDrop<'_> {
    fn drop(&mut self) {
        self.0.notify_one();
    }
}

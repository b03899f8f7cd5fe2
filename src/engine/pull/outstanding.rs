//! Outstanding tasks: what this daemon keeps of a task that a worker has, until it is settled here or its lease ends.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard};
use std::time::Duration;

use tokio::task::AbortHandle;

use crate::engine::queue::route_load::RoutePermit;
use crate::engine::spans::{self, Span};
use crate::ledger::Lease;

/// What is kept of the tasks that workers have.
#[derive(Default)]
pub struct Outstanding(Mutex<HashMap<Lease, Kept>>);

struct Kept {
    /// The place of a task whose route limits their number.
    _permit: Option<RoutePermit>,
    /// The span of the run.
    run: Span,
    /// Ends this when the lease ends.
    timer: AbortHandle,
}

impl Drop for Kept {
    fn drop(&mut self) {
        self.timer.abort();
    }
}

impl Outstanding {
    /// Keeps the permit of a task, and the span of its run, for the length of its lease. Does nothing if it has neither.
    pub fn keep(
        self: &Arc<Self>,
        lease: Lease,
        permit: Option<RoutePermit>,
        run: Span,
        length: Duration,
    ) {
        if permit.is_none() && run.is_none() {
            return;
        }
        let timer = self.end_after(lease, length);
        let kept = Kept {
            _permit: permit,
            run,
            timer,
        };
        self.kept().insert(lease, kept);
    }

    /// Takes the span of the run; `None` if there is none here.
    pub fn take_span(&self, lease: &Lease) -> Span {
        self.kept().get_mut(lease)?.run.take()
    }

    /// Keeps what there is as long as the extended lease.
    pub fn renew(self: &Arc<Self>, lease: Lease, length: Duration) {
        if let Some(kept) = self.kept().get_mut(&lease) {
            kept.timer.abort();
            kept.timer = self.end_after(lease, length);
        }
    }

    /// Frees what is kept of a settled task.
    pub fn end(&self, lease: &Lease) {
        // Dropped after the lock: the permit wakes the claim workers.
        let _ended = self.kept().remove(lease);
    }

    fn end_after(self: &Arc<Self>, lease: Lease, length: Duration) -> AbortHandle {
        let outstanding = Arc::downgrade(self);
        let timer = tokio::spawn(async move {
            tokio::time::sleep(length).await;
            if let Some(outstanding) = outstanding.upgrade() {
                spans::unreported(outstanding.take_span(&lease));
                outstanding.end(&lease);
            }
        });
        timer.abort_handle()
    }

    fn kept(&self) -> MutexGuard<'_, HashMap<Lease, Kept>> {
        self.0.lock().expect("nothing panics while holding it")
    }
}

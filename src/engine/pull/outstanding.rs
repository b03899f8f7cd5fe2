//! Outstanding tasks of routes with a concurrency limit: each keeps its place until it is settled here, or its lease
//! ends.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard};
use std::time::Duration;

use tokio::task::AbortHandle;

use crate::engine::queue::route_load::RoutePermit;
use crate::ledger::Lease;

/// The places of tasks that workers have.
#[derive(Debug, Default)]
pub struct Outstanding(Mutex<HashMap<Lease, Kept>>);

#[derive(Debug)]
struct Kept {
    _permit: RoutePermit,
    /// Ends the place when the lease ends.
    timer: AbortHandle,
}

impl Drop for Kept {
    fn drop(&mut self) {
        self.timer.abort();
    }
}

impl Outstanding {
    /// Keeps the place of a task for the length of its lease.
    pub fn keep(self: &Arc<Self>, lease: Lease, permit: RoutePermit, length: Duration) {
        let timer = self.end_after(lease, length);
        let kept = Kept {
            _permit: permit,
            timer,
        };
        self.kept().insert(lease, kept);
    }

    /// Extends the place with the lease.
    pub fn renew(self: &Arc<Self>, lease: Lease, length: Duration) {
        if let Some(kept) = self.kept().get_mut(&lease) {
            kept.timer.abort();
            kept.timer = self.end_after(lease, length);
        }
    }

    /// Frees the place of a settled task.
    pub fn end(&self, lease: &Lease) {
        // Dropped after the lock: the permit wakes the claim workers.
        let _ended = self.kept().remove(lease);
    }

    fn end_after(self: &Arc<Self>, lease: Lease, length: Duration) -> AbortHandle {
        let outstanding = Arc::downgrade(self);
        let timer = tokio::spawn(async move {
            tokio::time::sleep(length).await;
            if let Some(outstanding) = outstanding.upgrade() {
                outstanding.end(&lease);
            }
        });
        timer.abort_handle()
    }

    fn kept(&self) -> MutexGuard<'_, HashMap<Lease, Kept>> {
        self.0.lock().expect("nothing panics while holding it")
    }
}

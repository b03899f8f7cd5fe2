//! Signals without an arming. An expired key may have no row yet, and then its signal is the only trace of its task.
//!
//! Such a signal must not wait long in memory. If a worker does not take it within moments, or if there is no room for it
//! in the queue of its route, it is listed here: its key is looked up, and adopted if it has no row.

use std::collections::VecDeque;
use std::sync::{Mutex, MutexGuard};

use tokio::sync::Notify;

use crate::timer::Signal;

/// Maximum number of signals without an arming that wait to be looked up.
pub const UNARMED_MAX: usize = 262_144;

/// Signals without an arming that wait to be looked up.
#[derive(Debug, Default)]
pub struct Unarmed {
    listed: Mutex<VecDeque<Signal>>,
    /// Notified when a signal is listed.
    pub(super) arrived: Notify,
    /// Notified when such a signal waits in the queue of its route.
    pub(super) waits: Notify,
}

impl Unarmed {
    /// Lists a signal. Returns it if there is no room.
    pub(super) fn push(&self, signal: Signal) -> Result<(), Signal> {
        let mut listed = self.listed();
        if listed.len() >= UNARMED_MAX {
            return Err(signal);
        }
        listed.push_back(signal);
        drop(listed);
        self.arrived.notify_one();
        Ok(())
    }

    pub(super) fn take(&self, limit: usize) -> Vec<Signal> {
        let mut listed = self.listed();
        let count = listed.len().min(limit);
        listed.drain(..count).collect()
    }

    /// Number of signals that may still be listed.
    pub(super) fn room(&self) -> usize {
        UNARMED_MAX.saturating_sub(self.listed().len())
    }

    fn listed(&self) -> MutexGuard<'_, VecDeque<Signal>> {
        self.listed
            .lock()
            .expect("nothing panics while holding the listed signals")
    }
}

//! The queue's part in looking up signals without an arming.

use super::SignalQueue;
use super::fair::Refused;
use crate::engine::workers::demand::Demand;
use crate::handler::Route;
use crate::task::TaskKey;
use crate::telemetry::DropReason;
use crate::timer::{Signal, Source};

impl SignalQueue {
    /// Waits until some signals are listed to be looked up, and takes at most `limit` of them. Their keys are in flight
    /// until [`finish`](Self::finish).
    ///
    /// # Cancel safety
    /// Cancel safe: signals are removed only when they are returned.
    pub async fn unarmed(&self, limit: usize) -> Vec<Signal> {
        loop {
            let arrived = self.unarmed.arrived.notified();
            let listed = self.unarmed.take(limit);
            if !listed.is_empty() {
                return listed;
            }
            arrived.await;
        }
    }

    /// Waits until a signal without an arming waits in the queue of its route.
    ///
    /// # Cancel safety
    /// Cancel safe.
    pub async fn unarmed_waits(&self) {
        loop {
            let waits = self.unarmed.waits.notified();
            if self.queues().route_queues.has_unarmed() {
                return;
            }
            waits.await;
        }
    }

    /// Lists the signals without an arming that wait in the queues of their routes.
    pub fn list_waiting_unarmed(&self) {
        let waiting = self.current_queues().take_unarmed(self.unarmed.room());
        self.list_again(waiting);
    }

    /// Takes the keys of all signals of expired keys that were not looked up: no worker takes any more.
    pub fn take_expired(&self) -> Vec<TaskKey> {
        let mut left = self.unarmed.take(usize::MAX);
        left.extend(self.queues().take_unarmed(usize::MAX));
        let expired = left
            .into_iter()
            .filter(|signal| signal.source == Source::Event);
        expired.map(|signal| signal.key).collect()
    }

    /// Lists signals whose keys are in flight. Those that do not fit are dropped.
    pub fn list_again(&self, signals: impl IntoIterator<Item = Signal>) {
        for signal in signals {
            // Counted.
            self.look_up_later(signal).unwrap_or(());
        }
    }

    /// Lists expired keys that could not be adopted for lack of room.
    pub fn list_expired(&self, keys: impl IntoIterator<Item = TaskKey>) {
        self.list_again(
            keys.into_iter()
                .map(|key| Signal::new(key, Source::Event, None)),
        );
    }

    /// True if a signal without an arming might wait long for a worker of a pull route.
    pub(super) fn needs_row_first(&self, route: &Route, key: &TaskKey) -> bool {
        let pull = route.pull.as_ref();
        pull.is_some_and(|pull| is_unasked(&self.demands.of(&pull.queue), key))
    }

    /// Lists a signal whose key is in flight.
    pub(super) fn look_up_later(&self, signal: Signal) -> Result<(), Refused> {
        self.unarmed.push(signal).map_err(|refused| {
            self.metrics.dropped(DropReason::Overflow, 1);
            self.finish([&refused.key]);
            Refused::Full
        })
    }
}

fn is_unasked(demand: &Demand, key: &TaskKey) -> bool {
    demand.capacity_for(demand.audience_of(key)) == 0
}

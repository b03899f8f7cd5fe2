//! Signals of pull routes.

use std::sync::Arc;

use tokio::sync::mpsc;

use super::SignalQueue;
use super::demand::Demands;
use super::fair::{Held, Refused};
use crate::handler::Route;
use crate::task::TaskKey;
use crate::telemetry::DropReason;
use crate::timer::Signal;

impl SignalQueue {
    /// The demand for pull queues.
    pub fn demands(&self) -> &Arc<Demands> {
        &self.demands
    }

    /// Has the workers and the rate limits look again after the demand for a pull queue has grown.
    pub fn demand_grew(&self) {
        self.wakeups.starved.notify_one();
        self.wakeups.wake_all();
    }

    /// Returns the signals of pull routes that have to be looked up before they may wait. `None` if they were taken.
    pub fn take_unarmed(&self) -> Option<mpsc::Receiver<Signal>> {
        let mut receiver = self.unarmed_receiver.lock();
        receiver
            .as_mut()
            .expect("nothing panics while holding it")
            .take()
    }

    /// True if this is a pull route for which no worker has asked for a while.
    pub fn is_idle(&self, route: &Route) -> bool {
        let pull = route.pull.as_ref();
        pull.is_some_and(|pull| !self.demands.of(&pull.queue).is_active())
    }

    /// Why waiting signals like that of this task may not start now; `None` if they may, or if none wait.
    pub fn held_like(&self, route: &Route, key: &TaskKey) -> Option<Held> {
        let lane = route.pull.as_ref().map(|pull| {
            let demand = self.demands.of(&pull.queue);
            demand.lane_of(key)
        });
        let free = self.free_slots();
        let queues = self.queues();
        queues.route_queues.held_route(&route.name, lane, free)
    }

    /// True if signals for this pull queue wait or are being claimed.
    pub fn has_pulled(&self, pull_queue: &str) -> bool {
        !self
            .current_queues()
            .route_queues
            .pulled_from(pull_queue)
            .is_empty()
    }

    /// Drops the waiting signals for this pull queue. The sweep finds their tasks when workers ask again.
    pub fn drop_pulled(&self, pull_queue: &str) {
        let mut queues = self.current_queues();
        let mut dropped = Vec::new();
        for route in queues.route_queues.pulled_from(pull_queue) {
            let aside = queues.set_aside(&route, usize::MAX, |_| true);
            dropped.extend(aside.signals);
        }
        drop(queues);
        self.metrics.dropped(DropReason::Held, dropped.len() as u64);
        self.finish(dropped.iter().map(|signal| &signal.key));
    }

    /// True if a signal without an arming might wait long for a worker: its key may have no row yet.
    pub(super) fn needs_row_first(&self, route: &Route, key: &TaskKey) -> bool {
        let pull = route.pull.as_ref();
        pull.is_some_and(|pull| {
            let demand = self.demands.of(&pull.queue);
            demand.open_for(demand.lane_of(key)) == 0
        })
    }

    pub(super) fn look_up_later(&self, signal: Signal) -> Result<(), Refused> {
        self.unarmed.try_send(signal).map_err(|refused| {
            self.metrics.dropped(DropReason::Overflow, 1);
            self.finish([&refused.into_inner().key]);
            Refused::Full
        })
    }
}

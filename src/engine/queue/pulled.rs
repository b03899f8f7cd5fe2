//! Signals of pull routes.

use std::sync::Arc;

use super::SignalQueue;
use super::fair::Blocked;
use crate::engine::workers::demand::Demands;
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

    /// True if this is a pull route for which no worker has asked for a while.
    pub fn is_idle(&self, route: &Route) -> bool {
        let pull = route.pull.as_ref();
        pull.is_some_and(|pull| !self.demands.of(&pull.queue).is_active())
    }

    /// Why waiting signals like that of this task may not start now; `None` if they may, or if none wait.
    pub fn blocked_like(&self, route: &Route, key: &TaskKey) -> Option<Blocked> {
        let audience = route.pull.as_ref().map(|pull| {
            let demand = self.demands.of(&pull.queue);
            demand.audience_of(key)
        });
        let free = self.free_slots();
        let queues = self.queues();
        queues
            .route_queues
            .blocked_route(&route.name, audience, free)
    }

    /// True if signals for this pull queue wait or are being claimed.
    pub fn has_pulled(&self, pull_queue: &str) -> bool {
        !self
            .current_queues()
            .route_queues
            .pulled_from(pull_queue)
            .is_empty()
    }

    /// Drops the waiting signals for this pull queue. The sweep finds their tasks when workers ask again; the keys of
    /// signals without an arming are looked up first, since they may have no row.
    pub fn drop_pulled(&self, pull_queue: &str) {
        let mut queues = self.current_queues();
        let mut dropped = Vec::new();
        for route in queues.route_queues.pulled_from(pull_queue) {
            let aside = queues.set_aside(&route, usize::MAX, |_| true);
            dropped.extend(aside.signals);
        }
        drop(queues);
        let (unarmed, dropped): (Vec<Signal>, Vec<Signal>) = dropped
            .into_iter()
            .partition(|signal| signal.arming.is_none());
        self.list_again(unarmed);
        self.metrics.dropped(DropReason::Held, dropped.len() as u64);
        self.finish(dropped.iter().map(|signal| &signal.key));
    }
}

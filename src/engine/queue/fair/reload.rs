//! A reload of the routes: waiting signals are pushed again, and runs keep their loads.

use std::sync::Arc;

use super::RouteQueues;
use crate::engine::queue::class::SignalClass;
use crate::handler::Router;
use crate::timer::Signal;

impl RouteQueues {
    /// True if the routes are the current ones of `router`.
    pub fn is_current(&self, router: &Router) -> bool {
        self.reloads == router.reloads()
    }

    /// Adopts the current routes of `router`. Returns all waiting signals, which the caller pushes again. The loads of
    /// all routes are kept until [`forget_loads`](Self::forget_loads).
    pub fn reroute(&mut self, router: &Router) -> Vec<(SignalClass, Signal)> {
        let Self { queues, loads, .. } = std::mem::replace(
            self,
            Self::new(router, Arc::clone(&self.wakeups), Arc::clone(&self.demands)),
        );
        self.loads = loads;
        let waiting = queues.into_iter().flat_map(|queue| {
            let classes = [SignalClass::Fresh, SignalClass::Backlog]
                .into_iter()
                .zip(queue.signals);
            classes
                .flat_map(|(class, signals)| signals.into_iter().map(move |signal| (class, signal)))
        });
        waiting.collect()
    }

    /// Forgets the loads of removed routes without runs.
    pub fn forget_loads(&mut self) {
        let known = &self.by_name;
        self.loads
            .retain(|name, load| known.contains_key(name) || load.running() > 0);
    }
}

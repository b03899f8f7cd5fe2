//! Queue of one route, or of one audience of a pull route.

use std::collections::VecDeque;
use std::sync::Arc;

use super::route_load::{RouteLoad, RoutePermit};
use crate::engine::workers::demand::{Audience, Demand};
use crate::handler::Route;
use crate::timer::Signal;

/// The waiting signals of one route, by class.
pub struct RouteQueue {
    pub route: Route,
    pub load: Arc<RouteLoad>,
    pub signals: [VecDeque<Signal>; 2],
    /// Number of these signals that name no arming.
    pub unarmed: usize,
    /// True while starts are being requested, or until the next request is allowed.
    pub requested: bool,
    /// The demand of the workers of a pull route: without it, nothing starts.
    pub demand: Option<Arc<Demand>>,
    /// Which workers may have the tasks; 0 without a demand.
    pub audience: Audience,
}

/// A signal taken from the queue, with its route and its permit.
pub struct Dequeued {
    /// The signal.
    pub signal: Signal,
    /// The route that runs its task.
    pub route: Route,
    /// The route's permit for one run.
    pub permit: RoutePermit,
}

impl RouteQueue {
    pub fn len(&self) -> usize {
        self.signals.iter().map(VecDeque::len).sum()
    }

    pub fn is_empty(&self) -> bool {
        self.signals.iter().all(VecDeque::is_empty)
    }

    /// True if the route needs starts and no request for them is under way.
    pub fn is_starved(&self) -> bool {
        self.route.limits.rate.is_some()
            && !self.requested
            && !self.is_empty()
            && self.load.starts() == 0
            && self.places() > 0
    }

    /// Number of runs for which there is room in the route's concurrency and in the demand of its workers.
    pub fn places(&self) -> usize {
        let limit = self.route.limits.concurrency;
        let places = limit.map_or(usize::MAX, |limit| {
            (limit.get() as usize).saturating_sub(self.load.running())
        });
        let demand = self.demand.as_ref();
        places.min(demand.map_or(usize::MAX, |demand| demand.capacity_for(self.audience)))
    }

    /// True if this is a pull route for which no worker has asked for a while.
    pub fn is_idle(&self) -> bool {
        let demand = self.demand.as_ref();
        demand.is_some_and(|demand| !demand.is_active())
    }

    /// Number of runs that could start now.
    pub fn room(&self) -> usize {
        let starts = match self.route.limits.rate {
            Some(_) => self.load.starts() as usize,
            None => usize::MAX,
        };
        starts.min(self.places())
    }

    pub fn take_first(&mut self, at: usize) -> Dequeued {
        let signal = self.signals[at]
            .pop_front()
            .expect("only queues with signals have a turn");
        self.unarmed -= usize::from(signal.arming.is_none());
        Dequeued {
            signal,
            route: self.route.clone(),
            permit: self
                .load
                .permit(self.route.limits.rate.is_some())
                .reserving(
                    self.demand
                        .as_ref()
                        .map(|demand| demand.reserve(self.audience)),
                ),
        }
    }
}

impl std::fmt::Debug for RouteQueue {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("RouteQueue")
            .field("route", &self.route.name)
            .field("load", &self.load)
            .field("waiting", &self.len())
            .finish()
    }
}

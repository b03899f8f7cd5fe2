//! Starts that rate limits grant: which routes need them.

use std::sync::Arc;

use super::{RouteQueues, StartsWanted};

impl RouteQueues {
    /// Routes with a rate limit that need starts. Each is returned once, until [`end_request`](Self::end_request).
    pub fn starts_wanted(&mut self) -> Vec<StartsWanted> {
        let mut wanted = Vec::new();
        for places in self.by_name.values() {
            let mut queues = places.iter().map(|index| &self.queues[*index]);
            let Some(starved) = queues.find(|queue| queue.is_starved()) else {
                continue;
            };
            wanted.extend(starved.route.limits.rate.map(|rate| StartsWanted {
                name: Arc::clone(&starved.route.name),
                rate,
            }));
            for index in places {
                self.queues[*index].requested = true;
            }
        }
        wanted
    }

    /// Grants a route a number of starts.
    pub fn grant(&mut self, name: &str, starts: u32) {
        let places = self.by_name.get(name);
        // Its queues share a load.
        if let Some(index) = places.and_then(|places| places.first()) {
            self.queues[*index].load.grant(starts);
        }
    }

    /// Ends a route's request for starts; the route may request starts again.
    pub fn end_request(&mut self, name: &str) {
        for index in self.by_name.get(name).into_iter().flatten() {
            let queue = &mut self.queues[*index];
            queue.requested = false;
            if queue.is_starved() {
                self.wakeups.starved.notify_one();
            }
        }
    }
}

//! Starts that rate limits grant: which routes need them.

use std::sync::Arc;

use super::{RouteQueues, StartsWanted};

impl RouteQueues {
    /// Routes with a rate limit that need starts. Each is returned once, until [`end_request`](Self::end_request).
    pub fn starts_wanted(&mut self) -> Vec<StartsWanted> {
        let starved = self.queues.iter_mut().filter(|queue| queue.is_starved());
        let wanted = starved.filter_map(|queue| {
            queue.requested = true;
            Some(StartsWanted {
                name: Arc::clone(&queue.route.name),
                rate: queue.route.limits.rate?,
            })
        });
        wanted.collect()
    }

    /// Grants a route a number of starts.
    pub fn grant(&mut self, name: &str, starts: u32) {
        if let Some(index) = self.by_name.get(name) {
            self.queues[*index].load.grant(starts);
        }
    }

    /// Ends a route's request for starts; the route may request starts again.
    pub fn end_request(&mut self, name: &str) {
        if let Some(index) = self.by_name.get(name) {
            let queue = &mut self.queues[*index];
            queue.requested = false;
            if queue.is_starved() {
                self.wakeups.starved.notify_one();
            }
        }
    }
}

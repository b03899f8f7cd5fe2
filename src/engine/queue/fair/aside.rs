//! Signals that are set aside: they are removed from their queue without starting.

use super::{RouteQueues, SetAside};
use crate::engine::queue::class::SignalClass;
use crate::timer::Signal;

impl RouteQueues {
    /// Removes the signals from a route's queues that `hindered` keeps from starting. In each class of a queue it examines
    /// signals from the front until `limit` of them may start: starts for later signals are not requested yet.
    pub fn set_aside(
        &mut self,
        name: &str,
        limit: usize,
        hindered: impl Fn(&Signal) -> bool,
    ) -> SetAside {
        let mut aside = SetAside::default();
        for index in self.by_name.get(name).cloned().unwrap_or_default() {
            let mut startable = 0;
            for at in [SignalClass::Fresh as usize, SignalClass::Backlog as usize] {
                let queue = &mut self.queues[index].signals[at];
                let mut front = Vec::with_capacity(limit.min(queue.len()));
                let before = aside.signals.len();
                while front.len() < limit
                    && let Some(signal) = queue.pop_front()
                {
                    match hindered(&signal) {
                        true => aside.signals.push(signal),
                        false => front.push(signal),
                    }
                }
                startable += front.len();
                front
                    .into_iter()
                    .rev()
                    .for_each(|signal| queue.push_front(signal));
                let (taken, is_empty) = (aside.signals.len() - before, queue.is_empty());
                self.waiting[at] -= taken;
                if taken > 0 && is_empty {
                    self.turns[at].retain(|_, turns| {
                        turns.retain(|turn| *turn != index);
                        !turns.is_empty()
                    });
                }
            }
            aside.startable += startable.min(self.queues[index].places());
        }
        aside
    }
}

//! Signals that are set aside: they are removed from their queue without starting.

use super::{RouteQueues, SetAside};
use crate::engine::queue::class::SignalClass;
use crate::timer::Signal;

impl RouteQueues {
    /// Removes the signals from a route's queues that `blocked` keeps from starting. In each class of a queue it examines
    /// signals from the front until `limit` of them may start: starts for later signals are not requested yet.
    pub fn set_aside(
        &mut self,
        name: &str,
        limit: usize,
        blocked: impl Fn(&Signal) -> bool,
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
                    match blocked(&signal) {
                        true => aside.signals.push(signal),
                        false => front.push(signal),
                    }
                }
                startable += front.len();
                front
                    .into_iter()
                    .rev()
                    .for_each(|signal| queue.push_front(signal));
                let unarmed = aside.signals[before..].iter();
                let unarmed = unarmed.filter(|signal| signal.arming.is_none()).count();
                let taken = aside.signals.len() - before;
                self.queues[index].unarmed -= unarmed;
                self.removed(index, at, taken);
            }
            aside.startable += startable.min(self.queues[index].places());
        }
        aside
    }

    /// True if a waiting signal names no arming.
    pub fn has_unarmed(&self) -> bool {
        self.queues.iter().any(|queue| queue.unarmed > 0)
    }

    /// Removes at most `limit` waiting signals that name no arming, the latest of each queue, in order: those that have
    /// waited for longer have mostly been looked up.
    pub fn take_unarmed(&mut self, limit: usize) -> Vec<Signal> {
        let mut taken = Vec::new();
        for index in 0..self.queues.len() {
            for at in [SignalClass::Fresh as usize, SignalClass::Backlog as usize] {
                let queue = &mut self.queues[index];
                let (before, mut armed) = (taken.len(), Vec::new());
                while queue.unarmed > 0
                    && taken.len() < limit
                    && let Some(signal) = queue.signals[at].pop_back()
                {
                    match signal.arming {
                        None => {
                            queue.unarmed -= 1;
                            taken.push(signal);
                        }
                        Some(_) => armed.push(signal),
                    }
                }
                queue.signals[at].extend(armed.into_iter().rev());
                // They come back in the order in which they are returned.
                taken[before..].reverse();
                self.removed(index, at, taken.len() - before);
            }
        }
        taken
    }

    /// Accounts for signals that were removed from a queue.
    fn removed(&mut self, index: usize, at: usize, count: usize) {
        self.waiting[at] -= count;
        if count > 0 && self.queues[index].signals[at].is_empty() {
            self.turns[at].retain(|_, turns| {
                turns.retain(|turn| *turn != index);
                !turns.is_empty()
            });
        }
    }
}

//! Status of the pull queues: who asks for tasks.

use std::time::Duration;

use super::PullQueues;
use crate::membership::{AskedQueue, AskedQueues};

/// Status of a pull queue, as this daemon sees it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PullQueueStatus {
    /// Its name.
    pub queue: String,
    /// How long a worker has a task, unless it renews its claim.
    pub visibility: Duration,
    /// Number of tasks that waiting workers ask this daemon for.
    pub wanted: usize,
    /// The workers that have asked this daemon, the latest first. At most 256.
    pub workers: Vec<WorkerStatus>,
}

/// A worker that has asked this daemon for tasks.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct WorkerStatus {
    /// Its name; may be empty.
    pub name: String,
    /// Number of its calls that wait for tasks now.
    pub waiting: usize,
    /// Number of tasks it has taken here.
    pub taken: u64,
    /// Time since it asked or got tasks last.
    pub seen_ago: Duration,
}

impl PullQueueStatus {
    /// True if this worker waits for tasks, or asked so lately that it may be busy with one.
    pub fn has(&self, worker: &WorkerStatus) -> bool {
        worker.waiting > 0 || worker.seen_ago <= self.visibility
    }
}

impl PullQueues {
    /// The queues that workers have asked this daemon for, as it tells the others.
    pub(in crate::engine) fn asked(&self) -> AskedQueues {
        let now = self.0.parts.clock.now();
        let count = |workers: usize| u32::try_from(workers).unwrap_or(u32::MAX);
        let asked = self.status().into_iter().filter_map(|queue| {
            let seen_ago = queue.workers.iter().map(|worker| worker.seen_ago).min()?;
            let workers = || queue.workers.iter().filter(|worker| queue.has(worker));
            Some(AskedQueue {
                workers: count(workers().count()),
                waiting: count(workers().filter(|worker| worker.waiting > 0).count()),
                asked: now.minus(seen_ago),
                name: queue.queue.clone(),
            })
        });
        AskedQueues::new(asked.collect())
    }

    /// Status of the pull queues that routes of this daemon name, in the order of the routes.
    pub fn status(&self) -> Vec<PullQueueStatus> {
        let demands = self.0.parts.queue.demands();
        let mut queues: Vec<PullQueueStatus> = Vec::new();
        for (_, pull) in self.0.parts.router.pull_queues() {
            if queues.iter().any(|known| *known.queue == *pull.queue) {
                continue;
            }
            let waiting = self.workers().get(&pull.queue).cloned();
            let seen = waiting.map_or_else(Vec::new, |waiting| waiting.workers());
            let mut workers: Vec<WorkerStatus> = seen
                .into_iter()
                .map(|(name, seen, waiting)| WorkerStatus {
                    name: name.to_string(),
                    waiting,
                    taken: seen.taken,
                    seen_ago: seen.at.elapsed(),
                })
                .collect();
            workers.sort_by(|one, other| {
                let order = (one.seen_ago, &one.name);
                order.cmp(&(other.seen_ago, &other.name))
            });
            queues.push(PullQueueStatus {
                wanted: demands.of(&pull.queue).wanted(),
                queue: pull.queue.to_string(),
                visibility: pull.visibility,
                workers,
            });
        }
        queues
    }
}

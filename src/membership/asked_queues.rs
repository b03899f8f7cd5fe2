//! Asked queues: for which pull queues workers ask a member, as its heartbeat lists them.

use serde::{Deserialize, Serialize};

use crate::config::PullConfig;
use crate::task::UnixMs;

/// Most queues that a heartbeat lists.
pub const QUEUES_MAX: usize = 20;

/// The pull queues that workers have asked a member for. Those that workers ask for now are listed first.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct AskedQueues {
    list: Vec<AskedQueue>,
    left_out: u32,
}

/// A pull queue that workers have asked a member for.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct AskedQueue {
    /// Its name.
    pub name: String,
    /// Workers that wait for its tasks, or asked within the length of its lease: they may be busy with one.
    pub workers: u32,
    /// How many of them wait.
    pub waiting: u32,
    /// When a worker asked or got tasks last, on the ledger's clock.
    pub asked: UnixMs,
}

/// The JSON form of a queue: name, workers, waiting workers, time of the last one.
#[derive(Serialize, Deserialize)]
pub(super) struct Written(String, u32, u32, i64);

impl AskedQueues {
    /// Keeps as many as a heartbeat lists: first those that have workers, each in the order that is given.
    pub fn new(mut queues: Vec<AskedQueue>) -> Self {
        queues.sort_by_key(|queue| queue.workers == 0);
        let left_out = queues.len().saturating_sub(QUEUES_MAX);
        queues.truncate(QUEUES_MAX);
        Self {
            list: queues,
            left_out: u32::try_from(left_out).unwrap_or(u32::MAX),
        }
    }

    /// The queues that are listed.
    pub fn list(&self) -> &[AskedQueue] {
        &self.list
    }

    /// Number of queues that workers have asked for and that are not listed.
    pub fn left_out(&self) -> u32 {
        self.left_out
    }

    /// The queues without what changes each second: a worker that waits asks now. The time of one that does not wait is in
    /// steps of ten seconds.
    pub(super) fn steady(&self) -> Self {
        let list = self.list.iter().map(|queue| AskedQueue {
            asked: match queue.waiting {
                0 => step(queue.asked),
                _ => UnixMs(0),
            },
            ..queue.clone()
        });
        Self {
            list: list.collect(),
            left_out: self.left_out,
        }
    }

    pub(super) fn written(&self) -> (Vec<Written>, u32) {
        let list = self.list.iter().map(|queue| {
            let AskedQueue {
                name,
                workers,
                waiting,
                asked,
            } = queue;
            Written(name.clone(), *workers, *waiting, asked.0)
        });
        (list.collect(), self.left_out)
    }

    /// Takes what a heartbeat says, which any client of Redis can write: no more queues than a member lists, and no name that
    /// is none of a queue.
    pub(super) fn read(written: Vec<Written>, left_out: u32) -> Self {
        let list = written.into_iter();
        let list = list.filter(|Written(name, ..)| PullConfig::is_queue(name));
        let list = list.map(|Written(name, workers, waiting, asked)| AskedQueue {
            name,
            workers,
            waiting,
            asked: UnixMs(asked),
        });
        Self {
            list: list.take(QUEUES_MAX).collect(),
            left_out,
        }
    }
}

/// The ten seconds in which a time is.
pub(super) fn step(at: UnixMs) -> UnixMs {
    const STEP_MS: i64 = 10_000;
    UnixMs(at.0.saturating_sub(at.0.rem_euclid(STEP_MS)))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn queue(name: &str, workers: u32) -> AskedQueue {
        AskedQueue {
            name: name.to_owned(),
            workers,
            waiting: workers,
            asked: UnixMs(1_800_000_000_000),
        }
    }

    fn names(queues: &AskedQueues) -> Vec<&str> {
        queues.list().iter().map(|it| it.name.as_str()).collect()
    }

    #[test]
    fn queues_with_workers_are_listed_first_and_the_number_of_the_others_is_known() {
        let few = AskedQueues::new(vec![queue("old", 0), queue("b", 2), queue("a", 1)]);
        assert_eq!(names(&few), ["b", "a", "old"]);
        assert_eq!(few.left_out(), 0);
        let idle = (0..190).map(|n| queue(&format!("idle-{n}"), 0));
        let asked = (0..10).map(|n| queue(&format!("asked-{n}"), 1));
        let many = AskedQueues::new(idle.chain(asked).collect());
        assert_eq!(many.list().len(), QUEUES_MAX);
        assert_eq!(names(&many)[9..11], ["asked-9", "idle-0"]);
        assert_eq!(many.left_out(), 180);
        let (list, left_out) = many.written();
        assert_eq!(AskedQueues::read(list, left_out), many);
    }

    #[test]
    fn names_of_no_queue_and_queues_beyond_the_bound_are_not_read() {
        let said = |name: &str| Written(name.to_owned(), 1, 0, 0);
        let bad = ["<b>", "", "a b", "mail"].map(said).into();
        assert_eq!(names(&AskedQueues::read(bad, 0)), ["mail"]);
        let many = (0..2 * QUEUES_MAX).map(|n| said(&format!("q{n}")));
        let many = AskedQueues::read(many.collect(), 7);
        assert_eq!((many.list().len(), many.left_out()), (QUEUES_MAX, 7));
    }
}

//! Why a task that is due does not start.

use crate::engine::Handle;
use crate::task::{Hindrance, Paused, TaskKey, UnixMs};

/// Why tasks of a key do not start though they are due, as far as it is known.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub enum Cause {
    /// Their class or method is paused, or everything is.
    Paused,
    /// They are held for review.
    Held,
    /// None of the daemons has a handler or a route for them.
    NoRoute,
    /// No worker asks any daemon for this queue; `None`: a queue that only other daemons have.
    NoWorker(Option<String>),
    /// Something else, such as limits.
    Unknown,
}

/// Returns why tasks of a key with this due time do not start.
pub fn cause(engine: &Handle, paused: &Paused, key: &TaskKey, due: UnixMs) -> Cause {
    match paused.hinders(key, due) {
        Some(Hindrance::Paused) => return Cause::Paused,
        Some(Hindrance::Held) => return Cause::Held,
        None => {}
    }
    let queue = engine.pull_queue_of(key);
    let daemons = engine.daemons();
    if daemons.len() <= 1 {
        // What this daemon knows by itself is newer than its heartbeat.
        return match queue {
            Some(queue) if !is_asked(engine, &queue) => Cause::NoWorker(Some(queue.to_string())),
            Some(_) => Cause::Unknown,
            None if engine.runs(key) => Cause::Unknown,
            None => Cause::NoRoute,
        };
    }
    let mut able = daemons
        .iter()
        .filter(|daemon| daemon.can_run(key))
        .peekable();
    match () {
        () if able.peek().is_none() => Cause::NoRoute,
        () if !able.any(|daemon| daemon.can_start(key)) => {
            Cause::NoWorker(queue.map(|queue| queue.to_string()))
        }
        () => Cause::Unknown,
    }
}

/// True if workers ask this daemon for a queue, or have just taken a task of it.
fn is_asked(engine: &Handle, queue: &str) -> bool {
    let queues = engine.pull().status().into_iter();
    let mut queues = queues.filter(|status| status.queue == queue);
    queues.any(|status| {
        let mut workers = status.workers.iter();
        workers.any(|worker| worker.waiting > 0 || worker.seen_ago <= status.visibility)
    })
}

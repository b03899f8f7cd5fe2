//! A task as people describe it, whether by options or in a line of a file.

use lapsed::config::Secret;
use lapsed::task::TaskKey;
use lapsed::{IfPending, Task};

/// What is said about a task beside when it falls due.
pub struct TaskOptions {
    pub key: TaskKey,
    /// JSON.
    pub payload: Option<String>,
    pub tag: Option<String>,
    /// Runs, not retries.
    pub max_attempts: Option<u16>,
    pub if_pending: IfPending,
    /// One of many with this key.
    pub unique: bool,
    /// The trace it belongs to.
    pub traceparent: Option<String>,
}

impl TaskOptions {
    /// The task, signed where there is a secret; else what does not fit.
    pub fn task(self, secret: Option<Secret>) -> Result<Task, String> {
        let Self {
            key,
            payload,
            tag,
            max_attempts,
            if_pending,
            unique,
            traceparent,
        } = self;
        let mut task = Task::from(key).if_pending(if_pending);
        if unique {
            task = task.unique().map_err(|error| error.to_string())?;
        }
        if let Some(payload) = payload {
            task = task.payload(payload);
        }
        if let Some(tag) = tag {
            task = task.tag(tag);
        }
        if let Some(runs) = max_attempts {
            task = task.max_attempts(runs);
        }
        if let Some(trace) = traceparent {
            task = task
                .traceparent(&trace)
                .map_err(|error| error.to_string())?;
        }
        if let Some(secret) = secret {
            task = task.sign(secret);
        }
        Ok(task)
    }
}

//! Options of a task, from the command line or a bulk line.

use lapsed::config::Secret;
use lapsed::task::TaskKey;
use lapsed::{IfPending, Task};

/// All options of a task except its due time.
pub struct TaskOptions {
    pub key: TaskKey,
    /// Payload as JSON.
    pub payload: Option<String>,
    pub tag: Option<String>,
    /// Maximum number of runs, including the first.
    pub max_attempts: Option<u16>,
    pub if_pending: IfPending,
    /// Whether the key is made unique by a suffix.
    pub unique: bool,
    /// W3C trace context.
    pub traceparent: Option<String>,
}

impl TaskOptions {
    /// Builds the task, signed if there is a secret.
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

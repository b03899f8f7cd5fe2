//! What fuzz targets call: the readers of other systems' jobs.

use std::sync::Arc;

use lapsed::task::UnixMs;

use super::job::Found;
use super::php::unserialize;
use super::protobuf::TaskMessage;
use super::sets::Page;
use super::sorted_set_jobs::ReadJob;
use super::store::{Entry, Field};
use super::{asynq, bullmq, seed001, sidekiq, string_jobs};

/// What was read of a job.
#[derive(Debug)]
pub struct Job {
    /// When it is due.
    pub due: UnixMs,
    /// The payload of its task.
    pub payload: Option<String>,
    /// Its id as people see it.
    pub shown: String,
}

/// Reads the job of an entry of a sorted set and the fields of its hash; an empty field is missing. `None` if there is no such
/// system, or the entry is a task already.
pub fn read_job(
    system: &str,
    score: &str,
    member: &[u8],
    fields: &[&[u8]],
) -> Option<Result<Job, String>> {
    let (read, count): (ReadJob, usize) = match system {
        "asynq" => (asynq::job, 1),
        "bullmq" => (bullmq::job, 7),
        "seed001" => (seed001::job, 0),
        "sidekiq" => (sidekiq::job, 0),
        "laravel" | "think-queue" => (string_jobs::job, 0),
        _ => return None,
    };
    let entry = Entry::whole(member, score);
    let field = |place: usize| match fields.get(place) {
        None | Some([]) => Field::Missing,
        Some(value) => Field::Value(value.to_vec()),
    };
    let fields: Vec<Field> = (0..count).map(field).collect();
    let page = Page {
        set: Arc::from("jobs"),
        queue: Arc::from("mail"),
        entries: Vec::new(),
    };
    Some(match read(&entry, &fields, &page) {
        Ok(Found::Job(job)) => Ok(Job {
            due: job.due,
            shown: job.shown(),
            payload: job.contents.payload,
        }),
        Ok(Found::Refused { why, .. }) | Err(why) => Err(why),
        Ok(_) => return None,
    })
}

/// Reads a value that PHP has serialized, and writes it as JSON.
///
/// # Errors
/// Says what was expected.
pub fn php_json(bytes: &[u8]) -> Result<String, String> {
    unserialize(bytes).map(|value| value.json())
}

/// Reads a message of asynq. Returns the bytes of its type and payload.
///
/// # Errors
/// Says what is wrong.
pub fn task_message(bytes: &[u8]) -> Result<usize, String> {
    let message = TaskMessage::decode(bytes)?;
    Ok(message.kind.len() + message.payload.len())
}

//! A framework's job as a task: its key, and its member as the payload.

use base64::Engine as _;
use base64::prelude::BASE64_STANDARD;
use serde::{Deserialize, Serialize};
use sha2::{Digest, Sha256};

use super::profile::{Profile, Whose};
use crate::format::hex;
use crate::task::{Foreign, PAYLOAD_BYTES_MAX, TaskKey};

/// Bytes of a key that its last argument may need: an id, or a digest.
pub(super) const ID_BYTES: usize = 72;

/// What is read of a job in JSON.
#[derive(Deserialize)]
struct Job {
    id: Option<Id>,
    uuid: Option<String>,
    #[serde(default)]
    attempts: u64,
    queue: Option<String>,
}

#[derive(Deserialize)]
#[serde(untagged)]
enum Id {
    Text(String),
    Number(u64),
}

/// A member that is no JSON object.
#[derive(Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct Bytes {
    base64: String,
}

pub(super) fn key_of(
    profile: Profile,
    class: &str,
    whose: &Whose,
    member: &[u8],
) -> Result<TaskKey, Foreign> {
    if member.is_empty() {
        return Err(Foreign::NotInGrammar);
    }
    let (method, id) = match (profile, whose) {
        (Profile::Hyperf, Whose::Queue(queue)) => (queue.clone(), digest(member, 16)),
        (_, Whose::Queue(queue)) => (queue.clone(), id_of(member)),
        (_, Whose::AnyQueue) => {
            let job: Job = serde_json::from_slice(member).map_err(|_| Foreign::NotInGrammar)?;
            let queue = job.queue.ok_or(Foreign::NotInGrammar)?;
            // Its producers make ids that two jobs may share.
            let id = match job.id.and_then(Id::argument) {
                Some(id) => format!("{id}.{}", &digest(member, 4)[1..]),
                None => digest(member, 16),
            };
            (queue, id)
        }
    };
    if job_payload(member).len() > PAYLOAD_BYTES_MAX {
        return Err(Foreign::TooLong);
    }
    TaskKey::build(class, &method, [id]).map_err(|_| Foreign::NotInGrammar)
}

/// The id of a job, and the number of its attempt from the second on: the framework writes a job that it tries again
/// with the same id.
fn id_of(member: &[u8]) -> String {
    let job = serde_json::from_slice::<Job>(member).ok();
    let id = job.and_then(|job| {
        let id = job.id.and_then(Id::argument);
        let id = id.or_else(|| Id::Text(job.uuid?).argument())?;
        Some(match job.attempts {
            0 => id,
            attempts => format!("{id}.{attempts}"),
        })
    });
    id.unwrap_or_else(|| digest(member, 16))
}

impl Id {
    /// The id, if it fits an argument of a key.
    fn argument(self) -> Option<String> {
        const ATTEMPT_BYTES: usize = 21;
        let text = match self {
            Self::Text(text) => text,
            Self::Number(number) => number.to_string(),
        };
        let is_odd = text.is_empty()
            || text.len() > ID_BYTES - ATTEMPT_BYTES
            || text.starts_with(['~', '-'])
            || text.ends_with(' ')
            || text.contains(|char: char| char == '@' || char.is_control());
        (!is_odd).then_some(text)
    }
}

/// `~` and the first digits of the member's SHA-256.
fn digest(member: &[u8], bytes: usize) -> String {
    format!("~{}", hex(&Sha256::digest(member)[..bytes]))
}

/// Returns the payload of a job's task: its member, if that is a JSON object, else `{"base64": ".."}`.
pub fn job_payload(member: &[u8]) -> String {
    let text = std::str::from_utf8(member).ok();
    let is_object = |text: &&str| {
        text.starts_with('{')
            && serde_json::from_str::<serde::de::IgnoredAny>(text).is_ok()
            && serde_json::from_str::<Bytes>(text).is_err()
    };
    match text.filter(is_object) {
        Some(text) => text.to_owned(),
        None => {
            let base64 = BASE64_STANDARD.encode(member);
            serde_json::to_string(&Bytes { base64 }).expect("a text is JSON")
        }
    }
}

/// Returns the member of the job with this payload, byte by byte.
pub fn job_member(payload: &str) -> Option<Vec<u8>> {
    match serde_json::from_str::<Bytes>(payload) {
        Ok(Bytes { base64 }) => BASE64_STANDARD.decode(base64).ok(),
        Err(_) => payload
            .starts_with('{')
            .then(|| payload.as_bytes().to_vec()),
    }
}

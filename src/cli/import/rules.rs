//! Which task key a job gets.

use lapsed::config::{ImportRule, ImportSource, JobPart, KeyTemplate};
use lapsed::task::{KeyError, TaskKey};
use lapsed_core::format::hex;
use sha2::{Digest, Sha256};

use super::job::Job;

/// The rules of the configuration for one source, and the one that is built in.
pub struct Rules<'a> {
    rules: Vec<&'a ImportRule>,
    default: Option<KeyTemplate>,
}

impl<'a> Rules<'a> {
    pub fn new(rules: &'a [ImportRule], source: ImportSource) -> Self {
        Self {
            rules: rules.iter().filter(|rule| rule.source == source).collect(),
            default: source.default_key(),
        }
    }

    /// The key of a job, by the first rule that fits it.
    pub fn key(&self, job: &Job) -> Result<TaskKey, String> {
        if let Some(key) = &job.key {
            return Ok(key.clone());
        }
        let rule = self.rules.iter().find(|rule| fits(rule, job));
        let template = rule.map(|rule| &rule.key).or(self.default.as_ref());
        let template = template.ok_or("no rule fits it")?;
        let key = match template.key(|part| job.part(part)) {
            Err(KeyError::TooLong { .. }) if job.payload_has_id => {
                let digest = digest(&job.id);
                template.key(|part| match part {
                    JobPart::Id => digest.as_bytes(),
                    part => job.part(part),
                })
            }
            key => key,
        };
        key.map_err(|error| format!("no key by `{template}`: {error}"))
    }
}

/// Digest of an id that does not fit in a key, or of a job that has no id.
pub fn digest(id: &[u8]) -> String {
    let digest = Sha256::digest(id);
    format!("sha256-{}", hex(&digest[..16]))
}

fn fits(rule: &ImportRule, job: &Job) -> bool {
    rule.queue
        .as_deref()
        .is_none_or(|queue| queue == &*job.queue)
        && rule
            .job
            .as_ref()
            .is_none_or(|name| name.is_match(&job.name))
}

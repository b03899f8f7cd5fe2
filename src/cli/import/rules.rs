//! Which task key a job gets.

use lapsed::config::{ImportRule, ImportSource, KeyTemplate};
use lapsed::task::TaskKey;

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
        template
            .key(|part| job.part(part))
            .map_err(|error| format!("no key by `{template}`: {error}"))
    }
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

//! Rules of `lapsed import`: `[[import]]`.

use std::fmt;

use regex::Regex;
use serde::Deserialize;

use super::key_template::{JobPart, KeyTemplate};
use super::reader::{Problems, Reader};

/// One entry of `[[import]]`: which key the jobs of another system get.
#[derive(Debug, Clone)]
pub struct ImportRule {
    /// The system.
    pub source: ImportSource,
    /// Queue of the jobs; `None`: any.
    pub queue: Option<String>,
    /// Pattern of the jobs' names; `None`: any.
    pub job: Option<Regex>,
    /// Key of their tasks.
    pub key: KeyTemplate,
}

/// A system that `lapsed import` reads.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum ImportSource {
    /// A sorted set of row ids and a table of PHP-serialized jobs.
    Seed000,
    /// A sorted set whose members are what is due.
    Seed001,
    /// A table of JSON jobs.
    Seed002,
    /// A table of task keys, and Redis keys that expire.
    Seed003,
    /// Redis lists, one for each second of an hour.
    Seed004,
    /// BullMQ's delayed jobs.
    Bullmq,
    /// Sidekiq's scheduled and retry sets.
    Sidekiq,
    /// asynq's scheduled and retry sets.
    Asynq,
    /// Laravel's delayed sets in Redis.
    Laravel,
    /// think-queue's delayed sets in Redis.
    #[serde(rename = "think-queue")]
    ThinkQueue,
}

impl ImportSource {
    /// All systems.
    pub const ALL: [Self; 10] = [
        Self::Seed000,
        Self::Seed001,
        Self::Seed002,
        Self::Seed003,
        Self::Seed004,
        Self::Bullmq,
        Self::Sidekiq,
        Self::Asynq,
        Self::Laravel,
        Self::ThinkQueue,
    ];

    /// Its name, as on the command line.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Seed000 => "seed000",
            Self::Seed001 => "seed001",
            Self::Seed002 => "seed002",
            Self::Seed003 => "seed003",
            Self::Seed004 => "seed004",
            Self::Bullmq => "bullmq",
            Self::Sidekiq => "sidekiq",
            Self::Asynq => "asynq",
            Self::Laravel => "laravel",
            Self::ThinkQueue => "think-queue",
        }
    }

    /// Parts that its jobs have.
    fn parts(self) -> &'static [JobPart] {
        use JobPart::{Class, Id, Method, Name, Queue};
        match self {
            Self::Seed000 | Self::Laravel | Self::ThinkQueue => &[Id, Queue, Name, Class, Method],
            Self::Seed001 => &[Id, Queue],
            Self::Seed002 => &[Id, Name],
            Self::Seed003 => &[],
            Self::Seed004 => &[Id, Name, Class, Method],
            Self::Bullmq | Self::Asynq => &[Id, Queue, Name],
            Self::Sidekiq => &[Id, Queue, Name, Class],
        }
    }

    /// The key of jobs that no rule is for. `None`: the jobs have task keys.
    pub fn default_key(self) -> Option<KeyTemplate> {
        let text = match self {
            Self::Seed000 | Self::Seed004 | Self::Laravel | Self::ThinkQueue => {
                "{class}@{method}@{id}"
            }
            Self::Seed001 => "{queue}@run@{id}",
            Self::Seed002 => "Job@{name}@{id}",
            Self::Seed003 => return None,
            Self::Bullmq | Self::Asynq => "{queue}@{name}@{id}",
            Self::Sidekiq => "{class}@perform@{id}",
        };
        Some(text.parse().expect("a test parses the default keys"))
    }
}

impl fmt::Display for ImportSource {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}

/// Reads the entries.
pub(super) fn import(section: &mut Reader, p: &mut Problems) -> Vec<ImportRule> {
    let readers = section.entries("import", p).into_iter();
    readers.filter_map(|reader| rule(reader, p)).collect()
}

fn rule(mut section: Reader, p: &mut Problems) -> Option<ImportRule> {
    let source: Option<ImportSource> = section.take("source", p);
    let queue: Option<String> = section.optional("queue", p);
    let job: Option<String> = section.optional("job", p);
    let job = job.map(|pattern| {
        Regex::new(&pattern)
            .map_err(|error| {
                let problem = format!("is not a regular expression: {error}");
                p.add(&section.at("job"), problem);
            })
            .ok()
    });
    let key: Option<String> = section.take("key", p);
    let key = key.and_then(|key| section.parsed("key", key.parse::<KeyTemplate>(), p));
    if source == Some(ImportSource::Seed003) {
        let problem = "jobs of seed003 have task keys, which are kept: expected no rule";
        p.add(&section.at("source"), problem);
    } else if let (Some(source), Some(key)) = (source, &key)
        && let Some(part) = key.uses().find(|part| !source.parts().contains(part))
    {
        let name = part.as_str();
        p.add(
            &section.at("key"),
            format!("jobs of {source} have no `{{{name}}}`"),
        );
    } else if source == Some(ImportSource::Bullmq)
        && queue.is_none()
        && let Some(key) = &key
        && !key.uses().any(|part| part == JobPart::Queue)
    {
        let problem =
            "each queue counts its jobs from 1: expected `{queue}` in it, or `queue` beside it";
        p.add(&section.at("key"), problem);
    }
    section.done(p);
    Some(ImportRule {
        source: source?,
        queue,
        job: match job {
            Some(job) => Some(job?),
            None => None,
        },
        key: key?,
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::config::Config;

    #[test]
    fn all_problems_of_the_rules_are_reported() {
        let rules = "[[import]]\nsource = 'bullmq'\njob = '('\nkey = '{class}@run@{id}'\n\
             [[import]]\nsource = 'seed003'\nkey = 'A@b@{id}'\n\
             [[import]]\nsource = 'resque'\nkeys = 1\n\
             [[import]]\nsource = 'bullmq'\nkey = 'A@b@{id}'\n\
             [[import]]\nsource = 'think-queue'\njob = '^a'\nkey = 'A@{method}@{id}'\n\
             [[import]]\nsource = 'seed001'\nqueue = 'order'\njob = '^a'\nkey = 'A@b@{member}'";
        let error = Config::from_toml(rules).unwrap_err();
        let told = error.problems.iter();
        let told = told.map(|problem| format!("`{}`: {}", problem.path, problem.message));
        let told: Vec<String> = told.collect();
        let expected = [
            ("`import[0].job`", "is not a regular expression"),
            ("`import[0].key`", "jobs of bullmq have no `{class}`"),
            ("`import[1].source`", "expected no rule"),
            ("`import[2].source`", "unknown variant `resque`"),
            ("`import[2].key`", "is missing"),
            ("`import[2].keys`", "is not the name of a setting"),
            ("`import[3].key`", "each queue counts its jobs from 1"),
        ];
        assert_eq!(told.len(), expected.len(), "{told:#?}");
        for (told, (path, problem)) in told.iter().zip(expected) {
            assert!(told.starts_with(path) && told.contains(problem), "{told}");
        }
    }

    #[test]
    fn every_source_has_a_default_key_of_its_own_parts() {
        use ImportSource as S;
        for source in S::ALL {
            let Some(key) = source.default_key() else {
                continue;
            };
            assert!(
                key.uses().all(|part| source.parts().contains(&part)),
                "{source}"
            );
        }
        assert_eq!(S::Seed003.default_key(), None);
    }
}

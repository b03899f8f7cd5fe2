//! The delayed queue of a framework: its names, and the tasks of its jobs.

mod job;
mod profile;

use self::job::ID_BYTES;
pub use self::job::{job_member, job_payload};
use self::profile::{Names, Profile, Whose};
use super::LedgerConfig;
use super::reader::{Problems, Reader};
use crate::task::{Foreign, KEY_BYTES_MAX, TaskKey};

/// The delayed queue of a framework: a sorted set of jobs, scored in seconds, and the list from which workers take them.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct DelayedSetConfig {
    profile: Profile,
    class: String,
    names: Names,
    /// The hash beside the set, in which lapsed notes the jobs that it has seen.
    register: String,
}

/// Where a job goes when it is due.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ReadyList {
    /// The list in Redis.
    pub list: String,
    /// `RPUSH`, or `LPUSH`.
    pub command: &'static str,
    /// A list that gets a `1` for each job.
    pub notify: Option<String>,
}

impl DelayedSetConfig {
    /// The name of the set in Redis.
    pub fn set(&self) -> &str {
        &self.names.set
    }

    /// The name of the register in Redis.
    pub fn register(&self) -> &str {
        &self.register
    }

    /// True if this is the task of a job of this set.
    pub fn holds(&self, key: &TaskKey) -> bool {
        key.class() == self.class
            && match &self.names.whose {
                Whose::Queue(queue) => key.method() == queue,
                Whose::AnyQueue => true,
            }
    }

    /// Returns the key of a job's task.
    ///
    /// # Errors
    /// If the framework has written no such member, or if it does not fit a row. It stays in the set.
    pub fn key_of(&self, member: &[u8]) -> Result<TaskKey, Foreign> {
        job::key_of(self.profile, &self.class, &self.names.whose, member)
    }

    /// Returns the list for the job of a task.
    pub fn ready(&self, key: &TaskKey) -> ReadyList {
        let Names { ready, notify, .. } = &self.names;
        ReadyList {
            list: match self.names.whose {
                Whose::Queue(_) => ready.clone(),
                Whose::AnyQueue => format!("{ready}{}", key.method()),
            },
            command: self.profile.command(),
            notify: notify.clone(),
        }
    }

    /// The expression that fits the keys of the set's tasks.
    pub(super) fn expression(&self) -> String {
        let class = regex::escape(&self.class);
        match &self.names.whose {
            Whose::Queue(queue) => format!("^{class}@{}@", regex::escape(queue)),
            Whose::AnyQueue => format!("^{class}@"),
        }
    }

    /// True if both can have a task of the same key.
    pub(super) fn overlaps(&self, other: &Self) -> bool {
        self.class == other.class
            && match (&self.names.whose, &other.names.whose) {
                (Whose::Queue(one), Whose::Queue(two)) => one == two,
                _ => true,
            }
    }
}

impl std::fmt::Display for DelayedSetConfig {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let Names { set, ready, .. } = &self.names;
        match self.names.whose {
            Whose::Queue(_) => write!(f, "delayed set {set} to list {ready}"),
            Whose::AnyQueue => write!(f, "delayed set {set} to lists {ready}.."),
        }
    }
}

/// Reads an entry.
pub(super) fn delayed_set(
    mut section: Reader,
    key_prefix: &str,
    ledger: Option<&LedgerConfig>,
    p: &mut Problems,
) -> Option<DelayedSetConfig> {
    let profile: Option<Profile> = section.take("profile", p);
    let prefix: Option<String> = section.optional("prefix", p);
    let class: Option<String> = section.optional("class", p);
    let names = match profile {
        Some(profile) => {
            let prefix = prefix.as_deref().unwrap_or(key_prefix);
            profile::names(profile, &mut section, prefix, p)
        }
        // Which keys it may have is not known.
        None => {
            section.table.clear();
            None
        }
    };
    let path = section.path.clone();
    section.done(p);
    let (profile, names) = (profile?, names?);
    let class = class.unwrap_or_else(|| profile.as_str().to_owned());
    let method = match &names.whose {
        Whose::Queue(queue) => queue,
        Whose::AnyQueue => "queue",
    };
    if let Err(why) = TaskKey::build(&class, method, ["id"]) {
        p.add(
            &path,
            format!("yields no task key such as `{class}@{method}@<id>`: {why}"),
        );
        return None;
    }
    let longest = class.len() + method.len() + 2 + ID_BYTES;
    if longest > KEY_BYTES_MAX {
        p.add(
            &path,
            format!(
                "yields keys of up to {longest} bytes, `{class}@{method}@` and an id of up to {ID_BYTES}; expected at most {KEY_BYTES_MAX}"
            ),
        );
        return None;
    }
    let ledger = ledger.map(LedgerConfig::name).unwrap_or_default();
    Some(DelayedSetConfig {
        register: format!("{}:lapsed:{ledger}", names.set),
        profile,
        class,
        names,
    })
}

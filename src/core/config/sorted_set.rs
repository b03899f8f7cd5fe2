//! `[sorted_set]`

use std::collections::BTreeSet;

use serde::Deserialize;
use sha2::{Digest, Sha256};

use super::MemberRule;
use super::reader::{Problems, Reader};
use super::rules::{any, section};
use crate::format::hex;

section! {
    /// `[sorted_set]`
    #[derive(Debug, Clone, PartialEq, Eq)]
    pub struct SortedSetConfig {
        /// The sorted sets, without `redis.key_prefix`. At least one, each once.
        pub keys: Vec<String> = keys_of_sets,
        /// The unit of scores that programs write.
        pub unit: ScoreUnit = any,
        /// The task key of a member that is none.
        pub member: MemberRule = member_of(keys.as_deref()),
    }
}

impl SortedSetConfig {
    /// Names what decides in which set and under which member the entry of a task is.
    pub fn scope(&self) -> String {
        let mut keys: Vec<&str> = self.keys.iter().map(String::as_str).collect();
        keys.sort_unstable();
        let mut hash = Sha256::new();
        for part in [&keys[..], &[&self.member.text]].concat() {
            hash.update(part.len().to_le_bytes());
            hash.update(part);
        }
        hex(&hash.finalize()[..8])
    }
}

impl ScoreUnit {
    /// The word in the configuration.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Auto => "auto",
            Self::Seconds => "seconds",
            Self::Milliseconds => "milliseconds",
        }
    }
}

/// The unit of scores that programs write.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum ScoreUnit {
    /// Seconds or milliseconds, told apart by their size.
    Auto,
    /// Seconds since 1970.
    Seconds,
    /// Milliseconds since 1970.
    Milliseconds,
}

fn keys_of_sets(section: &mut Reader, key: &str, p: &mut Problems) -> Option<Vec<String>> {
    let keys = section.take(key, p)?;
    section.parsed(key, checked(keys), p)
}

/// A rule for these sets. If they are invalid, it is parsed for one set.
fn member_of(
    sets: Option<&[String]>,
) -> impl FnOnce(&mut Reader, &str, &mut Problems) -> Option<MemberRule> {
    let sets = sets.map_or_else(|| vec!["set".to_owned()], <[String]>::to_vec);
    move |section, key, p| {
        let rule: String = section.take(key, p)?;
        section.parsed(key, MemberRule::parse(&rule, &sets), p)
    }
}

fn checked(keys: Vec<String>) -> Result<Vec<String>, String> {
    /// A script goes through all sets for each entry.
    const KEYS_MAX: usize = 64;
    if keys.is_empty() || keys.len() > KEYS_MAX {
        let found = keys.len();
        return Err(format!(
            "names {found} sorted sets, expected 1 to {KEYS_MAX}"
        ));
    }
    let mut seen = BTreeSet::new();
    for key in &keys {
        if key.is_empty() {
            return Err("has an empty name, expected the key of a sorted set".to_owned());
        }
        if !seen.insert(key) {
            return Err(format!("names `{key}` twice, expected it once"));
        }
    }
    Ok(keys)
}

#[cfg(test)]
mod tests {
    use crate::config::Config;

    #[test]
    fn problems_say_what_was_expected() {
        let problem = |text: &str| Config::from_toml(text).unwrap_err().to_string();
        let told = [
            (
                "member = 'Queue@run'",
                "`sorted_set.member`: `Queue@run` has no `{member}`, expected a task key",
            ),
            (
                "member = '{member}@{member}'",
                "has `{member}` twice, expected it once",
            ),
            (
                "member = 'Queue:{member}'",
                "`sorted_set.member`: yields no task key: key has no `@`",
            ),
            (
                "keys = []",
                "`sorted_set.keys`: names 0 sorted sets, expected 1 to 64",
            ),
            (
                "keys = ['a', 'b', 'a']",
                "names `a` twice, expected it once",
            ),
            ("keys = ['']", "has an empty name"),
            ("unit = 'hours'", "`sorted_set.unit`: unknown variant"),
            (
                "key = 'a'",
                "`sorted_set.key`: is not the name of a setting",
            ),
        ];
        for (setting, part) in told {
            let found = problem(&format!("[sorted_set]\n{setting}"));
            assert!(found.contains(part), "{setting}: {found}");
        }
    }
}

//! `[sorted_set]`

use std::collections::BTreeSet;

use serde::Deserialize;

use super::reader::{Problems, Reader};
use crate::task::{Foreign, KEY_BYTES_MAX, KeyName, TaskKey};

/// Where the member stands in a rule.
const PLACEHOLDER: &str = "{member}";

/// `[sorted_set]`
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SortedSetConfig {
    /// The sorted sets, without `redis.key_prefix`. At least one, each once.
    pub keys: Vec<String>,
    /// The unit of scores that programs write.
    pub unit: ScoreUnit,
    /// The task key of a member that is none.
    pub member: MemberRule,
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

/// Converts members of a sorted set to task keys, and back. A member that is a task key stands for itself; any other
/// one takes the place of `{member}` in the rule.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct MemberRule {
    before: String,
    after: String,
}

impl MemberRule {
    /// Parses a rule.
    ///
    /// # Errors
    /// Says what was expected, if the rule has not one `{member}` or can yield no task key.
    pub fn parse(rule: &str) -> Result<Self, String> {
        let example = "such as \"DelayQueue@run@{member}\"";
        let Some((before, after)) = rule.split_once(PLACEHOLDER) else {
            return Err(format!(
                "`{rule}` has no `{PLACEHOLDER}`, expected a task key {example}"
            ));
        };
        if after.contains(PLACEHOLDER) {
            return Err(format!(
                "`{rule}` has `{PLACEHOLDER}` twice, expected it once, {example}"
            ));
        }
        let rule = Self {
            before: before.to_owned(),
            after: after.to_owned(),
        };
        // `{member}` alone maps no member: each has to be a task key.
        if !before.is_empty() || !after.is_empty() {
            TaskKey::parse(&rule.filled("x"))
                .map_err(|why| format!("yields no task key: {why}, {example}"))?;
        }
        Ok(rule)
    }

    /// Returns the task key of a member.
    ///
    /// # Errors
    /// Says why the member has none.
    pub fn key_of(&self, member: &[u8]) -> Result<TaskKey, Foreign> {
        let foreign = match KeyName::parse(member) {
            KeyName::Task(key) => return Ok(key),
            KeyName::Foreign(why @ (Foreign::TooLong | Foreign::NotUtf8)) => return Err(why),
            KeyName::Foreign(why) => why,
            KeyName::Sentinel(_) => Foreign::NotInGrammar,
        };
        let member = std::str::from_utf8(member).map_err(|_| Foreign::NotUtf8)?;
        let name = self.filled(member);
        if name.len() > KEY_BYTES_MAX {
            return Err(Foreign::TooLong);
        }
        TaskKey::parse(&name).map_err(|_| foreign)
    }

    /// Returns the members of a task: the one that programs write, and the key itself if that is another one.
    pub fn members_of(&self, key: &TaskKey) -> (String, Option<String>) {
        let text = key.as_str();
        let inner = text.strip_prefix(&*self.before);
        let inner = inner.and_then(|rest| rest.strip_suffix(&*self.after));
        // A member that is a task key itself would be another task.
        match inner.filter(|inner| *inner != text && TaskKey::parse(inner).is_err()) {
            Some(member) => (member.to_owned(), Some(text.to_owned())),
            None => (text.to_owned(), None),
        }
    }

    fn filled(&self, member: &str) -> String {
        format!("{}{member}{}", self.before, self.after)
    }
}

pub(super) fn sorted_set(mut section: Reader, p: &mut Problems) -> Option<SortedSetConfig> {
    let keys: Option<Vec<String>> = section.take("keys", p);
    let keys = keys.and_then(|keys| section.parsed("keys", checked(keys), p));
    let unit = section.take("unit", p);
    let rule: Option<String> = section.take("member", p);
    let member = rule.and_then(|rule| section.parsed("member", MemberRule::parse(&rule), p));
    section.done(p);
    Some(SortedSetConfig {
        keys: keys?,
        unit: unit?,
        member: member?,
    })
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
    use super::*;
    use crate::config::Config;
    use proptest::prelude::*;

    fn rule(rule: &str) -> MemberRule {
        MemberRule::parse(rule).unwrap()
    }

    fn key_of(rule: &MemberRule, member: &str) -> Result<String, Foreign> {
        let key = rule.key_of(member.as_bytes())?;
        Ok(key.as_str().to_owned())
    }

    #[test]
    fn a_member_that_is_a_task_key_is_itself_and_any_other_is_mapped() {
        let queue = rule("DelayQueue@run@{member}");
        let key = |member| key_of(&queue, member);
        assert_eq!(key("42"), Ok("DelayQueue@run@42".to_owned()));
        assert_eq!(key("Mail@send@42"), Ok("Mail@send@42".to_owned()));
        assert_eq!(key("a b"), Ok("DelayQueue@run@a b".to_owned()));
        assert_eq!(key("x\n"), Err(Foreign::NotInGrammar));
        assert_eq!(key(&"9".repeat(250)), Err(Foreign::TooLong));
        assert_eq!(queue.key_of(b"\xff"), Err(Foreign::NotUtf8));
        let plain = rule("{member}");
        assert_eq!(key_of(&plain, "42"), Err(Foreign::NotInGrammar));
        assert_eq!(key_of(&plain, "C@m"), Ok("C@m".to_owned()));
    }

    #[test]
    fn a_task_has_the_member_that_programs_write() {
        let queue = rule("DelayQueue@run@{member}");
        let members = |key: &str| queue.members_of(&TaskKey::parse(key).unwrap());
        let both = ("42".to_owned(), Some("DelayQueue@run@42".to_owned()));
        assert_eq!(members("DelayQueue@run@42"), both);
        assert_eq!(members("Mail@send"), ("Mail@send".to_owned(), None));
        // `A@b` is a task of its own.
        let own = "DelayQueue@run@A@b";
        assert_eq!(members(own), (own.to_owned(), None));
    }

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

    proptest! {
        #[test]
        fn a_member_is_found_again_by_its_task(member in "[ -~]{1,40}", rule_text in "(Q@r@|)") {
            let rule = rule(&format!("{rule_text}{{member}}"));
            if let Ok(key) = rule.key_of(member.as_bytes()) {
                let (canonical, other) = rule.members_of(&key);
                prop_assert!(canonical == member || other.as_deref() == Some(&*member));
                for form in [Some(canonical), other].into_iter().flatten() {
                    prop_assert_eq!(rule.key_of(form.as_bytes()), Ok(key.clone()));
                }
            }
        }
    }
}

//! `[sorted_set]`

use std::collections::BTreeSet;

use base64::Engine as _;
use base64::prelude::BASE64_STANDARD;
use serde::Deserialize;
use sha2::{Digest, Sha256};

use super::reader::{Problems, Reader};
use crate::task::{Foreign, KeyName, PAYLOAD_BYTES_MAX, TaskKey};

/// Where the member stands in a rule.
const PLACEHOLDER: &str = "{member}";

/// Begins the argument of a task whose member does not fit there. The digits of its digest follow.
const DIGEST: char = '~';
const DIGEST_CHARS: usize = 32;

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

impl SortedSetConfig {
    /// Names what decides in which set and under which member the entry of a task is.
    pub fn scope(&self) -> String {
        let mut keys: Vec<&str> = self.keys.iter().map(String::as_str).collect();
        keys.sort_unstable();
        let MemberRule { before, after } = &self.member;
        let mut hash = Sha256::new();
        for part in [&keys[..], &[before, after]].concat() {
            hash.update(part.len().to_le_bytes());
            hash.update(part);
        }
        let digest = hash.finalize();
        digest[..8]
            .iter()
            .map(|byte| format!("{byte:02x}"))
            .collect()
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
        if !rule.maps_none() {
            TaskKey::parse(&rule.filled("x"))
                .map_err(|why| format!("yields no task key: {why}, {example}"))?;
        }
        Ok(rule)
    }

    /// Returns the task key of a member. One that does not fit an argument of a key gets a digest as its argument: see
    /// [`payload_of`](Self::payload_of).
    ///
    /// # Errors
    /// Says why the member has none.
    pub fn key_of(&self, member: &[u8]) -> Result<TaskKey, Foreign> {
        let foreign = match KeyName::parse(member) {
            KeyName::Task(key) => return Ok(key),
            KeyName::Foreign(why) => why,
            KeyName::Sentinel(_) => return Err(Foreign::NotInGrammar),
        };
        if self.maps_none() || member.is_empty() || member.starts_with(b"#lapsed:") {
            return Err(foreign);
        }
        if let Some(text) = argument(member)
            && let Ok(key) = TaskKey::parse(&self.filled(text))
        {
            return Ok(key);
        }
        if payload(member).len() > PAYLOAD_BYTES_MAX {
            return Err(Foreign::TooLong);
        }
        let hash = Sha256::digest(member);
        let digest: String = hash[..DIGEST_CHARS / 2]
            .iter()
            .map(|byte| format!("{byte:02x}"))
            .collect();
        TaskKey::parse(&self.filled(&format!("{DIGEST}{digest}"))).map_err(|_| foreign)
    }

    /// Returns the payload of the task of a member that does not fit an argument of its key: the member itself, as JSON.
    pub fn payload_of(&self, member: &[u8]) -> Option<String> {
        let key = self.key_of(member).ok()?;
        self.members_of(&key).0.is_empty().then(|| payload(member))
    }

    /// Returns the members of a task: the one that programs write, and the key itself if that is another one. The first
    /// one is empty if it does not follow from the key.
    pub fn members_of(&self, key: &TaskKey) -> (String, Option<String>) {
        let text = key.as_str();
        let inner = text.strip_prefix(&*self.before);
        let inner = inner.and_then(|rest| rest.strip_suffix(&*self.after));
        let inner = inner.filter(|inner| *inner != text);
        if inner.is_some_and(is_digest) {
            return (String::new(), Some(text.to_owned()));
        }
        // A member that is a task key itself would be another task.
        match inner.filter(|inner| self.key_of(inner.as_bytes()).as_ref() == Ok(key)) {
            Some(member) => (member.to_owned(), Some(text.to_owned())),
            None => (text.to_owned(), None),
        }
    }

    /// True for `{member}` alone: each member has to be a task key.
    fn maps_none(&self) -> bool {
        self.before.is_empty() && self.after.is_empty()
    }

    fn filled(&self, member: &str) -> String {
        format!("{}{member}{}", self.before, self.after)
    }
}

/// Returns a member that is one argument of a key as it is. A program started with one that begins with `-` could take it
/// for an option; one that begins with `~` could be a digest.
fn argument(member: &[u8]) -> Option<&str> {
    let text = std::str::from_utf8(member).ok()?;
    let is_odd = text.contains('@')
        || text.chars().any(char::is_control)
        || text.starts_with(['-', DIGEST])
        || text.ends_with(' ');
    (!is_odd).then_some(text)
}

fn is_digest(argument: &str) -> bool {
    let digits = argument.strip_prefix(DIGEST);
    digits.is_some_and(|digits| {
        digits.len() == DIGEST_CHARS && digits.bytes().all(|byte| byte.is_ascii_hexdigit())
    })
}

/// A member as JSON: itself if it is an object or a list, a text, or `{"base64": ".."}`.
fn payload(member: &[u8]) -> String {
    let Ok(text) = std::str::from_utf8(member) else {
        return serde_json::json!({ "base64": BASE64_STANDARD.encode(member) }).to_string();
    };
    let is_json =
        text.starts_with(['{', '[']) && serde_json::from_str::<serde::de::IgnoredAny>(text).is_ok();
    match is_json {
        true => text.to_owned(),
        false => serde_json::Value::from(text).to_string(),
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
        assert_eq!(key(""), Err(Foreign::NotInGrammar));
        assert_eq!(key(&"9".repeat(PAYLOAD_BYTES_MAX)), Err(Foreign::TooLong));
        let plain = rule("{member}");
        assert_eq!(key_of(&plain, "42"), Err(Foreign::NotInGrammar));
        assert_eq!(key_of(&plain, "C@m"), Ok("C@m".to_owned()));
    }

    #[test]
    fn a_member_that_is_no_argument_is_the_payload_of_a_task_named_by_its_digest() {
        let queue = rule("DelayQueue@run@{member}");
        let long = "9".repeat(250);
        let members: [(&[u8], &str); 7] = [
            (b"x\n", r#""x\n""#),
            (long.as_bytes(), &format!("\"{long}\"")),
            (b"\xff", r#"{"base64":"/w=="}"#),
            (b"-1abc", r#""-1abc""#),
            (b"~1abc", r#""~1abc""#),
            (br#"{"mail":"a@b.c"}"#, r#"{"mail":"a@b.c"}"#),
            (b"{@", r#""{@""#),
        ];
        let mut keys = BTreeSet::new();
        for (member, payload) in members {
            let key = queue.key_of(member).unwrap();
            assert_eq!(queue.payload_of(member).as_deref(), Some(payload));
            let key_itself = key.as_str().to_owned();
            assert_eq!(queue.members_of(&key), (String::new(), Some(key_itself)));
            assert!(keys.insert(key.as_str().to_owned()));
        }
        for plain in [&b"42"[..], b"Mail@send@42", br#"{"id":1}"#] {
            assert_eq!(queue.payload_of(plain), None);
        }
        let plain = rule("{member}");
        assert_eq!(plain.key_of(b"\xff"), Err(Foreign::NotUtf8));
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
                if canonical.is_empty() {
                    prop_assert!(rule.payload_of(member.as_bytes()).is_some());
                    return Ok(());
                }
                prop_assert!(canonical == member || other.as_deref() == Some(&*member));
                for form in [Some(canonical), other].into_iter().flatten() {
                    prop_assert_eq!(rule.key_of(form.as_bytes()), Ok(key.clone()));
                }
            }
        }
    }
}

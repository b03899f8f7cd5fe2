//! `sorted_set.member`: members of sorted sets as task keys, and back.

use base64::Engine as _;
use base64::prelude::BASE64_STANDARD;
use sha2::{Digest, Sha256};

use crate::format::hex;
use crate::task::{Foreign, KeyName, PAYLOAD_BYTES_MAX, TaskKey};

/// Where the member stands in a rule.
const MEMBER: &str = "{member}";

/// Where the key of the set stands in a rule.
const SET: &str = "{set}";

/// Begins the argument of a task whose member does not fit there. The digits of its digest follow.
const DIGEST: char = '~';
const DIGEST_CHARS: usize = 32;

/// Converts members of the sorted sets to task keys, and back. A member that is a task key stands for itself; any other
/// one takes the place of `{member}` in the rule, and the key of its set that of `{set}`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct MemberRule {
    pub(super) text: String,
    /// One for each set: the same one, unless the rule names the set.
    of_sets: Vec<SetRule>,
}

/// Where the entry of a task may be.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct MemberPlace {
    /// Index of the only set that can have `member`; `None`: any set.
    pub set: Option<usize>,
    /// The member that programs write. Empty: it does not follow from the key.
    pub member: String,
    /// The key itself, if that is another member. Any set can have it.
    pub other: Option<String>,
}

impl MemberRule {
    /// Parses a rule for these sets.
    ///
    /// # Errors
    /// Says what was expected, if the rule has not one `{member}`, can yield no task key, or yields one key for members of
    /// two sets although it names the set.
    pub fn parse(rule: &str, sets: &[String]) -> Result<Self, String> {
        let example = "such as \"DelayQueue@run@{member}\"";
        match rule.matches(MEMBER).count() {
            0 => {
                return Err(format!(
                    "`{rule}` has no `{MEMBER}`, expected a task key {example}"
                ));
            }
            1 => {}
            _ => {
                return Err(format!(
                    "`{rule}` has `{MEMBER}` twice, expected it once, {example}"
                ));
            }
        }
        let of_sets = sets.iter().map(|set| {
            let (before, after) = rule.split_once(MEMBER).expect("it has one");
            let rule = SetRule {
                before: before.replace(SET, set),
                after: after.replace(SET, set),
            };
            if !rule.maps_none() {
                TaskKey::parse(&rule.filled("x"))
                    .map_err(|why| format!("yields no task key: {why}, {example}"))?;
            }
            Ok(rule)
        });
        let of_sets: Vec<SetRule> = of_sets.collect::<Result<_, String>>()?;
        let rule = Self {
            text: rule.to_owned(),
            of_sets,
        };
        match rule.names_set().then(|| rule.ambiguous(sets)).flatten() {
            Some((one, other)) => Err(format!(
                "`{}` yields the same key for members of `{one}` and `{other}`, expected `@` around `{SET}`",
                rule.text
            )),
            None => Ok(rule),
        }
    }

    /// True if equal members of two sets are two tasks.
    pub fn names_set(&self) -> bool {
        self.text.contains(SET)
    }

    /// Two sets that have members with the same key.
    fn ambiguous<'a>(&self, sets: &'a [String]) -> Option<(&'a str, &'a str)> {
        let rules = || self.of_sets.iter().zip(sets);
        rules().enumerate().find_map(|(index, (one, name))| {
            let mut others = rules().skip(index + 1);
            let (_, other) = others.find(|(other, _)| one.may_equal(other))?;
            Some((&**name, &**other))
        })
    }

    /// Returns the task key of a member of the set with this index. One that does not fit an argument of a key gets a digest
    /// as its argument: see [`payload_of`](Self::payload_of).
    ///
    /// # Errors
    /// Says why the member has none.
    pub fn key_of(&self, set: usize, member: &[u8]) -> Result<TaskKey, Foreign> {
        self.of_sets[set].key_of(member)
    }

    /// Returns the payload of the task of a member that does not fit an argument of its key: the member itself, as JSON.
    pub fn payload_of(&self, set: usize, member: &[u8]) -> Option<String> {
        let rule = &self.of_sets[set];
        let key = rule.key_of(member).ok()?;
        rule.members_of(&key).0.is_empty().then(|| payload(member))
    }

    /// Returns where the entry of a task may be.
    pub fn place_of(&self, key: &TaskKey) -> MemberPlace {
        let rules = self.of_sets.iter().enumerate();
        let mut members = rules.map(|(set, rule)| (set, rule.members_of(key)));
        let names_set = self.names_set();
        let mapped = members.find(|(_, (_, other))| other.is_some());
        match mapped {
            Some((set, (member, other))) => MemberPlace {
                set: names_set.then_some(set),
                member,
                other,
            },
            None => MemberPlace {
                set: None,
                member: key.as_str().to_owned(),
                other: None,
            },
        }
    }
}

/// The rule for the members of one set.
#[derive(Debug, Clone, PartialEq, Eq)]
struct SetRule {
    before: String,
    after: String,
}

impl SetRule {
    fn key_of(&self, member: &[u8]) -> Result<TaskKey, Foreign> {
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
        let digest = hex(&hash[..DIGEST_CHARS / 2]);
        TaskKey::parse(&self.filled(&format!("{DIGEST}{digest}"))).map_err(|_| foreign)
    }

    /// Returns the members of a task: the one that programs write, and the key itself if that is another one. The first
    /// one is empty if it does not follow from the key.
    fn members_of(&self, key: &TaskKey) -> (String, Option<String>) {
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

    /// True if a member of one rule and a member of the other one can have the same key. Mapped members have no `@`.
    fn may_equal(&self, other: &Self) -> bool {
        let is_within = |rest: Option<&str>| rest.is_some_and(|rest| !rest.contains('@'));
        let (one, two) = (self, other);
        let before = is_within(one.before.strip_prefix(&*two.before))
            || is_within(two.before.strip_prefix(&*one.before));
        let after = is_within(one.after.strip_suffix(&*two.after))
            || is_within(two.after.strip_suffix(&*one.after));
        before && after
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

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use proptest::prelude::*;

    use super::*;

    fn rule(rule: &str) -> MemberRule {
        MemberRule::parse(rule, &["q".to_owned()]).unwrap()
    }

    fn members_of(rule: &MemberRule, key: &TaskKey) -> (String, Option<String>) {
        let MemberPlace { set, member, other } = rule.place_of(key);
        assert_eq!(set, None);
        (member, other)
    }

    fn key_of(rule: &MemberRule, member: &str) -> Result<String, Foreign> {
        let key = rule.key_of(0, member.as_bytes())?;
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
            let key = queue.key_of(0, member).unwrap();
            assert_eq!(queue.payload_of(0, member).as_deref(), Some(payload));
            let key_itself = key.as_str().to_owned();
            assert_eq!(members_of(&queue, &key), (String::new(), Some(key_itself)));
            assert!(keys.insert(key.as_str().to_owned()));
        }
        for plain in [&b"42"[..], b"Mail@send@42", br#"{"id":1}"#] {
            assert_eq!(queue.payload_of(0, plain), None);
        }
        let plain = rule("{member}");
        assert_eq!(plain.key_of(0, b"\xff"), Err(Foreign::NotUtf8));
    }

    #[test]
    fn a_task_has_the_member_that_programs_write() {
        let queue = rule("DelayQueue@run@{member}");
        let members = |key: &str| members_of(&queue, &TaskKey::parse(key).unwrap());
        let both = ("42".to_owned(), Some("DelayQueue@run@42".to_owned()));
        assert_eq!(members("DelayQueue@run@42"), both);
        assert_eq!(members("Mail@send"), ("Mail@send".to_owned(), None));
        // `A@b` is a task of its own.
        let own = "DelayQueue@run@A@b";
        assert_eq!(members(own), (own.to_owned(), None));
    }

    #[test]
    fn equal_members_of_two_sets_are_two_tasks_if_the_rule_names_the_set() {
        let sets = ["order".to_owned(), "app:refund".to_owned()];
        let queue = MemberRule::parse("Queue@{set}@{member}", &sets).unwrap();
        let long = "9".repeat(300);
        for (set, name) in sets.iter().enumerate() {
            let key = queue.key_of(set, b"42").unwrap();
            assert_eq!(key.as_str(), format!("Queue@{name}@42"));
            let place = MemberPlace {
                set: Some(set),
                member: "42".to_owned(),
                other: Some(key.as_str().to_owned()),
            };
            assert_eq!(queue.place_of(&key), place);
            let long = queue.key_of(set, long.as_bytes()).unwrap();
            let place = queue.place_of(&long);
            assert_eq!((place.set, &*place.member), (Some(set), ""));
        }
        // A task key stands for itself, in any set.
        let own = queue.key_of(1, b"Mail@send@1").unwrap();
        assert_eq!(queue.place_of(&own).set, None);
    }

    #[test]
    fn a_rule_that_confuses_the_members_of_two_sets_is_refused() {
        let parse = |rule: &str, sets: [&str; 2]| {
            MemberRule::parse(rule, &sets.map(str::to_owned)).map(drop)
        };
        let refused = parse("Q@run@{set}-{member}", ["a", "a-b"]).unwrap_err();
        assert!(refused.contains("members of `a` and `a-b`"), "{refused}");
        assert!(parse("Q@run@{member}-{set}", ["b", "a-b"]).is_err());
        for rule in [
            "Q@run@{set}@{member}",
            "Q@{set}@{member}",
            "Q@run@{member}@{set}",
        ] {
            assert_eq!(parse(rule, ["a", "a-b"]), Ok(()), "{rule}");
        }
        assert_eq!(parse("Q@run@{set}-{member}", ["a", "b"]), Ok(()));
        // One that does not name the set gives equal members the same task.
        assert_eq!(parse("Q@run@{member}", ["a", "b"]), Ok(()));
        let refused = parse("Q@{set}@{member}", ["a b", "c"]).unwrap_err();
        assert!(refused.contains("yields no task key"), "{refused}");
    }

    proptest! {
        #[test]
        fn a_member_is_found_again_by_its_task(member in "[ -~]{1,40}", rule_text in "(Q@r@|)") {
            let rule = rule(&format!("{rule_text}{{member}}"));
            if let Ok(key) = rule.key_of(0, member.as_bytes()) {
                let (canonical, other) = members_of(&rule, &key);
                if canonical.is_empty() {
                    prop_assert!(rule.payload_of(0, member.as_bytes()).is_some());
                    return Ok(());
                }
                prop_assert!(canonical == member || other.as_deref() == Some(&*member));
                for form in [Some(canonical), other].into_iter().flatten() {
                    prop_assert_eq!(rule.key_of(0, form.as_bytes()), Ok(key.clone()));
                }
            }
        }
    }
}

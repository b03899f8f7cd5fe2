//! Entries of programs: `{"method": .., "params": .., "cycle_num": ..}`.

use std::sync::Arc;

use serde::Deserialize;
use serde_json::value::RawValue;
use sha2::{Digest, Sha256};

use lapsed_core::task::{KeyError, PAYLOAD_BYTES_MAX, TaskKey, UnixMs, has_reserved_member};

/// Longest element that can be an entry. A longer one is refused unread.
pub(super) const ELEMENT_BYTES_MAX: usize = PAYLOAD_BYTES_MAX + 4 * 1024;

/// What the seed's executor writes over an entry that it has run, just before it removes it.
const MARKER: &[u8] = b"delete";

/// An element of a producer's list.
#[derive(Debug, Clone, PartialEq)]
pub(super) enum Element {
    /// A task to adopt.
    Entry(Entry),
    /// An entry that the old executor has run.
    Marker,
    /// Not an entry, and why.
    Garbage(Garbage),
}

/// An entry of a program.
#[derive(Debug, Clone, PartialEq)]
pub(super) struct Entry {
    /// `Class@method`: the key without what distinguishes it from others.
    pub name: TaskKey,
    /// `params`, as it was written; `None` if it is absent or `null`.
    pub payload: Option<Arc<str>>,
    /// How many more rounds it waits.
    pub cycle_num: u64,
}

/// Characters of a due time and of a digest in the suffix of a key, to the base of 36.
const DUE_CHARS: usize = 9;
const DIGEST_CHARS: usize = 13;

impl Entry {
    /// The key of an entry that is due at this time. Entries that ask for the same and are due at the same time have the same
    /// key, but for a number, which [`numbered`] adds.
    ///
    /// # Errors
    /// The key would be too long.
    pub(super) fn key(&self, due: UnixMs) -> Result<TaskKey, KeyError> {
        let digest = Sha256::new()
            .chain_update(self.name.as_str())
            .chain_update([0])
            .chain_update(self.payload.as_deref().unwrap_or_default())
            .finalize();
        let mut short = [0; 8];
        short.copy_from_slice(&digest[..8]);
        let due = base36(due.0.max(0).unsigned_abs(), DUE_CHARS);
        let digest = base36(u64::from_be_bytes(short), DIGEST_CHARS);
        self.name.with_suffix(&format!("{due}{digest}"))
    }
}

/// The key of one of several equal entries, numbered from 1.
pub(super) fn numbered(key: &TaskKey, number: u64) -> Result<TaskKey, KeyError> {
    match number {
        1 => Ok(key.clone()),
        number => TaskKey::parse(&format!("{key}{number}")),
    }
}

/// A number to the base of 36, with leading zeros.
fn base36(mut number: u64, chars: usize) -> String {
    let mut text = vec![b'0'; chars];
    for place in text.iter_mut().rev() {
        *place = b"0123456789abcdefghijklmnopqrstuvwxyz"[(number % 36) as usize];
        number /= 36;
    }
    String::from_utf8(text).expect("digits and letters")
}

/// Why an element is not an entry.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Garbage {
    /// Neither JSON nor UTF-8, or not of this form.
    NotAnEntry,
    /// `method` cannot be the method of a task key.
    Method,
    /// `cycle_num` is later than a task may be due.
    TooLate,
    /// `params` is too long, or the element is.
    TooLong,
    /// `params` has a member that is reserved.
    Reserved,
}

#[derive(Deserialize)]
struct Fields<'a> {
    #[serde(borrow)]
    method: std::borrow::Cow<'a, str>,
    #[serde(borrow)]
    params: Option<&'a RawValue>,
    /// PHP takes a missing one for 0.
    cycle_num: Option<u64>,
}

impl Element {
    /// Reads an element. `class` is the class of the task.
    pub(super) fn read(element: &[u8], class: &str) -> Self {
        if element == MARKER {
            return Self::Marker;
        }
        if element.len() > ELEMENT_BYTES_MAX {
            return Self::Garbage(Garbage::TooLong);
        }
        let Some(Fields {
            method,
            params,
            cycle_num,
        }) = object(element)
        else {
            return Self::Garbage(Garbage::NotAnEntry);
        };
        let Ok(name) = TaskKey::build(class, &method, [""; 0]) else {
            return Self::Garbage(Garbage::Method);
        };
        let payload = params.map(RawValue::get).filter(|params| *params != "null");
        if payload.is_some_and(|payload| payload.len() > PAYLOAD_BYTES_MAX) {
            return Self::Garbage(Garbage::TooLong);
        }
        if payload.is_some_and(has_reserved_member) {
            return Self::Garbage(Garbage::Reserved);
        }
        Self::Entry(Entry {
            name,
            payload: payload.map(Arc::from),
            cycle_num: cycle_num.unwrap_or(0),
        })
    }
}

/// Parses the fields of an object. The derived code takes an array for an object, too.
fn object(element: &[u8]) -> Option<Fields<'_>> {
    let is_object = element.trim_ascii_start().starts_with(b"{");
    is_object.then(|| serde_json::from_slice(element).ok())?
}

impl Garbage {
    /// What is wrong, for logs.
    pub(super) fn as_str(self) -> &'static str {
        match self {
            Self::NotAnEntry => "expected JSON with `method`, `params` and a whole `cycle_num`",
            Self::Method => "`method` cannot be the method of a task key",
            Self::TooLate => "`cycle_num` means more than 10 years",
            Self::TooLong => "it is too long, expected at most 64 KiB of `params`",
            Self::Reserved => "`params` has the reserved member `$lapsed`",
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(element: &str) -> Element {
        Element::read(element.as_bytes(), "Wheel")
    }

    #[test]
    fn an_entry_of_the_seed_is_read() {
        let Element::Entry(entry) =
            read(r#"{"method":"send_msg","params":{"uid":"1--2","msg":"No:1--2"},"cycle_num":7}"#)
        else {
            panic!("expected an entry")
        };
        assert_eq!(entry.name.as_str(), "Wheel@send_msg");
        assert_eq!(
            entry.payload.as_deref(),
            Some(r#"{"uid":"1--2","msg":"No:1--2"}"#)
        );
        assert_eq!(entry.cycle_num, 7);
    }

    #[test]
    fn the_key_says_when_and_what_and_which_of_equal_ones() {
        let key = |element: &str, due| match read(element) {
            Element::Entry(entry) => entry.key(UnixMs(due)).unwrap(),
            other => panic!("{other:?}"),
        };
        let due = 1_795_000_000_000;
        let first = key(r#"{"method":"m","params":{"uid":1},"cycle_num":7}"#, due);
        assert_eq!(first.without_suffix(), "Wheel@m");
        // How many rounds are left of the wait is no part of what is asked for.
        assert_eq!(
            first,
            key(r#"{"cycle_num":3,"method":"m","params":{"uid":1}}"#, due)
        );
        for (other, due) in [
            (r#"{"method":"m","params":{"uid":1}}"#, due + 1_000),
            (r#"{"method":"m","params":{"uid":2}}"#, due),
            (r#"{"method":"n","params":{"uid":1}}"#, due),
        ] {
            assert_ne!(first, key(other, due), "{other}");
        }
        assert_eq!(numbered(&first, 1).unwrap(), first);
        let second = numbered(&first, 2).unwrap();
        assert_eq!(second.as_str(), format!("{first}2"));
        assert_eq!(second.without_suffix(), "Wheel@m");
        assert_eq!(numbered(&first, 99_999).unwrap().class_method(), "Wheel@m");
    }

    #[test]
    fn params_are_any_json_and_may_be_missing() {
        let told = [
            (r#"{"method":"m","cycle_num":0}"#, None),
            (r#"{"method":"m","params":null}"#, None),
            (r#"{"method":"m","params":[1.10]}"#, Some("[1.10]")),
            (r#"{"method":"m","params":"x","more":1}"#, Some("\"x\"")),
            (r#"{"method":"m","params":{},"cycle_num":null}"#, Some("{}")),
        ];
        for (element, payload) in told {
            let Element::Entry(entry) = read(element) else {
                panic!("{element}")
            };
            assert_eq!(entry.payload.as_deref(), payload, "{element}");
            assert_eq!(entry.cycle_num, 0, "{element}");
        }
    }

    #[test]
    fn garbage_is_told_apart() {
        use Garbage::{Method, NotAnEntry, Reserved, TooLong};
        let long = format!(
            r#"{{"method":"m","params":"{}"}}"#,
            "x".repeat(PAYLOAD_BYTES_MAX)
        );
        let huge = "x".repeat(10 * 1024 * 1024);
        let told = [
            ("", NotAnEntry),
            ("hello", NotAnEntry),
            (r#"["m", {}, 0]"#, NotAnEntry),
            (r#"{"params":{}}"#, NotAnEntry),
            (r#"{"method":7}"#, NotAnEntry),
            (r#"{"method":"m","cycle_num":-1}"#, NotAnEntry),
            (r#"{"method":"m","cycle_num":1.0}"#, NotAnEntry),
            (r#"{"method":"m","cycle_num":"1"}"#, NotAnEntry),
            (
                r#"{"method":"m","cycle_num":99999999999999999999}"#,
                NotAnEntry,
            ),
            (r#"{"method":""}"#, Method),
            (r#"{"method":"send msg"}"#, Method),
            (r#"{"method":"a@b"}"#, Method),
            (r#"{"method":"m","params":{"$lapsed":{}}}"#, Reserved),
            (&long, TooLong),
            (&huge, TooLong),
        ];
        for (element, why) in told {
            assert_eq!(read(element), Element::Garbage(why), "{element:.60}");
        }
        assert_eq!(
            Element::read(b"\xff", "Wheel"),
            Element::Garbage(NotAnEntry)
        );
        assert_eq!(read("delete"), Element::Marker);
    }
}

//! What a member says about itself, and how much of what is found in its place is believed.

use std::fmt;

use serde::{Deserialize, Serialize};

use super::weight::fnv1a;
use crate::task::UnixMs;

/// Of the form of a note and of the hash: members of another version share nothing with us, each side owns all.
pub const VERSION: u32 = 2;

/// Longest note that is read, in bytes.
pub const NOTE_BYTES_MAX: usize = 64 * 1024;

/// Longest name of a member, in characters.
const NAME_CHARS_MAX: usize = 64;

/// A daemon, from the start of its engine to its end.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct MemberId(pub u64);

impl MemberId {
    /// A new one.
    pub fn random() -> Self {
        Self(rand::random())
    }

    /// Reads what [`Display`](fmt::Display) wrote, and nothing else.
    pub fn parse(text: &str) -> Option<Self> {
        let id = u64::from_str_radix(text, 16).ok().map(Self)?;
        (id.to_string() == text).then_some(id)
    }
}

impl fmt::Display for MemberId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:016x}", self.0)
    }
}

impl fmt::Debug for MemberId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "MemberId({self})")
    }
}

/// Whether a member takes work. The greater one is the better owner.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Readiness {
    /// It stops, or its ledger does not answer: it owns nothing.
    Away,
    /// No slot has been free for a while: it owns something only if nobody is ready.
    Full,
    /// It takes what is its own.
    Ready,
}

/// What a member can run.
#[derive(Debug, Clone, PartialEq, Eq, Hash, Default)]
pub struct Skills {
    /// `Class@method` of its handlers, in order.
    pub handlers: Vec<String>,
    /// The regular expressions of its routes.
    pub routes: Vec<String>,
}

impl Skills {
    /// A number that differs between daemons that run different tasks.
    pub fn digest(&self) -> u64 {
        let text = format!("{}\0\0{}", self.handlers.join("\0"), self.routes.join("\0"));
        fnv1a(text.as_bytes())
    }
}

/// What a member says about itself.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Note {
    /// Whose.
    pub id: MemberId,
    /// Host and process, for people.
    pub name: String,
    /// When it joined, on the ledger's clock: who is elder.
    pub since: UnixMs,
    /// It lives until then, on the ledger's clock, unless it says so again.
    pub until: UnixMs,
    /// Whether it takes work.
    pub readiness: Readiness,
    /// Whether it hears what happens to all keys.
    pub listening: bool,
    /// Whether it can pass on what it hears.
    pub passes_on: bool,
    /// What it can run.
    pub skills: Skills,
}

/// The note as it is written: JSON.
#[derive(Serialize, Deserialize)]
struct Written {
    v: u32,
    name: String,
    since: i64,
    until: i64,
    readiness: Readiness,
    listening: bool,
    passes_on: bool,
    handlers: Vec<String>,
    routes: Vec<String>,
}

impl Note {
    /// As the others read it.
    pub fn to_json(&self) -> String {
        let written = Written {
            v: VERSION,
            name: self.name.clone(),
            since: self.since.0,
            until: self.until.0,
            readiness: self.readiness,
            listening: self.listening,
            passes_on: self.passes_on,
            handlers: self.skills.handlers.clone(),
            routes: self.skills.routes.clone(),
        };
        serde_json::to_string(&written).expect("texts and numbers are JSON")
    }

    /// Reads a note. `None` for whatever is none: anybody with access can write there.
    pub fn read(id: &[u8], json: &[u8]) -> Option<Self> {
        if json.len() > NOTE_BYTES_MAX {
            return None;
        }
        let id = MemberId::parse(std::str::from_utf8(id).ok()?)?;
        let written: Written = serde_json::from_slice(json).ok()?;
        let Written {
            v,
            name,
            since,
            until,
            readiness,
            listening,
            passes_on,
            handlers,
            routes,
        } = written;
        let printable = name.chars().filter(char::is_ascii_graphic);
        (v == VERSION).then(|| Self {
            id,
            name: printable.take(NAME_CHARS_MAX).collect(),
            since: UnixMs(since),
            until: UnixMs(until),
            readiness,
            listening,
            passes_on,
            skills: Skills { handlers, routes },
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn note() -> Note {
        Note {
            id: MemberId(0xab),
            name: "host:7".into(),
            since: UnixMs(1_799_999_000_000),
            until: UnixMs(1_800_000_000_000),
            readiness: Readiness::Full,
            listening: true,
            passes_on: false,
            skills: Skills {
                handlers: vec!["Order@close".into()],
                routes: vec!["^Shop@".into()],
            },
        }
    }

    #[test]
    fn a_note_is_read_back() {
        let (id, json) = (note().id.to_string(), note().to_json());
        assert_eq!(id, "00000000000000ab");
        assert_eq!(
            json,
            r#"{"v":2,"name":"host:7","since":1799999000000,"until":1800000000000,"readiness":"full","listening":true,"passes_on":false,"handlers":["Order@close"],"routes":["^Shop@"]}"#
        );
        assert_eq!(Note::read(id.as_bytes(), json.as_bytes()), Some(note()));
    }

    #[test]
    fn what_is_no_note_is_nobody() {
        let json = note().to_json();
        let id = note().id.to_string();
        for bad in ["", "ab", "+0000000000000ab", "00000000000000AB", "x"] {
            assert_eq!(Note::read(bad.as_bytes(), json.as_bytes()), None, "{bad}");
        }
        let newer = json.replace("\"v\":2", "\"v\":3");
        let long = json.replace("host:7", &"x".repeat(NOTE_BYTES_MAX));
        for bad in ["", "{}", "[1]", &newer, &long] {
            assert_eq!(Note::read(id.as_bytes(), bad.as_bytes()), None);
        }
    }

    #[test]
    fn a_name_cannot_write_lines_of_its_own() {
        let json = note().to_json().replace("host:7", "a\\nERROR \\u001b[31m");
        let read = Note::read(note().id.to_string().as_bytes(), json.as_bytes()).unwrap();
        assert_eq!(read.name, "aERROR[31m");
    }

    proptest! {
        #[test]
        fn any_bytes_are_a_note_or_nobody(id in prop::collection::vec(any::<u8>(), 0..20), json in prop::collection::vec(any::<u8>(), 0..400)) {
            let _ = Note::read(&id, &json);
        }
    }
}

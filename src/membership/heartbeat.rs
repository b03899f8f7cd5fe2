//! Heartbeats: the record that each member publishes, and the checks it passes when it is read.

use std::fmt;

use serde::{Deserialize, Serialize};

use super::{AskedQueues, Capabilities, asked_queues};
use crate::task::UnixMs;

/// Version of the heartbeat's format and of the hash. Members of another version are not seen: each side owns all tasks.
pub const VERSION: u32 = 2;

/// Longest heartbeat that is read, in bytes.
pub const HEARTBEAT_BYTES_MAX: usize = 64 * 1024;

/// Longest name and version of a member, in characters.
const NAME_CHARS_MAX: usize = 64;

/// Identifies a daemon from the start of its engine to its end.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct MemberId(pub u64);

impl MemberId {
    /// Returns a random id.
    pub fn random() -> Self {
        Self(rand::random())
    }

    /// Parses the text that [`Display`](fmt::Display) writes, and no other form.
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

/// Whether a member accepts tasks. The greater value is preferred as an owner.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Readiness {
    /// It is stopping, or its ledger does not answer: it owns no task.
    Away,
    /// Handlers hold its slots, and none has become free for a while: it owns tasks only if no member is ready.
    Full,
    /// It runs the tasks that it owns.
    Ready,
}

/// The record that a member publishes every second.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Heartbeat {
    /// The member.
    pub id: MemberId,
    /// Host and process, for logs.
    pub name: String,
    /// Version of its program; empty for one that does not state it.
    pub version: String,
    /// When it joined, on the ledger's clock. It decides seniority.
    pub since: UnixMs,
    /// When it expires, on the ledger's clock.
    pub until: UnixMs,
    /// Whether it accepts tasks.
    pub readiness: Readiness,
    /// True if it listens to all events of all keys.
    pub listening: bool,
    /// True if it listens to the expiry of all keys, but does not receive their armings and deletions.
    pub expired_only: bool,
    /// True if it can forward events to other members.
    pub forwards: bool,
    /// The name of its timer, and what tells which keys it watches; empty for one that does not state it.
    pub timer: String,
    /// What it can run.
    pub capabilities: Capabilities,
    /// For each idle route, when a worker asked last, on the ledger's clock; 0 if none has since the start. Empty for one that
    /// does not state it.
    pub idle_since: Vec<UnixMs>,
    /// The pull queues that workers have asked it for; empty for one that does not state it.
    pub queues: AskedQueues,
}

/// The JSON form of a heartbeat.
#[derive(Serialize, Deserialize)]
struct Written {
    v: u32,
    name: String,
    #[serde(default, skip_serializing_if = "String::is_empty")]
    version: String,
    since: i64,
    until: i64,
    readiness: Readiness,
    listening: bool,
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    expired_only: bool,
    #[serde(rename = "passes_on")]
    forwards: bool,
    #[serde(default, skip_serializing_if = "String::is_empty")]
    timer: String,
    handlers: Vec<String>,
    routes: Vec<String>,
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    idle: Vec<u16>,
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    idle_since: Vec<i64>,
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    queues: Vec<asked_queues::Written>,
    #[serde(default, skip_serializing_if = "is_zero")]
    queues_left_out: u32,
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    unadopted: Vec<u16>,
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    handlers_unadopted: bool,
}

fn is_zero(number: &u32) -> bool {
    *number == 0
}

impl Heartbeat {
    /// Encodes it as JSON.
    pub fn to_json(&self) -> String {
        let (queues, queues_left_out) = self.queues.written();
        let written = Written {
            v: VERSION,
            name: self.name.clone(),
            version: self.version.clone(),
            since: self.since.0,
            until: self.until.0,
            readiness: self.readiness,
            listening: self.listening,
            expired_only: self.expired_only,
            forwards: self.forwards,
            timer: self.timer.clone(),
            handlers: self.capabilities.handlers.clone(),
            routes: self.capabilities.routes.clone(),
            idle: self.capabilities.idle.clone(),
            idle_since: self.idle_since.iter().map(|since| since.0).collect(),
            queues,
            queues_left_out,
            unadopted: self.capabilities.unadopted.clone(),
            handlers_unadopted: self.capabilities.handlers_unadopted,
        };
        serde_json::to_string(&written).expect("texts and numbers are JSON")
    }

    /// Decodes a heartbeat. `None` if it is malformed, too long or of another version: any client of Redis can write there.
    pub fn read(id: &[u8], json: &[u8]) -> Option<Self> {
        if json.len() > HEARTBEAT_BYTES_MAX {
            return None;
        }
        let id = MemberId::parse(std::str::from_utf8(id).ok()?)?;
        let written: Written = serde_json::from_slice(json).ok()?;
        let Written {
            v,
            name,
            version,
            since,
            until,
            readiness,
            listening,
            expired_only,
            forwards,
            timer,
            handlers,
            routes,
            idle,
            idle_since,
            queues,
            queues_left_out,
            unadopted,
            handlers_unadopted,
        } = written;
        let printable = |text: String| {
            let printable = text.chars().filter(char::is_ascii_graphic);
            printable.take(NAME_CHARS_MAX).collect()
        };
        (v == VERSION).then(|| Self {
            id,
            name: printable(name),
            version: printable(version),
            since: UnixMs(since),
            until: UnixMs(until),
            readiness,
            listening,
            expired_only,
            forwards,
            timer: printable(timer),
            capabilities: Capabilities {
                handlers,
                routes,
                idle,
                unadopted,
                handlers_unadopted,
            },
            idle_since: idle_since.into_iter().map(UnixMs).collect(),
            queues: AskedQueues::read(queues, queues_left_out),
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::membership::AskedQueue;
    use proptest::prelude::*;

    fn heartbeat() -> Heartbeat {
        Heartbeat {
            id: MemberId(0xab),
            name: "host:7".into(),
            version: String::new(),
            since: UnixMs(1_799_999_000_000),
            until: UnixMs(1_800_000_000_000),
            readiness: Readiness::Full,
            listening: true,
            expired_only: false,
            forwards: false,
            timer: String::new(),
            capabilities: Capabilities {
                handlers: vec!["Order@close".into()],
                routes: vec!["^Shop@".into()],
                ..Capabilities::default()
            },
            idle_since: Vec::new(),
            queues: AskedQueues::default(),
        }
    }

    #[test]
    fn a_heartbeat_is_read_back() {
        let (id, json) = (heartbeat().id.to_string(), heartbeat().to_json());
        assert_eq!(id, "00000000000000ab");
        assert_eq!(
            json,
            r#"{"v":2,"name":"host:7","since":1799999000000,"until":1800000000000,"readiness":"full","listening":true,"passes_on":false,"handlers":["Order@close"],"routes":["^Shop@"]}"#
        );
        assert_eq!(
            Heartbeat::read(id.as_bytes(), json.as_bytes()),
            Some(heartbeat())
        );
    }

    #[test]
    fn idle_routes_are_read_back() {
        let mut idle = heartbeat();
        idle.capabilities.idle = vec![0, 3];
        let json = idle.to_json();
        assert!(json.ends_with(r#","idle":[0,3]}"#), "{json}");
        idle.idle_since = vec![UnixMs(0), UnixMs(1_799_999_999_000)];
        let json = idle.to_json();
        let since = r#","idle":[0,3],"idle_since":[0,1799999999000]}"#;
        assert!(json.ends_with(since), "{json}");
        let id = idle.id.to_string();
        assert_eq!(Heartbeat::read(id.as_bytes(), json.as_bytes()), Some(idle));
    }

    #[test]
    fn the_queues_that_workers_asked_for_are_read_back() {
        let mut asked = heartbeat();
        let queue = |n: u32| AskedQueue {
            name: format!("mail-{n}"),
            workers: 3,
            waiting: 2,
            asked: UnixMs(1_799_999_999_000),
        };
        asked.queues = AskedQueues::new(vec![queue(0)]);
        let json = asked.to_json();
        let told = r#""handlers":["Order@close"],"routes":["^Shop@"],"queues":[["mail-0",3,2,1799999999000]]}"#;
        assert!(json.ends_with(told), "{json}");
        asked.queues = AskedQueues::new((0..200).map(queue).collect());
        let json = asked.to_json();
        assert!(json.ends_with(r#""queues_left_out":180}"#), "{json}");
        let id = asked.id.to_string();
        let read = Heartbeat::read(id.as_bytes(), json.as_bytes());
        assert_eq!(read, Some(asked));
    }

    #[test]
    fn what_is_not_adopted_or_heard_is_read_back_and_missing_where_all_is() {
        let mut partial = heartbeat();
        (partial.listening, partial.expired_only) = (false, true);
        partial.capabilities.unadopted = vec![0];
        partial.capabilities.handlers_unadopted = true;
        let json = partial.to_json();
        let told = r#""listening":false,"expired_only":true,"passes_on":false"#;
        assert!(json.contains(told), "{json}");
        assert!(
            json.ends_with(r#","unadopted":[0],"handlers_unadopted":true}"#),
            "{json}"
        );
        let id = partial.id.to_string();
        let read = Heartbeat::read(id.as_bytes(), json.as_bytes());
        assert_eq!(read, Some(partial));
    }

    #[test]
    fn version_and_timer_of_a_program_are_read_back_and_may_be_missing() {
        let told = Heartbeat {
            version: "1.2.0-rc.1".into(),
            timer: "wheel:task_/3600/1000ms".into(),
            ..heartbeat()
        };
        let json = told.to_json();
        assert!(
            json.contains(r#""name":"host:7","version":"1.2.0-rc.1","#),
            "{json}"
        );
        let id = told.id.to_string();
        assert_eq!(Heartbeat::read(id.as_bytes(), json.as_bytes()), Some(told));
    }

    #[test]
    fn what_a_later_program_adds_is_ignored() {
        let json = heartbeat().to_json();
        let later = json.replace("\"name\"", "\"more\":[[\"mail\",1]],\"name\"");
        assert_ne!(later, json);
        let id = heartbeat().id.to_string();
        let read = Heartbeat::read(id.as_bytes(), later.as_bytes());
        assert_eq!(read, Some(heartbeat()));
    }

    #[test]
    fn a_malformed_heartbeat_is_ignored() {
        let json = heartbeat().to_json();
        let id = heartbeat().id.to_string();
        for bad in ["", "ab", "+0000000000000ab", "00000000000000AB", "x"] {
            assert_eq!(
                Heartbeat::read(bad.as_bytes(), json.as_bytes()),
                None,
                "{bad}"
            );
        }
        let newer = json.replace("\"v\":2", "\"v\":3");
        let long = json.replace("host:7", &"x".repeat(HEARTBEAT_BYTES_MAX));
        for bad in ["", "{}", "[1]", &newer, &long] {
            assert_eq!(Heartbeat::read(id.as_bytes(), bad.as_bytes()), None);
        }
    }

    #[test]
    fn a_heartbeat_of_the_greatest_length_is_read_and_none_that_is_longer() {
        let id = heartbeat().id.to_string();
        let mut long = heartbeat();
        long.capabilities.routes = vec!["^Shop@".into(); 7_000];
        let json = long.to_json();
        let padding = " ".repeat(HEARTBEAT_BYTES_MAX - json.len());
        let read = |json: &str| Heartbeat::read(id.as_bytes(), json.as_bytes());
        assert_eq!(read(&format!("{json}{padding}")), Some(long));
        assert_eq!(read(&format!("{json}{padding} ")), None);
    }

    #[test]
    fn a_name_cannot_add_log_lines() {
        let json = heartbeat()
            .to_json()
            .replace("host:7", "a\\nERROR \\u001b[31m");
        let read = Heartbeat::read(heartbeat().id.to_string().as_bytes(), json.as_bytes()).unwrap();
        assert_eq!(read.name, "aERROR[31m");
    }

    proptest! {
        #[test]
        fn any_bytes_are_read_without_a_panic(id in prop::collection::vec(any::<u8>(), 0..20), json in prop::collection::vec(any::<u8>(), 0..400)) {
            let _ = Heartbeat::read(&id, &json);
        }
    }
}

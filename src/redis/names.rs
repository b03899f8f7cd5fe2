//! What our keys are called inside Redis, and what a name heard there is.

use std::fmt;
use std::sync::{Arc, OnceLock};

use crate::task::{Foreign, KeyName, SENTINEL_PREFIX, TaskKey};

const PROBE_PREFIX: &str = "#lapsed:probe:";

const MEMBERS_PREFIX: &str = "#lapsed:members:";

const HINT_PREFIX: &str = "#lapsed:hint:";

const AUDIT_PREFIX: &str = "#lapsed:audit:";

const RATE_PREFIX: &str = "#lapsed:rate:";

/// Puts the configured prefix before our names, and takes it off again. Cloning is cheap.
#[derive(Debug, Clone)]
pub struct Names {
    prefix: Arc<str>,
}

/// What a ledger is called by the daemons that share it.
#[derive(Debug, Clone, Default)]
pub struct LedgerName {
    plain: Arc<str>,
    identity: Arc<OnceLock<String>>,
}

/// The random number in the name of one probe.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ProbeId(u64);

/// What an event says of a key. Its text is the end of the channel's name.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum EventKind {
    /// It has expired.
    Expired,
    /// It was given an expiry: by `SETEX`, `EXPIRE` and the like.
    Expire,
    /// It was deleted: by `DEL`, by an `EXPIRE` in the past, or on behalf of another server.
    Del,
    /// Its expiry was taken away.
    Persist,
}

impl EventKind {
    /// Those that say what programs do to keys. They need the flag `g`.
    pub const OF_ARMINGS: [Self; 3] = [Self::Expire, Self::Del, Self::Persist];

    /// Reads it from the name of a channel.
    pub(super) fn of_channel(channel: &str) -> Option<Self> {
        let (_, name) = channel.rsplit_once(':')?;
        let kinds = [Self::Expired, Self::Expire, Self::Del, Self::Persist];
        kinds.into_iter().find(|kind| kind.as_str() == name)
    }

    fn as_str(self) -> &'static str {
        match self {
            Self::Expired => "expired",
            Self::Expire => "expire",
            Self::Del => "del",
            Self::Persist => "persist",
        }
    }
}

impl fmt::Display for EventKind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}

/// Everything an event can name.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Heard {
    /// A task.
    Task(TaskKey),
    /// The sentinel with this number, counted from 1.
    Sentinel(u16),
    /// A probe, of this daemon or of another.
    Probe(ProbeId),
    /// A key by which daemons know of each other: nothing to do.
    Fleet,
    /// Somebody else's key.
    Foreign(Foreign),
}

impl Names {
    /// Names with this before them.
    pub fn new(prefix: &str) -> Self {
        Self {
            prefix: Arc::from(prefix),
        }
    }

    /// The name of a task's key.
    pub fn task(&self, key: &TaskKey) -> String {
        format!("{}{key}", self.prefix)
    }

    /// The name of the sentinel with this number, counted from 1.
    pub fn sentinel(&self, number: u16) -> String {
        format!("{}{SENTINEL_PREFIX}{number}", self.prefix)
    }

    /// The name of a probe.
    pub fn probe(&self, id: ProbeId) -> String {
        format!("{}{PROBE_PREFIX}{id}", self.prefix)
    }

    /// The name of the hash in which the daemons of a ledger show themselves.
    pub fn members(&self, ledger: &str) -> String {
        format!("{}{MEMBERS_PREFIX}{ledger}", self.prefix)
    }

    /// The channel on which a daemon is told what of its own has expired. Channels are those of the whole server: the
    /// number of the daemon is random, and no other has it.
    pub fn hints(member: u64) -> String {
        format!("{HINT_PREFIX}{member:016x}")
    }

    /// What the name of the turn to audit a ledger begins with.
    pub fn audit(&self, ledger: &str) -> String {
        format!("{}{AUDIT_PREFIX}{ledger}", self.prefix)
    }

    /// The name of the bucket that says how many tasks of a route may start.
    pub fn rate(&self, ledger: &str, route: &str) -> String {
        format!("{}{RATE_PREFIX}{ledger}:{route}", self.prefix)
    }

    /// A pattern that every task's name fits, and few others do.
    pub(super) fn pattern(&self) -> String {
        let mut pattern = String::new();
        for c in self.prefix.chars() {
            if matches!(c, '*' | '?' | '[' | ']' | '^' | '\\') {
                pattern.push('\\');
            }
            pattern.push(c);
        }
        pattern + "*@*"
    }

    /// Tells what a name is. A name without the prefix is somebody else's.
    pub fn read(&self, name: &[u8]) -> Heard {
        let Some(name) = name.strip_prefix(self.prefix.as_bytes()) else {
            return Heard::Foreign(Foreign::NotInGrammar);
        };
        if let Some(id) = name.strip_prefix(PROBE_PREFIX.as_bytes()) {
            return match ProbeId::parse(id) {
                Some(id) => Heard::Probe(id),
                None => Heard::Foreign(Foreign::NotInGrammar),
            };
        }
        let fleet = [MEMBERS_PREFIX, AUDIT_PREFIX, RATE_PREFIX];
        if fleet
            .iter()
            .any(|prefix| name.starts_with(prefix.as_bytes()))
        {
            return Heard::Fleet;
        }
        match KeyName::parse(name) {
            KeyName::Task(key) => Heard::Task(key),
            KeyName::Sentinel(number) => Heard::Sentinel(number),
            KeyName::Foreign(why) => Heard::Foreign(why),
        }
    }
}

impl LedgerName {
    /// Its name, and the random identity that `migrate` gave it, once that is known: two ledgers may have the same name.
    pub fn new(plain: &str, identity: Arc<OnceLock<String>>) -> Self {
        let plain = Arc::from(plain);
        Self { plain, identity }
    }

    /// The identity, or else the name.
    pub fn text(&self) -> &str {
        self.identity.get().map_or(&self.plain, String::as_str)
    }

    /// As another one, as long as its identity is not known.
    #[must_use]
    pub fn with_plain(self, plain: &str) -> Self {
        Self::new(plain, self.identity)
    }
}

impl From<&str> for LedgerName {
    fn from(plain: &str) -> Self {
        Self::new(plain, Arc::default())
    }
}

impl ProbeId {
    /// A new one.
    pub fn random() -> Self {
        Self(rand::random())
    }

    /// Reads what [`Display`](fmt::Display) wrote.
    pub fn read(digits: &str) -> Option<Self> {
        Self::parse(digits.as_bytes())
    }

    fn parse(digits: &[u8]) -> Option<Self> {
        let exact = digits.len() == 16 && digits.iter().all(u8::is_ascii_hexdigit);
        let digits = std::str::from_utf8(digits).ok().filter(|_| exact)?;
        u64::from_str_radix(digits, 16).ok().map(Self)
    }
}

impl fmt::Display for ProbeId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:016x}", self.0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn a_name_is_read_back_with_its_prefix_and_not_without() {
        let names = Names::new("app_cache:");
        let key = TaskKey::parse("Order@close@42").unwrap();
        let id = ProbeId::random();
        assert_eq!(names.task(&key), "app_cache:Order@close@42");
        assert_eq!(names.sentinel(7), "app_cache:#SILCK`7");
        assert_eq!(names.read(names.task(&key).as_bytes()), Heard::Task(key));
        assert_eq!(names.read(names.sentinel(7).as_bytes()), Heard::Sentinel(7));
        assert_eq!(names.read(names.probe(id).as_bytes()), Heard::Probe(id));
        assert_eq!(names.members("7"), "app_cache:#lapsed:members:7");
        let rate = names.rate("app.tb", "^Mail@send(@|$)");
        for fleet in [names.members("7"), names.audit("7"), rate] {
            assert_eq!(names.read(fleet.as_bytes()), Heard::Fleet);
        }
        for foreign in [
            "Order@close@42",
            "#SILCK`7",
            "app_cache:",
            "app_cache:#lapsed:probe:xyz",
        ] {
            let heard = names.read(foreign.as_bytes());
            assert_eq!(heard, Heard::Foreign(Foreign::NotInGrammar), "{foreign}");
        }
    }

    #[test]
    fn a_prefix_stands_for_itself_in_a_pattern() {
        assert_eq!(Names::new("").pattern(), "*@*");
        assert_eq!(Names::new("a*[b]?").pattern(), r"a\*\[b\]\?*@*");
    }

    #[test]
    fn a_channel_says_what_its_events_are() {
        let kind = |channel| EventKind::of_channel(channel);
        assert_eq!(kind("__keyevent@0__:expired"), Some(EventKind::Expired));
        assert_eq!(kind("__keyevent@12__:del"), Some(EventKind::Del));
        assert_eq!(kind("__keyevent@0__:set"), None);
        assert_eq!(kind("expire"), None);
    }

    proptest! {
        #[test]
        fn any_bytes_are_something(name in prop::collection::vec(any::<u8>(), 0..400), prefix in "[a-z:]{0,3}") {
            let _ = Names::new(&prefix).read(&name);
        }
    }
}

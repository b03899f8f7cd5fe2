//! Names of lapsed's keys in Redis, and the parser for names in events.

use std::fmt;
use std::sync::{Arc, OnceLock};

use lapsed_core::format::from_hex;
use lapsed_core::task::{Foreign, KeyName, SENTINEL_PREFIX, TaskKey};

const PROBE_PREFIX: &str = "#lapsed:probe:";

const MEMBERS_PREFIX: &str = "#lapsed:members:";

const HINT_PREFIX: &str = "#lapsed:hint:";

/// Below the hints, so that a user who may send hints may publish marks.
const MARKS_PREFIX: &str = "#lapsed:hint:marks:";

const AUDIT_PREFIX: &str = "#lapsed:audit:";

const CLOCKS_PREFIX: &str = "#lapsed:clocks:";

const RATE_PREFIX: &str = "#lapsed:rate:";

const SETS_PREFIX: &str = "#lapsed:sets:";

/// Adds the configured prefix to names and removes it. Clones are cheap.
#[derive(Debug, Clone)]
pub struct Names {
    prefix: Arc<str>,
}

/// The name of a ledger in keys that its daemons share.
#[derive(Debug, Clone, Default)]
pub struct LedgerName {
    plain: Arc<str>,
    identity: Arc<OnceLock<String>>,
}

/// The random number in a probe's name.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ProbeId(u64);

/// The kind of a keyspace event. Its text ends the channel's name.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum EventKind {
    /// The key expired.
    Expired,
    /// The key received an expiry, by `SETEX`, `EXPIRE` and the like.
    Expire,
    /// The key was deleted, by `DEL`, an `EXPIRE` in the past, or a migration.
    Del,
    /// The key lost its expiry.
    Persist,
}

impl EventKind {
    /// Events of programs that arm and disarm keys. They need the flag `g`.
    pub const OF_ARMINGS: [Self; 3] = [Self::Expire, Self::Del, Self::Persist];

    /// Parses the name of a channel.
    #[cfg(feature = "engine")]
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

/// What the name in an event refers to.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Heard {
    /// A task.
    Task(TaskKey),
    /// The sentinel with this number, counted from 1.
    Sentinel(u16),
    /// A probe of this or another daemon.
    Probe(ProbeId),
    /// A key that daemons share; ignored.
    Shared,
    /// A key of another program.
    Foreign(Foreign),
}

impl Names {
    /// Creates names with this prefix.
    pub fn new(prefix: &str) -> Self {
        Self {
            prefix: Arc::from(prefix),
        }
    }

    /// Returns the name of a task's key.
    pub fn task(&self, key: &TaskKey) -> String {
        format!("{}{key}", self.prefix)
    }

    /// Returns the name of the sentinel with this number, counted from 1.
    pub fn sentinel(&self, number: u16) -> String {
        format!("{}{SENTINEL_PREFIX}{number}", self.prefix)
    }

    /// Returns the name of a probe.
    pub fn probe(&self, id: ProbeId) -> String {
        format!("{}{PROBE_PREFIX}{id}", self.prefix)
    }

    /// Returns the name of the hash of heartbeats.
    pub fn members(&self, ledger: &str) -> String {
        format!("{}{MEMBERS_PREFIX}{ledger}", self.prefix)
    }

    /// Returns the channel for hints to a member. Channels belong to the whole server; the member's random id keeps
    /// them apart.
    pub fn hints(member: u64) -> String {
        format!("{HINT_PREFIX}{member:016x}")
    }

    /// Returns the channel for marks of the daemons of a ledger.
    pub fn marks(ledger: &str) -> String {
        format!("{MARKS_PREFIX}{ledger}")
    }

    /// Returns the prefix of the audit lock's name.
    pub fn audit(&self, ledger: &str) -> String {
        format!("{}{AUDIT_PREFIX}{ledger}", self.prefix)
    }

    /// Returns the name of the note about the clocks of the server and of a ledger.
    pub fn clocks(&self, ledger: &str) -> String {
        format!("{}{CLOCKS_PREFIX}{ledger}", self.prefix)
    }

    /// Returns the name of the token bucket of a route.
    pub fn rate(&self, ledger: &str, route: &str) -> String {
        format!("{}{RATE_PREFIX}{ledger}:{route}", self.prefix)
    }

    /// Returns the name of the hash beside the sorted sets.
    pub fn sets(&self, ledger: &str) -> String {
        format!("{}{SETS_PREFIX}{ledger}", self.prefix)
    }

    /// Returns a pattern that matches every task's name and few others.
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

    /// Parses a name. A name without the prefix belongs to another program.
    pub fn read(&self, name: &[u8]) -> Heard {
        let Some(name) = name.strip_prefix(self.prefix.as_bytes()) else {
            return Heard::Foreign(Foreign::NotInGrammar);
        };
        let name = without_tag(name);
        if let Some(id) = name.strip_prefix(PROBE_PREFIX.as_bytes()) {
            return match ProbeId::parse(id) {
                Some(id) => Heard::Probe(id),
                None => Heard::Foreign(Foreign::NotInGrammar),
            };
        }
        let shared = [
            MEMBERS_PREFIX,
            AUDIT_PREFIX,
            CLOCKS_PREFIX,
            RATE_PREFIX,
            SETS_PREFIX,
        ];
        if shared
            .iter()
            .any(|prefix| name.starts_with(prefix.as_bytes()))
        {
            return Heard::Shared;
        }
        match KeyName::parse(name) {
            KeyName::Task(key) => Heard::Task(key),
            KeyName::Sentinel(number) => Heard::Sentinel(number),
            KeyName::Foreign(why) => Heard::Foreign(why),
        }
    }
}

/// Removes the hash tag that ends the name of a probe or sentinel of one node of a cluster.
fn without_tag(name: &[u8]) -> &[u8] {
    let has_tag = [PROBE_PREFIX, SENTINEL_PREFIX]
        .iter()
        .any(|prefix| name.starts_with(prefix.as_bytes()));
    match (name, name.iter().rposition(|byte| *byte == b'{')) {
        ([.., b'}'], Some(start)) if has_tag => &name[..start],
        _ => name,
    }
}

impl LedgerName {
    /// Creates a name. Once known, the random identity from `migrate` replaces it, because two ledgers may have the
    /// same name.
    pub fn new(plain: &str, identity: Arc<OnceLock<String>>) -> Self {
        let plain = Arc::from(plain);
        Self { plain, identity }
    }

    /// Returns the identity, or the name if the identity is unknown.
    pub fn text(&self) -> &str {
        self.identity.get().map_or(&self.plain, String::as_str)
    }

    /// Replaces the name that is used while the identity is unknown.
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
    /// Creates a random id.
    pub fn random() -> Self {
        Self(rand::random())
    }

    /// Parses the text form.
    pub fn read(digits: &str) -> Option<Self> {
        Self::parse(digits.as_bytes())
    }

    fn parse(digits: &[u8]) -> Option<Self> {
        from_hex(digits).map(u64::from_be_bytes).map(Self)
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
        let tagged = |name: String| names.read(format!("{name}{{17}}").as_bytes());
        assert_eq!(tagged(names.sentinel(7)), Heard::Sentinel(7));
        assert_eq!(tagged(names.probe(id)), Heard::Probe(id));
        assert_eq!(names.members("7"), "app_cache:#lapsed:members:7");
        let rate = names.rate("app.tb", "^Mail@send(@|$)");
        for shared in [names.members("7"), names.audit("7"), rate] {
            assert_eq!(names.read(shared.as_bytes()), Heard::Shared);
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
    fn a_prefix_is_escaped_in_a_pattern() {
        assert_eq!(Names::new("").pattern(), "*@*");
        assert_eq!(Names::new("a*[b]?").pattern(), r"a\*\[b\]\?*@*");
    }

    #[cfg(feature = "engine")]
    #[test]
    fn a_channel_names_the_kind_of_its_events() {
        let kind = |channel| EventKind::of_channel(channel);
        assert_eq!(kind("__keyevent@0__:expired"), Some(EventKind::Expired));
        assert_eq!(kind("__keyevent@12__:del"), Some(EventKind::Del));
        assert_eq!(kind("__keyevent@0__:set"), None);
        assert_eq!(kind("expire"), None);
    }

    proptest! {
        #[test]
        fn any_bytes_are_classified(name in prop::collection::vec(any::<u8>(), 0..400), prefix in "[a-z:]{0,3}") {
            let _ = Names::new(&prefix).read(&name);
        }
    }
}

//! `notify-keyspace-events`: which events Redis publishes.

use std::fmt;

use super::{Commands, RedisError};
use lapsed_core::config::Config;

const SETTING: &str = "notify-keyspace-events";

/// Which events a daemon needs.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Events {
    /// `expired` events.
    Expired,
    /// Also events of programs that arm and disarm keys.
    ExpiredAndArmings,
}

impl Events {
    /// Returns the events that a daemon with this configuration subscribes to.
    pub fn wanted_by(config: &Config) -> Self {
        match config.hears_armings() {
            true => Self::ExpiredAndArmings,
            false => Self::Expired,
        }
    }

    /// Returns the flags that enable them, in the usual order.
    pub fn flags(self) -> &'static str {
        match self {
            Self::Expired => "Ex",
            Self::ExpiredAndArmings => "Exg",
        }
    }
}

/// The flags of `notify-keyspace-events`, as the server reports them.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct NotifyFlags(String);

impl NotifyFlags {
    /// Takes the server's text. Unknown flags are kept.
    pub fn parse(text: &str) -> Self {
        Self(text.to_owned())
    }

    /// True if these events are published on keyevent channels: `E`, and the class of each event or `A`.
    pub fn announce(&self, events: Events) -> bool {
        let classes = match events {
            Events::Expired => "x",
            Events::ExpiredAndArmings => "xg",
        };
        self.has('E') && (self.has('A') || classes.chars().all(|class| self.has(class)))
    }

    /// True if the events of a sorted set are published on its keyspace channel: `K`, and the class `z` or `A`.
    pub fn announce_sorted_sets(&self) -> bool {
        self.has('K') && (self.has('A') || self.has('z'))
    }

    /// Adds the missing flags, and keeps all others, since other clients need them.
    #[must_use]
    pub fn with(&self, events: Events) -> Self {
        let mut flags = self.0.clone();
        if !self.has('E') {
            flags.push('E');
        }
        if !self.has('x') && !self.has('A') {
            flags.push('x');
        }
        if events == Events::ExpiredAndArmings && !self.has('g') && !self.has('A') {
            flags.push('g');
        }
        Self(flags)
    }

    fn has(&self, flag: char) -> bool {
        self.0.contains(flag)
    }
}

impl fmt::Display for NotifyFlags {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

/// The state of the server's notifications.
#[derive(Debug, Clone)]
pub enum Notifications {
    /// The server publishes all needed events.
    On,
    /// It now does; these are the new flags.
    Added(NotifyFlags),
    /// It publishes `expired` alone, and refuses a change.
    ExpiredOnly {
        /// The current flags.
        flags: NotifyFlags,
        /// The error reply.
        refusal: RedisError,
    },
    /// It publishes no needed event, and refuses a change.
    Off {
        /// The current flags.
        flags: NotifyFlags,
        /// The error reply.
        refusal: RedisError,
    },
    /// Unknown, because `CONFIG` is forbidden or renamed.
    Unknown,
}

/// Enables these events if the server allows it.
///
/// Two clients that add flags at the same moment may undo each other; the next check repairs it.
///
/// # Errors
/// If the server does not reply. An error reply is a value.
pub async fn ensure_notifications(
    commands: &Commands,
    wanted: Events,
) -> Result<Notifications, RedisError> {
    let Some(flags) = notify_flags(commands).await? else {
        return Ok(Notifications::Unknown);
    };
    if flags.announce(wanted) {
        return Ok(Notifications::On);
    }
    let wanted = flags.with(wanted);
    match set(commands, &wanted).await {
        Ok(()) => Ok(Notifications::Added(wanted)),
        Err(refusal) if refusal.is_refusal() && flags.announce(Events::Expired) => {
            Ok(Notifications::ExpiredOnly { flags, refusal })
        }
        Err(refusal) if refusal.is_refusal() => Ok(Notifications::Off { flags, refusal }),
        Err(error) => Err(error),
    }
}

/// Returns the flags; `None` if the server does not show them.
///
/// # Errors
/// If the server does not reply.
pub async fn notify_flags(commands: &Commands) -> Result<Option<NotifyFlags>, RedisError> {
    match get(commands).await {
        Err(error) if error.is_refusal() => Ok(None),
        flags => flags,
    }
}

async fn get(commands: &Commands) -> Result<Option<NotifyFlags>, RedisError> {
    let mut get = redis::pipe();
    get.cmd("CONFIG").arg("GET").arg(SETTING);
    // Some managed servers send an empty reply instead of an error.
    let (pairs,): (Vec<String>,) = commands.send("CONFIG GET", &get).await?;
    Ok(pairs.get(1).map(|text| NotifyFlags::parse(text)))
}

async fn set(commands: &Commands, flags: &NotifyFlags) -> Result<(), RedisError> {
    let mut set = redis::pipe();
    set.cmd("CONFIG")
        .arg("SET")
        .arg(SETTING)
        .arg(&flags.0)
        .ignore();
    commands.send("CONFIG SET", &set).await
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn expired_events_need_the_keyevent_channel_and_their_class() {
        for enough in ["Ex", "xE", "KEA", "AE", "KExg"] {
            assert!(
                NotifyFlags::parse(enough).announce(Events::Expired),
                "{enough}"
            );
        }
        for lacking in ["", "E", "x", "Kx", "KA", "Kg", "Eg"] {
            assert!(
                !NotifyFlags::parse(lacking).announce(Events::Expired),
                "{lacking}"
            );
        }
    }

    #[test]
    fn arming_events_need_the_generic_class() {
        for (text, enough) in [("Exg", true), ("KEA", true), ("Ex", false), ("Eg", false)] {
            let flags = NotifyFlags::parse(text);
            assert_eq!(flags.announce(Events::ExpiredAndArmings), enough, "{text}");
        }
    }

    #[test]
    fn events_of_a_sorted_set_need_the_keyspace_channel_and_their_class() {
        for (text, enough) in [("Kz", true), ("KEA", true), ("Ez", false), ("Exg", false)] {
            assert_eq!(NotifyFlags::parse(text).announce_sorted_sets(), enough);
        }
    }

    #[test]
    fn only_what_is_missing_is_added() {
        for (before, expired, all) in [
            ("", "Ex", "Exg"),
            ("Kg", "KgEx", "KgEx"),
            ("KA", "KAE", "KAE"),
            ("Eg", "Egx", "Egx"),
            ("Ex", "Ex", "Exg"),
        ] {
            let before = NotifyFlags::parse(before);
            assert_eq!(before.with(Events::Expired).to_string(), expired);
            assert_eq!(before.with(Events::ExpiredAndArmings).to_string(), all);
        }
    }

    proptest! {
        #[test]
        fn existing_flags_are_kept_and_none_is_added_twice(text in "[KEg$lshzxetdmnAo!]{0,14}") {
            for events in [Events::Expired, Events::ExpiredAndArmings] {
                let before = NotifyFlags::parse(&text);
                let after = before.with(events);
                prop_assert!(after.announce(events));
                prop_assert!(text.chars().all(|flag| after.has(flag)));
                prop_assert_eq!(before == after, before.announce(events));
                prop_assert_eq!(after.with(events), after);
            }
        }
    }
}

//! `notify-keyspace-events`: which events Redis announces, and where.

use std::fmt;

use super::{Commands, RedisError};
use crate::config::Config;

const SETTING: &str = "notify-keyspace-events";

/// Which events are wanted.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Events {
    /// That keys expire.
    Expired,
    /// Also that programs arm and disarm them.
    ExpiredAndArmings,
}

impl Events {
    /// What a daemon with this configuration listens to.
    pub fn wanted_by(config: &Config) -> Self {
        match config.hears_armings() {
            true => Self::ExpiredAndArmings,
            false => Self::Expired,
        }
    }

    /// The flags that announce them, as people write them.
    pub fn flags(self) -> &'static str {
        match self {
            Self::Expired => "Ex",
            Self::ExpiredAndArmings => "Exg",
        }
    }
}

/// The flags of `notify-keyspace-events`, as a server wrote them.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct NotifyFlags(String);

impl NotifyFlags {
    /// Takes the server's text as it is: flags that this version does not know are kept.
    pub fn parse(text: &str) -> Self {
        Self(text.to_owned())
    }

    /// Whether these events reach the keyevent channels: `E`, and the class of each, or `A`.
    pub fn announce(&self, events: Events) -> bool {
        let classes = match events {
            Events::Expired => "x",
            Events::ExpiredAndArmings => "xg",
        };
        self.has('E') && (self.has('A') || classes.chars().all(|class| self.has(class)))
    }

    /// With what is missing for that, and everything that was there: others rely on it.
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

/// What is known about the server's notifications.
#[derive(Debug, Clone)]
pub enum Notifications {
    /// What is wanted is announced.
    On,
    /// It is announced from now on; these are the flags now.
    Added(NotifyFlags),
    /// Expired events are announced, the others are not, and the server refuses to change it.
    ExpiredOnly {
        /// The flags that stand.
        flags: NotifyFlags,
        /// The refusal.
        refusal: RedisError,
    },
    /// Nothing is, and the server refuses to change it.
    Off {
        /// The flags that stand.
        flags: NotifyFlags,
        /// The refusal.
        refusal: RedisError,
    },
    /// The server does not say: `CONFIG` is forbidden or renamed.
    Unknown,
}

/// Sees to it that these events are announced, if the server lets us.
///
/// Two programs that add flags at the same moment may undo each other; the next look mends it.
///
/// # Errors
/// When the server does not answer. A refusal is a value.
pub async fn ensure_notifications(
    commands: &Commands,
    wanted: Events,
) -> Result<Notifications, RedisError> {
    let flags = match get(commands).await {
        Ok(Some(flags)) => flags,
        Ok(None) => return Ok(Notifications::Unknown),
        Err(error) if error.is_refusal() => return Ok(Notifications::Unknown),
        Err(error) => return Err(error),
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

async fn get(commands: &Commands) -> Result<Option<NotifyFlags>, RedisError> {
    let mut get = redis::pipe();
    get.cmd("CONFIG").arg("GET").arg(SETTING);
    // Some managed servers answer with nothing instead of refusing.
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
    fn events_of_armings_need_the_generic_class_too() {
        for (text, enough) in [("Exg", true), ("KEA", true), ("Ex", false), ("Eg", false)] {
            let flags = NotifyFlags::parse(text);
            assert_eq!(flags.announce(Events::ExpiredAndArmings), enough, "{text}");
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
        fn nobodys_flags_are_dropped_and_nothing_is_added_twice(text in "[KEg$lshzxetdmnAo!]{0,14}") {
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

//! Events: their classes, the flags that enable them, and how they go wrong.

use std::collections::BTreeSet;
use std::time::Duration;

use rand::RngExt;
use rand::rngs::StdRng;

/// Classes of events, each with the character of its flag.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Class {
    Generic = b'g' as isize,
    String = b'$' as isize,
    List = b'l' as isize,
    Set = b's' as isize,
    Hash = b'h' as isize,
    Sorted = b'z' as isize,
    Expired = b'x' as isize,
    Stream = b't' as isize,
    New = b'n' as isize,
}

/// The flags that `A` stands for, in the order of Redis.
const ALL: &str = "g$lshzxetd";
const OTHER: &str = "KEmn";

/// The flags of `notify-keyspace-events`.
#[derive(Debug, Clone, Default)]
pub(crate) struct Flags(BTreeSet<char>);

impl Flags {
    /// `None` if the text has another character.
    pub(crate) fn parse(text: &str) -> Option<Self> {
        let mut flags = BTreeSet::new();
        for flag in text.chars() {
            match flag {
                'A' => flags.extend(ALL.chars()),
                flag if ALL.contains(flag) || OTHER.contains(flag) => {
                    flags.insert(flag);
                }
                _ => return None,
            }
        }
        Some(Self(flags))
    }

    pub(crate) fn has(&self, flag: char) -> bool {
        self.0.contains(&flag)
    }
}

impl std::fmt::Display for Flags {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        if ALL.chars().all(|flag| self.has(flag)) {
            f.write_str("A")?;
        } else {
            let has = ALL.chars().chain(['n']).filter(|flag| self.has(*flag));
            f.write_str(&has.collect::<String>())?;
        }
        let has = ['K', 'E', 'm'].into_iter().filter(|flag| self.has(*flag));
        f.write_str(&has.collect::<String>())
    }
}

/// A message on its way to a subscriber.
#[derive(Debug)]
pub struct Delivery<'a> {
    /// The channel.
    pub channel: &'a [u8],
    /// The payload.
    pub message: &'a [u8],
    /// The name of the link to the subscriber.
    pub link: &'a str,
    /// True for an event of a key, false for a message of a client.
    pub is_event: bool,
}

/// What becomes of a message.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Fate {
    /// It arrives.
    Arrives,
    /// It is lost.
    Lost,
    /// It arrives twice.
    Twice,
    /// It arrives later, behind others.
    Late(Duration),
}

/// Decides what becomes of each message.
pub type Judge = Box<dyn FnMut(&Delivery<'_>) -> Fate + Send>;

/// How often key events go wrong, as parts of one.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct Odds {
    pub(crate) lost: f64,
    pub(crate) twice: f64,
    pub(crate) late: f64,
    pub(crate) late_max: Duration,
}

impl Odds {
    pub(crate) fn draw(&self, random: &mut StdRng) -> Fate {
        if self.lost > 0.0 && random.random_bool(self.lost) {
            Fate::Lost
        } else if self.twice > 0.0 && random.random_bool(self.twice) {
            Fate::Twice
        } else if self.late > 0.0 && random.random_bool(self.late) {
            Fate::Late(self.late_max.mul_f64(random.random()))
        } else {
            Fate::Arrives
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn flags_are_shown_in_the_order_of_redis() {
        for (given, shown) in [
            ("", ""),
            ("xE", "xE"),
            ("KEA", "AKE"),
            ("Exg", "gxE"),
            ("EKz", "zKE"),
        ] {
            assert_eq!(Flags::parse(given).unwrap().to_string(), shown);
        }
        assert!(Flags::parse("Eq").is_none());
    }
}

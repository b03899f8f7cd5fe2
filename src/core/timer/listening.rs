//! The seam for what programs do on a timer's server: keys and entries that they arm, and events that they cause.

use std::sync::Arc;

use async_trait::async_trait;

use super::{Alarm, TimerError};
use crate::task::{Countdown, Removal, TaskKey, UnixMs};

/// Adoption candidate: a key that another program armed or changed, and that may belong to a task.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct AdoptionCandidate {
    /// The key.
    pub key: TaskKey,
    /// The evidence.
    pub seen: Seen,
    /// The payload for the row: JSON of the program's entry. A key has none.
    pub payload: Option<Arc<str>>,
}

impl AdoptionCandidate {
    /// Creates a candidate without a payload.
    pub fn of_key(key: TaskKey, seen: Seen) -> Self {
        Self {
            key,
            seen,
            payload: None,
        }
    }
}

/// The evidence about a key.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Seen {
    /// Another program armed it.
    Armed(Countdown),
    /// It expired at about this time, and the lookup found no row.
    Expired(UnixMs),
    /// A program wrote an entry that stays until it is removed, unlike a key that expires.
    Requested {
        /// The due time, exact. Never a whole second: see [`row_due`](crate::task::row_due).
        due: UnixMs,
        /// When the entry was read, on the ledger's clock.
        heard: UnixMs,
    },
    /// A program deleted it or removed its expiry, on a server that is still the master.
    Disarmed(Removal),
}

/// A page of armed keys: see [`Listening::scan_foreign`].
#[derive(Debug, Clone, Default)]
pub struct ArmedPage {
    /// Keys that no lapsed process armed.
    pub foreign: Vec<AdoptionCandidate>,
    /// Entries of lapsed that are long overdue. The task of each may have ended without its entry being removed.
    pub overdue: Vec<Alarm>,
    /// Tasks that are due, and whose entries were taken: see [`Entries::take`](super::Entries::take). Each may have ended without the timer being
    /// told.
    pub taken: Vec<Alarm>,
    /// Cursor of the next page; `None` after the last.
    pub next: Option<u64>,
}

/// What a daemon receives beyond events of its own tasks.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Hearing {
    /// It receives all events, now and for some seconds more.
    pub all: bool,
    /// It receives the expiry of all keys, now and for some seconds more, but not their armings and deletions.
    pub expired_only: bool,
    /// It can forward events to other daemons.
    pub forwards: bool,
}

/// What a timer finds and hears on its server.
#[async_trait]
pub trait Listening: Send + Sync + 'static {
    /// True if events are received now.
    fn is_listening(&self) -> bool;

    /// Reads a page of keys that other programs armed and that `wants` accepts. Start with `None`. Entries that stay are proposed by the timer itself, and are not returned.
    async fn scan_foreign(
        &self,
        _cursor: Option<u64>,
        _wants: &(dyn for<'a> Fn(&'a TaskKey) -> bool + Send + Sync),
    ) -> Result<ArmedPage, TimerError> {
        Ok(ArmedPage::default())
    }

    /// Returns the countdown of each key, in order; `None` for a key that is not armed.
    ///
    /// # Errors
    /// If the server does not answer, if it may have lost data after `since`, or if this timer has no keys.
    async fn inspect(
        &self,
        _keys: &[TaskKey],
        _since: UnixMs,
    ) -> Result<Vec<Option<Countdown>>, TimerError> {
        Err(TimerError::new("this timer has no keys", "no key to inspect").lasting())
    }

    /// What this process receives beyond its own tasks.
    fn hearing(&self) -> Hearing {
        Hearing::default()
    }

    /// Acts on recent events that were left to other daemons: one of them was lost.
    fn replay_events(&self) {}
}

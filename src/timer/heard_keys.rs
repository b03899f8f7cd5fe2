//! Keys of which an event was heard, from then until it is known what it was about.

use std::collections::{HashMap, VecDeque};
use std::time::Duration;

use tokio::time::Instant;

use crate::task::TaskKey;

/// Most keys that wait to be looked at.
pub(super) const WAITING_MAX: usize = 131_072;

/// How long a key that was gone when it was looked at is remembered: its expired event is on the way.
const REMEMBERED_FOR: Duration = Duration::from_secs(2);

/// What an event said of a key.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Change {
    /// It was given an expiry.
    Armed,
    /// It was deleted, or lost its expiry.
    Disarmed,
}

/// Keys that wait to be looked at, are being looked at, or were gone by then.
#[derive(Debug, Default)]
pub(super) struct HeardKeys {
    pub(super) places: HashMap<TaskKey, Place>,
    pub(super) waiting: VecDeque<TaskKey>,
    /// Those that were gone, the oldest first.
    gone: VecDeque<(Instant, TaskKey)>,
}

/// Where a key stands between the event and what comes of it.
#[derive(Debug, Clone, Copy)]
pub(super) enum Place {
    /// Not looked at yet. The latest change is the one that counts.
    Waiting {
        change: Change,
        since: Instant,
        /// It has expired since.
        expired: bool,
    },
    /// Being looked at.
    Asked {
        since: Instant,
        expired: bool,
        again: Option<Change>,
    },
    /// It was armed, and gone when it was looked at.
    Gone { since: Instant, at: Instant },
}

impl HeardKeys {
    pub(super) fn take(&mut self, limit: usize) -> Vec<(TaskKey, Change)> {
        self.forget_gone();
        let mut batch = Vec::new();
        while batch.len() < limit
            && let Some(key) = self.waiting.pop_front()
        {
            // Whatever has expired since is no longer there.
            if let Some(place) = self.places.get_mut(&key)
                && let Place::Waiting {
                    change,
                    since,
                    expired,
                } = *place
            {
                *place = Place::Asked {
                    since,
                    expired,
                    again: None,
                };
                batch.push((key, change));
            }
        }
        batch
    }

    /// It was looked at; what was said of it meanwhile waits to be looked at.
    pub(super) fn answer(&mut self, key: &TaskKey) -> Option<Place> {
        let place = self.places.remove(key);
        if let Some(Place::Asked {
            again: Some(change),
            ..
        }) = place
        {
            let waiting = Place::Waiting {
                change,
                since: Instant::now(),
                expired: false,
            };
            self.places.insert(key.clone(), waiting);
            self.waiting.push_back(key.clone());
        }
        place
    }

    pub(super) fn remember_gone(&mut self, key: TaskKey, since: Instant) {
        if self.gone.len() < WAITING_MAX && !self.places.contains_key(&key) {
            let at = Instant::now();
            self.places.insert(key.clone(), Place::Gone { since, at });
            self.gone.push_back((at, key));
        }
    }

    fn forget_gone(&mut self) {
        while let Some((at, _)) = self.gone.front()
            && at.elapsed() >= REMEMBERED_FOR
        {
            let (remembered, key) = self.gone.pop_front().expect("just looked at");
            if let Some(Place::Gone { at, .. }) = self.places.get(&key)
                && *at == remembered
            {
                self.places.remove(&key);
            }
        }
    }
}

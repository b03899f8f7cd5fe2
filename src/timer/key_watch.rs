//! Key watch: keys that changed, from their event until they are inspected.

use std::collections::{HashMap, VecDeque};
use std::time::Duration;

use tokio::time::Instant;

use crate::task::TaskKey;

/// Most keys that wait for inspection.
const WAITING_MAX: usize = 262_144;

/// How long a key that was gone at its inspection is remembered: its expired event is on the way.
const REMEMBERED_FOR: Duration = Duration::from_secs(2);

/// The change that an event reports.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Change {
    /// It was given an expiry.
    Armed,
    /// It was deleted, or lost its expiry.
    Disarmed,
}

/// Keys that wait for inspection, are being inspected, or were gone by then.
#[derive(Debug, Default)]
pub(super) struct KeyWatch {
    places: HashMap<TaskKey, Place>,
    waiting: VecDeque<TaskKey>,
    /// Those that were gone, the oldest first.
    gone: VecDeque<(Instant, TaskKey)>,
}

/// What noting an event came to.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Noted {
    /// Its key waits, or is being looked at: the change is kept.
    Known,
    /// Its key waits from now on.
    New,
    /// There is no room for it.
    Full,
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
        /// It was disarmed before that, too.
        disarmed: Option<Instant>,
    },
    /// Being looked at.
    Asked {
        since: Instant,
        expired: bool,
        disarmed: Option<Instant>,
        again: Option<Again>,
    },
    /// It was armed, and gone when it was looked at.
    Gone { since: Instant, at: Instant },
}

/// What was said of a key that was last disarmed at one of these moments.
fn change_at(since: Instant, disarmed: Option<Instant>) -> Change {
    match disarmed {
        Some(disarmed) if disarmed == since => Change::Disarmed,
        _ => Change::Armed,
    }
}

/// What was said of a key while it was looked at.
#[derive(Debug, Clone, Copy)]
pub(super) struct Again {
    change: Change,
    since: Instant,
    disarmed: Option<Instant>,
}

impl Again {
    fn new(change: Change, since: Instant) -> Self {
        let disarmed = None;
        Self {
            change,
            since,
            disarmed,
        }
    }

    /// Takes in a change. The latest counts: what is judged again may be older than what was heard since.
    fn note(&mut self, change: Change, at: Instant) {
        if at >= self.since {
            if self.change == Change::Disarmed {
                self.disarmed = Some(self.since);
            }
            (self.change, self.since) = (change, at);
        } else if change == Change::Disarmed {
            self.disarmed = self.disarmed.max(Some(at));
        }
    }
}

impl KeyWatch {
    /// Takes in what an event said that was heard then.
    pub(super) fn note(&mut self, key: TaskKey, change: Change, at: Instant) -> Noted {
        match self.places.get_mut(&key) {
            Some(Place::Waiting {
                change: latest,
                since,
                expired,
                disarmed,
            }) => {
                let mut noted = Again {
                    change: *latest,
                    since: *since,
                    disarmed: *disarmed,
                };
                noted.note(change, at);
                *expired &= at < *since;
                (*latest, *since, *disarmed) = (noted.change, noted.since, noted.disarmed);
                return Noted::Known;
            }
            Some(Place::Asked { again, since, .. }) => {
                match again {
                    Some(again) => again.note(change, at),
                    None if at >= *since => *again = Some(Again::new(change, at)),
                    None => {}
                }
                return Noted::Known;
            }
            Some(Place::Gone { .. }) | None => {}
        }
        if self.waiting.len() >= WAITING_MAX {
            return Noted::Full;
        }
        self.wait(key, Again::new(change, at));
        Noted::New
    }

    /// A key has expired. If it was armed, and gone when it was looked at, answers since when it was known.
    pub(super) fn expired(&mut self, key: &TaskKey) -> Option<Instant> {
        match self.places.get_mut(key)? {
            // Whether it was armed again meanwhile, the look will tell.
            Place::Asked { expired, .. } | Place::Waiting { expired, .. } => {
                *expired = true;
                None
            }
            Place::Gone { since, .. } => {
                let since = *since;
                self.places.remove(key);
                Some(since)
            }
        }
    }

    /// What is being looked at waits again: nobody will answer. It was heard when it was heard.
    pub(super) fn ask_again(&mut self) {
        let asked = |(key, place): (&TaskKey, &Place)| match place {
            Place::Asked {
                since,
                disarmed,
                again,
                ..
            } => {
                let asked = Again {
                    disarmed: *disarmed,
                    ..Again::new(change_at(*since, *disarmed), *since)
                };
                let latest = again.map_or(asked, |again| Again {
                    disarmed: again.disarmed.max(*disarmed),
                    ..again
                });
                Some((key.clone(), latest))
            }
            Place::Waiting { .. } | Place::Gone { .. } => None,
        };
        let lost: Vec<(TaskKey, Again)> = self.places.iter().filter_map(asked).collect();
        for (key, said) in lost {
            self.wait(key, said);
        }
    }

    /// Whether any wait.
    pub(super) fn are_waiting(&self) -> bool {
        !self.waiting.is_empty()
    }

    fn wait(&mut self, key: TaskKey, said: Again) {
        let Again {
            change,
            since,
            disarmed,
        } = said;
        let place = Place::Waiting {
            change,
            since,
            expired: false,
            disarmed,
        };
        self.places.insert(key.clone(), place);
        self.waiting.push_back(key);
    }

    /// Takes at most `limit` that wait: they are being looked at.
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
                    disarmed,
                } = *place
            {
                *place = Place::Asked {
                    since,
                    expired,
                    disarmed: match change {
                        Change::Armed => disarmed,
                        Change::Disarmed => Some(since),
                    },
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
            again: Some(again), ..
        }) = place
        {
            self.wait(key.clone(), again);
        }
        place
    }

    /// It was armed since then, and gone when it was looked at.
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

#[cfg(test)]
mod tests {
    use super::*;

    fn key() -> TaskKey {
        TaskKey::build("C", "m", [""; 0]).unwrap()
    }

    #[test]
    fn the_latest_change_is_the_one_that_is_looked_at() {
        let mut heard = KeyWatch::default();
        assert_eq!(heard.note(key(), Change::Armed, Instant::now()), Noted::New);
        assert_eq!(
            heard.note(key(), Change::Disarmed, Instant::now()),
            Noted::Known
        );
        assert_eq!(heard.take(9), [(key(), Change::Disarmed)]);
        assert!(!heard.are_waiting());
    }

    #[test]
    fn what_is_said_during_a_look_is_looked_at_next() {
        let mut heard = KeyWatch::default();
        heard.note(key(), Change::Disarmed, Instant::now());
        heard.take(9);
        assert_eq!(
            heard.note(key(), Change::Armed, Instant::now()),
            Noted::Known
        );
        assert!(!heard.are_waiting());
        heard.answer(&key());
        assert_eq!(heard.take(9), [(key(), Change::Armed)]);
    }

    #[test]
    fn a_look_that_nobody_answers_is_made_again_about_what_was_heard_then() {
        let mut heard = KeyWatch::default();
        heard.note(key(), Change::Armed, Instant::now());
        heard.take(9);
        heard.ask_again();
        assert_eq!(heard.take(9), [(key(), Change::Armed)]);
    }

    #[test]
    fn that_a_key_was_deleted_stays_known_when_it_is_armed_again() {
        let deleted_at = Instant::now();
        let armed_at = deleted_at + Duration::from_millis(1);
        let later = deleted_at + Duration::from_millis(2);
        let disarmed = |heard: &mut KeyWatch| match heard.answer(&key()) {
            Some(Place::Asked { disarmed, .. }) => disarmed,
            _ => None,
        };
        for reversed in [false, true] {
            let mut said = [(Change::Disarmed, deleted_at), (Change::Armed, armed_at)];
            if reversed {
                said.reverse();
            }
            // Before the look.
            let mut heard = KeyWatch::default();
            for (change, at) in said {
                heard.note(key(), change, at);
            }
            assert_eq!(heard.take(9), [(key(), Change::Armed)]);
            assert_eq!(disarmed(&mut heard), Some(deleted_at));
            // During a look, and then nobody answers.
            heard.note(key(), Change::Armed, deleted_at);
            heard.take(9);
            for (change, at) in said {
                heard.note(key(), change, at);
            }
            heard.ask_again();
            assert_eq!(heard.take(9), [(key(), Change::Armed)]);
            assert_eq!(disarmed(&mut heard), Some(deleted_at));
        }
        let mut heard = KeyWatch::default();
        heard.note(key(), Change::Disarmed, later);
        heard.take(9);
        heard.ask_again();
        assert_eq!(heard.take(9), [(key(), Change::Disarmed)]);
    }

    #[tokio::test(start_paused = true)]
    async fn only_a_key_that_was_gone_a_moment_ago_is_known_when_it_expires() {
        let mut heard = KeyWatch::default();
        let since = Instant::now();
        heard.remember_gone(key(), since);
        assert_eq!(heard.expired(&key()), Some(since));
        assert_eq!(heard.expired(&key()), None);
        heard.remember_gone(key(), since);
        tokio::time::advance(REMEMBERED_FOR).await;
        heard.take(9);
        assert_eq!(heard.expired(&key()), None);
    }

    #[test]
    fn there_is_room_for_so_many() {
        let mut heard = KeyWatch::default();
        let key = |n: usize| TaskKey::build("C", "m", [n.to_string()]).unwrap();
        for n in 0..WAITING_MAX {
            heard.note(key(n), Change::Armed, Instant::now());
        }
        assert_eq!(
            heard.note(key(WAITING_MAX), Change::Armed, Instant::now()),
            Noted::Full
        );
        assert_eq!(
            heard.note(key(0), Change::Armed, Instant::now()),
            Noted::Known
        );
    }
}

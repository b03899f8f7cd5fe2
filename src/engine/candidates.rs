//! Adoption candidates: observed keys that wait to be compared with the ledger, bounded and coalesced by key.

use std::collections::{BTreeMap, HashMap};
use std::sync::{Arc, Mutex, MutexGuard};
use std::time::Duration;

use tokio::sync::Notify;
use tokio::time::{Instant, sleep_until};

use crate::clock::LedgerClock;
use crate::membership::HigherRankedListener;
use crate::task::{TaskKey, UnixMs};
use crate::timer::{AdoptionCandidate, Seen};

/// Maximum number of waiting keys.
const WAITING_MAX: usize = 262_144;

/// Time allowed for the program that armed a key to write the row itself, in a transaction that may commit after the
/// key is armed. At most half of the key's delay, so that the other half is left for the adoption.
const GRACE: Duration = Duration::from_millis(500);

/// Maximum number of deletions taken at once. Each is written by itself, and what is armed meanwhile waits for them.
const DELETIONS_MAX: usize = 256;

/// Delay after which the second daemon that hears of a key acts, unless the first is known to be gone before.
const SECOND_DELAY: Duration = Duration::from_secs(1);

/// An adoption candidate that is due.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Ready {
    pub candidate: AdoptionCandidate,
    /// The daemon that acts first, as long as it is alive.
    pub higher_ranked: Option<HigherRankedListener>,
    /// When this daemon acts in any case.
    latest: Instant,
}

/// Adoption candidates: keys that wait until the programs that armed them have had time to write the rows.
#[derive(Debug)]
pub struct Candidates {
    clock: LedgerClock,
    entries: Mutex<Entries>,
    arrived: Notify,
}

#[derive(Debug, Default)]
struct Entries {
    /// Armed keys. They are taken first: each may fall due soon.
    armed: BTreeMap<(Instant, u64), TaskKey>,
    /// Deleted keys.
    deleted: BTreeMap<(Instant, u64), TaskKey>,
    by_key: HashMap<TaskKey, Entry>,
    added: u64,
}

#[derive(Debug, Clone)]
struct Entry {
    ready: Instant,
    number: u64,
    seen: Seen,
    payload: Option<Arc<str>>,
    higher_ranked: Option<HigherRankedListener>,
    latest: Instant,
}

impl Candidates {
    pub fn new(clock: LedgerClock) -> Self {
        Self {
            clock,
            entries: Mutex::default(),
            arrived: Notify::new(),
        }
    }

    /// Adds a candidate, or replaces the earlier one of the same key. It is due `wait` later than usual. Returns false
    /// if there is no room.
    pub fn add(&self, candidate: AdoptionCandidate, wait: Duration) -> bool {
        let ready = Instant::now() + self.grace(candidate.seen) + wait;
        self.insert(candidate, ready, None, ready)
    }

    /// Adds a candidate that another daemon may act on first, or replaces the earlier one of the same key. Returns
    /// false if there is no room.
    pub fn add_behind(
        &self,
        candidate: AdoptionCandidate,
        higher_ranked: Option<HigherRankedListener>,
    ) -> bool {
        let ready = Instant::now() + self.grace(candidate.seen);
        self.insert(candidate, ready, higher_ranked, ready + SECOND_DELAY)
    }

    /// True if this number of keys still fits.
    pub fn has_room(&self, keys: usize) -> bool {
        self.entries().by_key.len() + keys <= WAITING_MAX
    }

    fn grace(&self, seen: Seen) -> Duration {
        match seen {
            Seen::Armed(key) => GRACE.min(key.due.since(self.clock.now()) / 2),
            Seen::Requested { due, .. } => GRACE.min(due.since(self.clock.now()) / 2),
            Seen::Expired(_) | Seen::Disarmed(_) => Duration::ZERO,
        }
    }

    fn insert(
        &self,
        candidate: AdoptionCandidate,
        ready: Instant,
        higher_ranked: Option<HigherRankedListener>,
        latest: Instant,
    ) -> bool {
        let fits = self.entries().add(candidate, ready, higher_ranked, latest);
        self.arrived.notify_one();
        fits
    }

    /// Returns candidates that could not be handled. They are due again after `pause`; a newer candidate of the same
    /// key takes precedence.
    pub fn put_back(&self, candidates: Vec<AdoptionCandidate>, pause: Duration) {
        let again = Instant::now() + pause;
        let mut entries = self.entries();
        for candidate in candidates {
            entries.add_if_missing(candidate, again, None, again);
        }
        drop(entries);
        self.arrived.notify_one();
    }

    /// Leaves candidates to the daemons that act first. They are due again after `pause`, or when this daemon acts in
    /// any case, if that is earlier.
    pub fn leave_to_higher_ranked(&self, candidates: Vec<Ready>, pause: Duration) {
        let again = Instant::now() + pause;
        let mut entries = self.entries();
        for left in candidates {
            let Ready {
                candidate,
                higher_ranked,
                latest,
            } = left;
            entries.add_if_missing(candidate, again.min(latest), higher_ranked, latest);
        }
        drop(entries);
        self.arrived.notify_one();
    }

    /// Removes the candidate of a key, and returns its observation and payload.
    pub fn take(&self, key: &TaskKey) -> Option<(Seen, Option<Arc<str>>)> {
        let entry = self.entries().remove(key)?;
        Some((entry.seen, entry.payload))
    }

    /// Makes the candidate of an expired key ready now, if a program armed that key. Returns false if there is none.
    pub fn expedite(&self, key: &TaskKey) -> bool {
        let is_armed = self.entries().expedite(key, self.clock.now());
        self.arrived.notify_one();
        is_armed
    }

    /// Takes all candidates, due or not.
    pub fn take_all(&self) -> Vec<AdoptionCandidate> {
        let entries = std::mem::take(&mut *self.entries());
        let candidate = |(key, entry): (TaskKey, Entry)| AdoptionCandidate {
            key,
            seen: entry.seen,
            payload: entry.payload,
        };
        entries.by_key.into_iter().map(candidate).collect()
    }

    /// Waits until some candidates are due, and takes at most `limit` of them.
    ///
    /// # Cancel safety
    /// Cancel safe: candidates are removed only when they are returned.
    pub async fn ready(&self, limit: usize) -> Vec<Ready> {
        loop {
            let arrived = self.arrived.notified();
            let wake = match self.entries().ready(limit) {
                Ok(ready) => return ready,
                Err(wake) => wake,
            };
            let wait = async {
                match wake {
                    Some(wake) => sleep_until(wake).await,
                    None => std::future::pending().await,
                }
            };
            tokio::select! {
                () = arrived => {}
                () = wait => {}
            }
        }
    }

    fn entries(&self) -> MutexGuard<'_, Entries> {
        self.entries
            .lock()
            .expect("nothing panics while holding the candidates")
    }
}

impl Ready {
    /// True if this daemon acts now, whichever other daemons are alive.
    pub fn may_act(&self) -> bool {
        self.higher_ranked.is_none() || Instant::now() >= self.latest
    }
}

impl Entries {
    fn add(
        &mut self,
        candidate: AdoptionCandidate,
        ready: Instant,
        higher_ranked: Option<HigherRankedListener>,
        latest: Instant,
    ) -> bool {
        let AdoptionCandidate { key, seen, payload } = candidate;
        let before = self.remove(&key);
        if self.by_key.len() >= WAITING_MAX {
            return false;
        }
        // Arming a key repeatedly does not postpone the adoption.
        let ready = before
            .as_ref()
            .map_or(ready, |before| ready.min(before.ready));
        let latest = before
            .as_ref()
            .map_or(latest, |before| latest.min(before.latest));
        self.added += 1;
        let number = self.added;
        self.by_time(seen).insert((ready, number), key.clone());
        let entry = Entry {
            ready,
            number,
            seen,
            payload,
            higher_ranked,
            latest,
        };
        self.by_key.insert(key, entry);
        true
    }

    fn add_if_missing(
        &mut self,
        candidate: AdoptionCandidate,
        ready: Instant,
        higher_ranked: Option<HigherRankedListener>,
        latest: Instant,
    ) {
        if !self.by_key.contains_key(&candidate.key) {
            self.add(candidate, ready, higher_ranked, latest);
        }
    }

    fn expedite(&mut self, key: &TaskKey, now: UnixMs) -> bool {
        let Some(entry) = self.by_key.get_mut(key) else {
            return false;
        };
        let Seen::Armed(armed) = entry.seen else {
            return false;
        };
        if armed.meant.is_none() && armed.may_have_expired(now) {
            self.armed.remove(&(entry.ready, entry.number));
            entry.ready = entry.ready.min(Instant::now());
            (entry.higher_ranked, entry.latest) = (None, entry.ready);
            self.armed.insert((entry.ready, entry.number), key.clone());
        }
        armed.meant.is_none()
    }

    fn remove(&mut self, key: &TaskKey) -> Option<Entry> {
        let entry = self.by_key.remove(key)?;
        self.by_time(entry.seen)
            .remove(&(entry.ready, entry.number));
        Some(entry)
    }

    fn by_time(&mut self, seen: Seen) -> &mut BTreeMap<(Instant, u64), TaskKey> {
        match seen {
            Seen::Armed(_) | Seen::Expired(_) | Seen::Requested { .. } => &mut self.armed,
            Seen::Disarmed(_) => &mut self.deleted,
        }
    }

    /// Returns the candidates that are due, or the time when the next one is. Deletions come behind the others, and are
    /// at most [`DELETIONS_MAX`].
    fn ready(&mut self, limit: usize) -> Result<Vec<Ready>, Option<Instant>> {
        let now = Instant::now();
        let mut ready = Vec::new();
        for (by_time, most) in [(&mut self.armed, limit), (&mut self.deleted, DELETIONS_MAX)] {
            let room = limit.saturating_sub(ready.len());
            for _ in 0..room.min(most) {
                let Some(first) = by_time.first_entry().filter(|first| first.key().0 <= now) else {
                    break;
                };
                let key = first.remove();
                let Some(entry) = self.by_key.remove(&key) else {
                    continue;
                };
                let Entry {
                    seen,
                    payload,
                    higher_ranked,
                    latest,
                    ready: _,
                    number: _,
                } = entry;
                ready.push(Ready {
                    candidate: AdoptionCandidate { key, seen, payload },
                    higher_ranked,
                    latest,
                });
            }
        }
        if ready.is_empty() {
            let next = [&self.armed, &self.deleted];
            let next = next.into_iter().filter_map(BTreeMap::first_key_value);
            return Err(next.map(|((at, _), _)| *at).min());
        }
        Ok(ready)
    }
}

#[cfg(test)]
mod tests;

//! Keys that were seen, and wait to be compared with the ledger: bounded, and coalesced by key.

use std::collections::{BTreeMap, HashMap};
use std::sync::{Mutex, MutexGuard};
use std::time::Duration;

use tokio::sync::Notify;
use tokio::time::{Instant, sleep_until};

use crate::clock::LedgerClock;
use crate::task::TaskKey;
use crate::timer::{Seen, Sighting};

/// Most keys that wait.
const WAITING_MAX: usize = 262_144;

/// How long the program that armed a key has to write its row itself, in a transaction that it may commit after
/// that. Of a shorter delay, half is left for adopting.
const GRACE: Duration = Duration::from_millis(500);

/// Keys that wait until whoever armed them has had time to write their row.
#[derive(Debug)]
pub(super) struct Sightings {
    clock: LedgerClock,
    waiting: Mutex<Waiting>,
    arrived: Notify,
}

#[derive(Debug, Default)]
struct Waiting {
    by_time: BTreeMap<(Instant, u64), TaskKey>,
    by_key: HashMap<TaskKey, (Instant, u64, Seen)>,
    added: u64,
}

impl Sightings {
    pub(super) fn new(clock: LedgerClock) -> Self {
        Self {
            clock,
            waiting: Mutex::default(),
            arrived: Notify::new(),
        }
    }

    /// Takes a sighting in, in place of an earlier one of the same key; its time comes `wait` later than that of our own.
    /// Tells whether there was room.
    pub(super) fn add(&self, sighting: Sighting, wait: Duration) -> bool {
        let grace = match sighting.seen {
            Seen::Armed(key) => GRACE.min(key.due.since(self.clock.now()) / 2),
            Seen::Expired(_) | Seen::Disarmed(_) => Duration::ZERO,
        };
        let fits = self.waiting().add(sighting, Instant::now() + grace + wait);
        self.arrived.notify_one();
        fits
    }

    /// These could not be handled: they come again after `pause`, unless something newer was seen of them.
    pub(super) fn put_back(&self, sightings: Vec<Sighting>, pause: Duration) {
        let mut waiting = self.waiting();
        for sighting in sightings {
            if !waiting.by_key.contains_key(&sighting.key) {
                waiting.add(sighting, Instant::now() + pause);
            }
        }
        drop(waiting);
        self.arrived.notify_one();
    }

    /// Takes out what is known of a key, if it waits.
    pub(super) fn take(&self, key: &TaskKey) -> Option<Seen> {
        self.waiting().remove(key)
    }

    /// Takes out everything, ready or not.
    pub(super) fn take_all(&self) -> Vec<Sighting> {
        let waiting = std::mem::take(&mut *self.waiting());
        let sighting = |(key, (_, _, seen))| Sighting { key, seen };
        waiting.by_key.into_iter().map(sighting).collect()
    }

    /// Waits until the time of some has come, and takes out at most `limit` of them.
    ///
    /// # Cancel safety
    /// Cancel safe: nothing is taken out before it is returned.
    pub(super) async fn ready(&self, limit: usize) -> Vec<Sighting> {
        loop {
            let arrived = self.arrived.notified();
            let wake = match self.waiting().ready(limit) {
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

    fn waiting(&self) -> MutexGuard<'_, Waiting> {
        self.waiting
            .lock()
            .expect("nothing panics while holding the sightings")
    }
}

impl Waiting {
    fn add(&mut self, sighting: Sighting, ready: Instant) -> bool {
        let Sighting { key, seen } = sighting;
        let before = self.remove_with_time(&key);
        if self.by_key.len() >= WAITING_MAX {
            return false;
        }
        // However often a key is armed again, its row is written in time.
        let ready = before.map_or(ready, |(before, _)| ready.min(before));
        self.added += 1;
        self.by_time.insert((ready, self.added), key.clone());
        self.by_key.insert(key, (ready, self.added, seen));
        true
    }

    fn remove(&mut self, key: &TaskKey) -> Option<Seen> {
        self.remove_with_time(key).map(|(_, seen)| seen)
    }

    fn remove_with_time(&mut self, key: &TaskKey) -> Option<(Instant, Seen)> {
        let (ready, number, seen) = self.by_key.remove(key)?;
        self.by_time.remove(&(ready, number));
        Some((ready, seen))
    }

    /// What is ready, or when something will be.
    fn ready(&mut self, limit: usize) -> Result<Vec<Sighting>, Option<Instant>> {
        let now = Instant::now();
        let mut ready = Vec::new();
        while ready.len() < limit
            && let Some(first) = self.by_time.first_entry()
            && first.key().0 <= now
        {
            let key = first.remove();
            if let Some((_, _, seen)) = self.by_key.remove(&key) {
                ready.push(Sighting { key, seen });
            }
        }
        if ready.is_empty() {
            return Err(self.by_time.first_key_value().map(|((at, _), _)| *at));
        }
        Ok(ready)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::task::{Countdown, UnixMs};

    fn sightings() -> Sightings {
        Sightings::new(LedgerClock::starting_at(UnixMs(0)))
    }

    fn armed(name: &str, due_ms: i64) -> Sighting {
        Sighting {
            key: TaskKey::build("C", "m", [name]).unwrap(),
            seen: Seen::Armed(Countdown {
                due: UnixMs(due_ms),
                slack: Duration::ZERO,
                alive_at: None,
                heard: Some(UnixMs(0)),
                meant: None,
            }),
        }
    }

    #[tokio::test(start_paused = true)]
    async fn a_key_waits_for_its_program_but_no_longer_than_half_its_delay() {
        let sightings = sightings();
        assert!(sightings.add(armed("far", 60_000), Duration::ZERO));
        assert!(sightings.add(armed("near", 300), Duration::ZERO));
        let started = Instant::now();
        assert_eq!(sightings.ready(9).await, [armed("near", 300)]);
        assert_eq!(started.elapsed(), Duration::from_millis(150));
        assert_eq!(sightings.ready(9).await, [armed("far", 60_000)]);
        assert_eq!(started.elapsed(), GRACE);
    }

    #[tokio::test(start_paused = true)]
    async fn the_latest_sighting_counts_and_does_not_start_the_wait_anew() {
        let sightings = sightings();
        let started = Instant::now();
        for due_ms in [60_000, 61_000] {
            sightings.add(armed("a", due_ms), Duration::ZERO);
            tokio::time::sleep(GRACE / 4).await;
        }
        assert_eq!(sightings.ready(9).await, [armed("a", 61_000)]);
        assert_eq!(started.elapsed(), GRACE);
    }

    #[tokio::test(start_paused = true)]
    async fn what_is_put_back_gives_way_to_what_was_seen_since() {
        let sightings = sightings();
        sightings.add(armed("a", 60_000), Duration::ZERO);
        sightings.put_back(vec![armed("a", 1), armed("b", 2)], Duration::from_secs(1));
        assert_eq!(sightings.ready(9).await, [armed("a", 60_000)]);
        assert_eq!(sightings.ready(9).await, [armed("b", 2)]);
    }

    #[tokio::test(start_paused = true)]
    async fn no_more_wait_than_fit() {
        let sightings = sightings();
        for n in 0..WAITING_MAX {
            assert!(sightings.add(armed(&n.to_string(), 60_000), Duration::ZERO));
        }
        assert!(!sightings.add(armed("one too many", 60_000), Duration::ZERO));
        assert!(
            sightings.add(armed("0", 70_000), Duration::ZERO),
            "a known key has its place"
        );
        tokio::time::sleep(GRACE).await;
        assert_eq!(sightings.ready(10).await.len(), 10);
    }
}

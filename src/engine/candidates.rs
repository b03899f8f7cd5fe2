//! Keys that were seen, and wait to be compared with the ledger: bounded, and coalesced by key.

use std::collections::{BTreeMap, HashMap};
use std::sync::{Mutex, MutexGuard};
use std::time::Duration;

use tokio::sync::Notify;
use tokio::time::{Instant, sleep_until};

use crate::clock::LedgerClock;
use crate::membership::Elder;
use crate::task::TaskKey;
use crate::timer::{Seen, Sighting};

/// Most keys that wait.
const WAITING_MAX: usize = 262_144;

/// How long the program that armed a key has to write its row itself, in a transaction that it may commit after
/// that. Of a shorter delay, half is left for adopting.
const GRACE: Duration = Duration::from_millis(500);

/// The second daemon that hears of a key acts so much later than the first, unless that one is seen to be gone.
const NEXT_IN_LINE_WAITS: Duration = Duration::from_secs(1);

/// A sighting whose time has come.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Ready {
    pub(crate) sighting: Sighting,
    /// The daemon that acts on it first, as long as it is there.
    pub(crate) elder: Option<Elder>,
    /// When this one acts in any case.
    latest: Instant,
}

/// Keys that wait until whoever armed them has had time to write their row.
#[derive(Debug)]
pub(crate) struct Candidates {
    clock: LedgerClock,
    waiting: Mutex<Waiting>,
    arrived: Notify,
}

#[derive(Debug, Default)]
struct Waiting {
    by_time: BTreeMap<(Instant, u64), TaskKey>,
    by_key: HashMap<TaskKey, Place>,
    added: u64,
}

#[derive(Debug, Clone, Copy)]
struct Place {
    ready: Instant,
    number: u64,
    seen: Seen,
    elder: Option<Elder>,
    latest: Instant,
}

impl Candidates {
    pub(crate) fn new(clock: LedgerClock) -> Self {
        Self {
            clock,
            waiting: Mutex::default(),
            arrived: Notify::new(),
        }
    }

    /// Takes a sighting in, in place of an earlier one of the same key; its time comes `wait` later than that of others.
    /// Tells whether there was room.
    pub(crate) fn add(&self, sighting: Sighting, wait: Duration) -> bool {
        let ready = Instant::now() + self.grace(sighting.seen) + wait;
        self.put(sighting, ready, None, ready)
    }

    /// Takes a sighting in, in place of an earlier one of the same key, that another daemon may act on first. Tells whether
    /// there was room.
    pub(crate) fn add_behind(&self, sighting: Sighting, elder: Option<Elder>) -> bool {
        let ready = Instant::now() + self.grace(sighting.seen);
        self.put(sighting, ready, elder, ready + NEXT_IN_LINE_WAITS)
    }

    fn grace(&self, seen: Seen) -> Duration {
        match seen {
            Seen::Armed(key) => GRACE.min(key.due.since(self.clock.now()) / 2),
            Seen::Expired(_) | Seen::Disarmed(_) => Duration::ZERO,
        }
    }

    fn put(
        &self,
        sighting: Sighting,
        ready: Instant,
        elder: Option<Elder>,
        latest: Instant,
    ) -> bool {
        let fits = self.waiting().add(sighting, ready, elder, latest);
        self.arrived.notify_one();
        fits
    }

    /// These could not be handled: they come again after `pause`, unless something newer was seen of them.
    pub(crate) fn put_back(&self, sightings: Vec<Sighting>, pause: Duration) {
        let again = Instant::now() + pause;
        let mut waiting = self.waiting();
        for sighting in sightings {
            waiting.add_if_missing(sighting, again, None, again);
        }
        drop(waiting);
        self.arrived.notify_one();
    }

    /// Those who act on these first are there: they come again after `pause`, or when this daemon acts in any case.
    pub(crate) fn leave_to_elders(&self, sightings: Vec<Ready>, pause: Duration) {
        let again = Instant::now() + pause;
        let mut waiting = self.waiting();
        for left in sightings {
            let Ready {
                sighting,
                elder,
                latest,
            } = left;
            waiting.add_if_missing(sighting, again.min(latest), elder, latest);
        }
        drop(waiting);
        self.arrived.notify_one();
    }

    /// Takes out what is known of a key, if it waits.
    pub(crate) fn take(&self, key: &TaskKey) -> Option<Seen> {
        self.waiting().remove(key).map(|place| place.seen)
    }

    /// A key of ours has taken the place of what was armed before. That a program deleted its own is still to be handled.
    pub(crate) fn forget_arming(&self, key: &TaskKey) {
        let mut waiting = self.waiting();
        let is_deletion = |place: &Place| matches!(place.seen, Seen::Disarmed(_));
        if !waiting.by_key.get(key).is_some_and(is_deletion) {
            waiting.remove(key);
        }
    }

    /// Takes out everything, ready or not.
    pub(crate) fn take_all(&self) -> Vec<Sighting> {
        let waiting = std::mem::take(&mut *self.waiting());
        let sighting = |(key, place): (TaskKey, Place)| Sighting {
            key,
            seen: place.seen,
        };
        waiting.by_key.into_iter().map(sighting).collect()
    }

    /// Waits until the time of some has come, and takes out at most `limit` of them.
    ///
    /// # Cancel safety
    /// Cancel safe: nothing is taken out before it is returned.
    pub(crate) async fn ready(&self, limit: usize) -> Vec<Ready> {
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

impl Ready {
    /// Whether this daemon acts now, whoever is there.
    pub(crate) fn waits_no_longer(&self) -> bool {
        self.elder.is_none() || Instant::now() >= self.latest
    }
}

impl Waiting {
    fn add(
        &mut self,
        sighting: Sighting,
        ready: Instant,
        elder: Option<Elder>,
        latest: Instant,
    ) -> bool {
        let Sighting { key, seen } = sighting;
        let before = self.remove(&key);
        if self.by_key.len() >= WAITING_MAX {
            return false;
        }
        // However often a key is armed again, its row is written in time.
        let ready = before.map_or(ready, |before| ready.min(before.ready));
        let latest = before.map_or(latest, |before| latest.min(before.latest));
        self.added += 1;
        let number = self.added;
        self.by_time.insert((ready, number), key.clone());
        let place = Place {
            ready,
            number,
            seen,
            elder,
            latest,
        };
        self.by_key.insert(key, place);
        true
    }

    fn add_if_missing(
        &mut self,
        sighting: Sighting,
        ready: Instant,
        elder: Option<Elder>,
        latest: Instant,
    ) {
        if !self.by_key.contains_key(&sighting.key) {
            self.add(sighting, ready, elder, latest);
        }
    }

    fn remove(&mut self, key: &TaskKey) -> Option<Place> {
        let place = self.by_key.remove(key)?;
        self.by_time.remove(&(place.ready, place.number));
        Some(place)
    }

    /// What is ready, or when something will be.
    fn ready(&mut self, limit: usize) -> Result<Vec<Ready>, Option<Instant>> {
        let now = Instant::now();
        let mut ready = Vec::new();
        while ready.len() < limit
            && let Some(first) = self.by_time.first_entry()
            && first.key().0 <= now
        {
            let key = first.remove();
            if let Some(place) = self.by_key.remove(&key) {
                let Place {
                    seen,
                    elder,
                    latest,
                    ..
                } = place;
                ready.push(Ready {
                    sighting: Sighting { key, seen },
                    elder,
                    latest,
                });
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
    use crate::membership::MemberId;
    use crate::task::{Countdown, UnixMs};

    fn sightings() -> Candidates {
        Candidates::new(LedgerClock::starting_at(UnixMs(0)))
    }

    fn armed(name: &str, due_ms: i64) -> Sighting {
        Sighting {
            key: TaskKey::build("C", "m", [name]).unwrap(),
            seen: Seen::Armed(Countdown {
                due: UnixMs(due_ms),
                slack: Duration::ZERO,
                alive_at: None,
                heard: Some(UnixMs(0)),
                kept_since: None,
                meant: None,
            }),
        }
    }

    async fn ready(sightings: &Candidates) -> Vec<Sighting> {
        let ready = sightings.ready(9).await.into_iter();
        ready.map(|ready| ready.sighting).collect()
    }

    #[tokio::test(start_paused = true)]
    async fn a_key_waits_for_its_program_but_no_longer_than_half_its_delay() {
        let sightings = sightings();
        assert!(sightings.add(armed("far", 60_000), Duration::ZERO));
        assert!(sightings.add(armed("near", 300), Duration::ZERO));
        let started = Instant::now();
        assert_eq!(ready(&sightings).await, [armed("near", 300)]);
        assert_eq!(started.elapsed(), Duration::from_millis(150));
        assert_eq!(ready(&sightings).await, [armed("far", 60_000)]);
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
        assert_eq!(ready(&sightings).await, [armed("a", 61_000)]);
        assert_eq!(started.elapsed(), GRACE);
    }

    #[tokio::test(start_paused = true)]
    async fn what_is_put_back_gives_way_to_what_was_seen_since() {
        let sightings = sightings();
        sightings.add(armed("a", 60_000), Duration::ZERO);
        sightings.put_back(vec![armed("a", 1), armed("b", 2)], Duration::from_secs(1));
        assert_eq!(ready(&sightings).await, [armed("a", 60_000)]);
        assert_eq!(ready(&sightings).await, [armed("b", 2)]);
    }

    #[tokio::test(start_paused = true)]
    async fn what_an_elder_handles_comes_again_until_this_daemon_acts_in_any_case() {
        let sightings = sightings();
        let elder = Some(Elder {
            id: MemberId(7),
            can_be_asked: true,
        });
        let started = Instant::now();
        assert!(sightings.add_behind(armed("a", 60_000), elder));
        let mut times = Vec::new();
        loop {
            let ready = sightings.ready(9).await;
            assert_eq!(ready[0].elder, elder);
            times.push(started.elapsed());
            if ready[0].waits_no_longer() {
                break;
            }
            sightings.leave_to_elders(ready, Duration::from_millis(400));
        }
        let after_ms = |ms| GRACE + Duration::from_millis(ms);
        assert_eq!(times, [0, 400, 800, 1_000].map(after_ms));
    }

    #[tokio::test(start_paused = true)]
    async fn a_key_of_ours_makes_older_armings_out_of_date_but_no_deletion() {
        let sightings = sightings();
        let deleted = Sighting {
            seen: Seen::Disarmed(UnixMs(1)),
            ..armed("a", 1)
        };
        for sighting in [deleted.clone(), armed("b", 60_000)] {
            assert!(sightings.add(sighting.clone(), Duration::ZERO));
            sightings.forget_arming(&sighting.key);
        }
        assert_eq!(sightings.take_all(), [deleted]);
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

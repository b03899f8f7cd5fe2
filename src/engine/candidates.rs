//! Adoption candidates: observed keys that wait to be compared with the ledger, bounded and coalesced by key.

use std::collections::{BTreeMap, HashMap};
use std::sync::{Mutex, MutexGuard};
use std::time::Duration;

use tokio::sync::Notify;
use tokio::time::{Instant, sleep_until};

use crate::clock::LedgerClock;
use crate::membership::Elder;
use crate::task::TaskKey;
use crate::timer::{Seen, Sighting};

/// Maximum number of waiting keys.
const WAITING_MAX: usize = 262_144;

/// Time allowed for the program that armed a key to write the row itself, in a transaction that may commit after the
/// key is armed. At most half of the key's delay, so that the other half is left for the adoption.
const GRACE: Duration = Duration::from_millis(500);

/// Delay after which the second daemon that hears of a key acts, unless the first is known to be gone before.
const NEXT_IN_LINE_WAITS: Duration = Duration::from_secs(1);

/// An adoption candidate that is due.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Ready {
    pub(crate) sighting: Sighting,
    /// The daemon that acts first, as long as it is alive.
    pub(crate) elder: Option<Elder>,
    /// When this daemon acts in any case.
    latest: Instant,
}

/// Adoption candidates: keys that wait until the programs that armed them have had time to write the rows.
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

    /// Adds a candidate, or replaces the earlier one of the same key. It is due `wait` later than usual. Returns false
    /// if there is no room.
    pub(crate) fn add(&self, sighting: Sighting, wait: Duration) -> bool {
        let ready = Instant::now() + self.grace(sighting.seen) + wait;
        self.put(sighting, ready, None, ready)
    }

    /// Adds a candidate that another daemon may act on first, or replaces the earlier one of the same key. Returns
    /// false if there is no room.
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

    /// Returns candidates that could not be handled. They are due again after `pause`; a newer candidate of the same
    /// key takes precedence.
    pub(crate) fn put_back(&self, sightings: Vec<Sighting>, pause: Duration) {
        let again = Instant::now() + pause;
        let mut waiting = self.waiting();
        for sighting in sightings {
            waiting.add_if_missing(sighting, again, None, again);
        }
        drop(waiting);
        self.arrived.notify_one();
    }

    /// Leaves candidates to the daemons that act first. They are due again after `pause`, or when this daemon acts in
    /// any case, if that is earlier.
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

    /// Removes the candidate of a key, and returns its observation.
    pub(crate) fn take(&self, key: &TaskKey) -> Option<Seen> {
        self.waiting().remove(key).map(|place| place.seen)
    }

    /// Forgets the candidate of a key that this system has armed itself since. A deletion by a program is still
    /// handled.
    pub(crate) fn forget_arming(&self, key: &TaskKey) {
        let mut waiting = self.waiting();
        let is_deletion = |place: &Place| matches!(place.seen, Seen::Disarmed(_));
        if !waiting.by_key.get(key).is_some_and(is_deletion) {
            waiting.remove(key);
        }
    }

    /// Takes all candidates, due or not.
    pub(crate) fn take_all(&self) -> Vec<Sighting> {
        let waiting = std::mem::take(&mut *self.waiting());
        let sighting = |(key, place): (TaskKey, Place)| Sighting {
            key,
            seen: place.seen,
        };
        waiting.by_key.into_iter().map(sighting).collect()
    }

    /// Waits until some candidates are due, and takes at most `limit` of them.
    ///
    /// # Cancel safety
    /// Cancel safe: candidates are removed only when they are returned.
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
            .expect("nothing panics while holding the candidates")
    }
}

impl Ready {
    /// True if this daemon acts now, whichever other daemons are alive.
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
        // Arming a key repeatedly does not postpone the adoption.
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

    /// Returns the candidates that are due, or the time when the next one is.
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
    async fn the_latest_candidate_counts_and_does_not_restart_the_wait() {
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
    async fn a_newer_candidate_takes_precedence_over_one_put_back() {
        let sightings = sightings();
        sightings.add(armed("a", 60_000), Duration::ZERO);
        sightings.put_back(vec![armed("a", 1), armed("b", 2)], Duration::from_secs(1));
        assert_eq!(ready(&sightings).await, [armed("a", 60_000)]);
        assert_eq!(ready(&sightings).await, [armed("b", 2)]);
    }

    #[tokio::test(start_paused = true)]
    async fn a_candidate_left_to_an_elder_is_due_again_until_this_daemon_acts_in_any_case() {
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
    async fn a_key_of_ours_makes_older_armings_obsolete_but_not_deletions() {
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
    async fn the_number_of_candidates_is_bounded() {
        let sightings = sightings();
        for n in 0..WAITING_MAX {
            assert!(sightings.add(armed(&n.to_string(), 60_000), Duration::ZERO));
        }
        assert!(!sightings.add(armed("one too many", 60_000), Duration::ZERO));
        assert!(
            sightings.add(armed("0", 70_000), Duration::ZERO),
            "a known key is replaced"
        );
        tokio::time::sleep(GRACE).await;
        assert_eq!(sightings.ready(10).await.len(), 10);
    }
}

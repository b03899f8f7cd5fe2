//! The inbox: takes entries of programs from the lists of the slots.
//!
//! A list is a queue of another program, and its elements have no identity. So an element is *taken* first: a script moves
//! it, in one step, into a hash of lapsed, under a task key and with its due time. The key is made of the due time, what is
//! asked for, and a number among equal entries, so that it is the same if Redis returns with older data. The entry is
//! proposed for adoption, and leaves the hash when the ledger has it.

mod pages;

use std::collections::{BTreeSet, HashMap};
use std::convert::Infallible;
use std::sync::{Arc, Mutex, MutexGuard};
use std::time::Duration;

use tokio::time::{Instant, sleep};

use super::entry::Element;
use super::proposals::Proposals;
use super::wheel_clock::{Tick, WheelClock};
use crate::{RedisError, Run, Taken, WheelKeys};
use lapsed_core::clock::LedgerClock;
use lapsed_core::task::{TaskKey, UnixMs};
use lapsed_core::telemetry::Metrics;
use lapsed_core::telemetry::log::LogLimiter;
use lapsed_core::timer::{Acknowledgement, AdoptionCandidate, AdoptionSink, EntryState, Seen};

/// Time in which every list is looked at once, in this many parts.
const WATCH_EVERY: Duration = Duration::from_secs(1);
const WATCH_PARTS: u32 = 10;

/// Most slots that are looked at with one command.
const SLOTS_AT_ONCE: usize = 1_000;

/// Elements of one page.
const PAGE: u64 = 500;

/// Most elements of a list that are left there because no route here adopts them. Elements behind them are not found.
const LEFT_MAX: u64 = 10_000;

/// A list whose elements are left is read again after this time, since routes may have changed.
const LEFT_FOR: Duration = Duration::from_secs(60);

/// How far the clock of a program may be ahead: an entry that is pushed so shortly before the visit of its slot may be for
/// the visit a round later. At most a quarter of a tick.
const CLOCK_ERROR_MAX: Duration = Duration::from_millis(250);

/// The server counts idle time in whole seconds, on a clock that it reads ten times a second.
const IDLE_ERROR: Duration = Duration::from_millis(1_200);

/// The age of elements is doubted for this long. Each list is looked at once a second.
const UNCONFIRMED_FOR: Duration = Duration::from_secs(60);

/// Interval of the look for taken entries that were not answered.
const LEFT_EVERY: Duration = Duration::from_secs(2);

/// What is known of when the elements of a list were pushed.
#[derive(Debug, Clone, Copy)]
pub(super) struct Pushed {
    /// The last visit before it.
    after: Tick,
    /// The list is read before its next visit, which is near. Elements may have been pushed for the one after it.
    near: Option<UnixMs>,
    /// Redis has returned with data of this tick or a little later. The ledger may have the elements, with due times that
    /// were counted from here.
    restored: Option<Tick>,
}

/// Takes entries from lists, and proposes them.
#[derive(Debug)]
pub(super) struct Inbox {
    keys: WheelKeys,
    wheel_clock: WheelClock,
    clock: LedgerClock,
    class: String,
    metrics: Arc<Metrics>,
    /// The last tick whose slot was visited. Held while a list is read, so that each element is either found by a visit or
    /// waits for the next one.
    visited: tokio::sync::Mutex<Tick>,
    /// The run of the server.
    run: Mutex<Run>,
    /// Until then, elements that are read may be of data that are older than the last tick.
    unconfirmed_until: Mutex<UnixMs>,
    /// The lengths of lists whose elements are all left there.
    left: Mutex<HashMap<u32, (u64, Instant)>>,
    /// Methods whose entries stay that were logged.
    logged: Mutex<BTreeSet<String>>,
    proposals: Proposals,
    warnings: LogLimiter,
}

impl Inbox {
    pub(super) fn new(
        keys: WheelKeys,
        wheel_clock: WheelClock,
        clock: LedgerClock,
        class: &str,
        metrics: Arc<Metrics>,
    ) -> Self {
        let visited = tokio::sync::Mutex::new(wheel_clock.tick_at(clock.now()));
        Self {
            keys,
            wheel_clock,
            clock,
            class: class.to_owned(),
            metrics,
            visited,
            run: Mutex::new(Run {
                id: Arc::from(""),
                is_marked: true,
            }),
            unconfirmed_until: Mutex::new(UnixMs(0)),
            left: Mutex::default(),
            logged: Mutex::default(),
            proposals: Proposals::default(),
            warnings: LogLimiter::every(Duration::from_secs(600)),
        }
    }

    /// Sets the run of the server, and the last tick whose slot was visited.
    pub(super) async fn begin_after(&self, run: &Run, tick: Tick) {
        *self.run.lock().expect("nothing panics while holding it") = run.clone();
        *self.visited.lock().await = tick;
    }

    /// Doubts the age of what is in the lists now: no last tick says how old it is.
    pub(super) fn distrust_age(&self) {
        *self.unconfirmed_until() = self.clock.now().plus(UNCONFIRMED_FOR);
    }

    fn run(&self) -> Run {
        let run = self.run.lock();
        run.expect("nothing panics while holding it").clone()
    }

    fn unconfirmed_until(&self) -> MutexGuard<'_, UnixMs> {
        self.unconfirmed_until
            .lock()
            .expect("nothing panics while holding it")
    }

    /// How shortly before a visit an entry may be for the visit after it.
    pub(super) fn guard(&self) -> Duration {
        CLOCK_ERROR_MAX.min(self.wheel_clock.ticks(1) / 4)
    }

    /// Takes the entries of a slot whose visit is still to come. Returns true if all of them were read before that visit.
    pub(super) async fn take(
        &self,
        slot: u32,
        sink: &dyn AdoptionSink,
    ) -> Result<bool, RedisError> {
        let mut skip = 0;
        loop {
            let visited = self.visited.lock().await;
            let visit = self
                .wheel_clock
                .start_of(self.wheel_clock.first_visit(slot, *visited));
            let now = self.clock.now();
            if now >= visit {
                return Ok(false);
            }
            let is_near = now.plus(self.guard()) >= visit;
            // To read the list is an access, so this is asked first.
            let is_old = is_near && self.used_by(slot, now).await? < visit.minus(self.guard());
            let pushed = Pushed {
                after: *visited,
                near: Some(visit).filter(|_| !is_old),
                restored: None,
            };
            let read = self.take_page(slot, pushed, &mut skip, PAGE, sink).await?;
            if read == 0 || skip >= LEFT_MAX {
                break;
            }
        }
        let in_time = self.clock.now() < self.next_visit(slot).await;
        self.remember_left(slot, skip).await?;
        Ok(in_time)
    }

    async fn next_visit(&self, slot: u32) -> UnixMs {
        let visited = self.visited.lock().await;
        self.wheel_clock
            .start_of(self.wheel_clock.first_visit(slot, *visited))
    }

    /// Returns the latest time at which the list of a slot may have been used.
    async fn used_by(&self, slot: u32, now: UnixMs) -> Result<UnixMs, RedisError> {
        let idle = self.keys.idle_s(slot).await?.unwrap_or(0);
        Ok(now.minus(Duration::from_secs(idle).saturating_sub(IDLE_ERROR)))
    }

    /// Visits the slot of a tick, at its time. `seen`: its list was read just before. What was pushed since waits for the
    /// next visit, because it may be for that one.
    pub(super) async fn visit(
        &self,
        tick: Tick,
        seen: bool,
        sink: &dyn AdoptionSink,
    ) -> Result<(), RedisError> {
        if !seen {
            let last = *self.visited.lock().await;
            return self.visit_missed(tick, last, None, sink).await;
        }
        let mut visited = self.visited.lock().await;
        *visited = (*visited).max(tick);
        Ok(())
    }

    /// Visits the slot of a tick that is over. `last` is the last tick handled in its time.
    ///
    /// An entry that was pushed before the visit that was missed is due at that visit, one that was pushed later at the next
    /// one. Only the last use of the list is known: if that may have been later, all its entries wait for the next visit, so
    /// that none is early.
    pub(super) async fn visit_missed(
        &self,
        tick: Tick,
        last: Tick,
        restored: Option<Tick>,
        sink: &dyn AdoptionSink,
    ) -> Result<(), RedisError> {
        let mut visited = self.visited.lock().await;
        let slot = self.wheel_clock.slot_of(tick);
        let used = self.used_by(slot, self.clock.now()).await?;
        let pushed = Pushed {
            after: last.max(self.wheel_clock.tick_at(used.plus(self.guard()))),
            near: None,
            restored,
        };
        self.take_all(slot, pushed, sink).await?;
        *visited = (*visited).max(tick);
        Ok(())
    }

    /// Takes the elements of a slot that Redis has returned with, and whose visit is still to come. `last` is the last tick
    /// of its data.
    pub(super) async fn take_restored(
        &self,
        slot: u32,
        last: Tick,
        sink: &dyn AdoptionSink,
    ) -> Result<(), RedisError> {
        let _visited = self.visited.lock().await;
        let pushed = Pushed {
            after: last,
            near: None,
            restored: Some(last),
        };
        self.take_all(slot, pushed, sink).await
    }

    /// Takes the elements that the list of a slot has now.
    async fn take_all(
        &self,
        slot: u32,
        pushed: Pushed,
        sink: &dyn AdoptionSink,
    ) -> Result<(), RedisError> {
        let length = self.keys.lengths(&[slot]).await?.first().copied();
        let mut remaining = length.unwrap_or(0);
        if self.is_left(slot, remaining) {
            return Ok(());
        }
        let mut skip = 0;
        while remaining > 0 && skip < LEFT_MAX {
            let read = self.take_page(slot, pushed, &mut skip, PAGE.min(remaining), sink);
            match read.await? {
                0 => break,
                read => remaining = remaining.saturating_sub(read),
            }
        }
        self.remember_left(slot, skip).await
    }

    /// Proposes an entry that this daemon alone has taken.
    fn propose(&self, candidate: AdoptionCandidate, sink: &dyn AdoptionSink) {
        let bytes = candidate.payload.as_ref().map_or(0, |json| json.len());
        if self.proposals.add(&candidate.key, bytes) {
            sink.propose_alone(candidate);
        }
    }

    /// Looks at all lists once a second, and takes what is there.
    pub(super) async fn watch(&self, sink: &dyn AdoptionSink) -> Result<Infallible, RedisError> {
        let slots: Vec<u32> = (0..self.wheel_clock.slots()).collect();
        let part = slots.len().div_ceil(WATCH_PARTS as usize);
        loop {
            for slots in slots.chunks(part.clamp(1, SLOTS_AT_ONCE)) {
                for slot in self.lists(slots).await? {
                    if !self.stays(slot).await? {
                        self.take(slot, sink).await?;
                    }
                }
                sleep(WATCH_EVERY / WATCH_PARTS).await;
            }
        }
    }

    /// Returns the slots among these whose lists have elements. This is no access to the lists.
    pub(super) async fn lists(&self, slots: &[u32]) -> Result<Vec<u32>, RedisError> {
        let mut found = Vec::new();
        for slots in slots.chunks(SLOTS_AT_ONCE) {
            if self.keys.count_lists(slots).await? > 0 {
                let have = self.keys.have_lists(slots).await?;
                let have = slots.iter().zip(have).filter(|(_, has)| *has);
                found.extend(have.map(|(slot, _)| *slot));
            }
        }
        Ok(found)
    }

    /// True if all elements of a list were left there a short time ago.
    async fn stays(&self, slot: u32) -> Result<bool, RedisError> {
        if !self.left().contains_key(&slot) {
            return Ok(false);
        }
        let length = self.keys.lengths(&[slot]).await?.first().copied();
        Ok(self.is_left(slot, length.unwrap_or(0)))
    }

    /// Proposes taken entries that have no answer: those of a daemon that died, and those for which there was no room.
    pub(super) async fn propose_left(
        &self,
        sink: &dyn AdoptionSink,
    ) -> Result<Infallible, RedisError> {
        loop {
            if let Some(waiting) = self.proposals.expire()
                && self.keys.count_taken().await? > waiting as u64
            {
                self.propose_taken(sink).await?;
            }
            sleep(LEFT_EVERY).await;
        }
    }

    async fn propose_taken(&self, sink: &dyn AdoptionSink) -> Result<(), RedisError> {
        let mut cursor = Some(0);
        while let Some(at) = cursor {
            let page = self.keys.taken(at).await?;
            let ours = page.entries.into_iter();
            let ours = ours.filter(|taken| sink.adopts(&taken.key) && sink.owns(&taken.key));
            for taken in ours {
                let Taken {
                    key,
                    due,
                    heard,
                    element,
                } = taken;
                let payload = match Element::read(&element, &self.class) {
                    Element::Entry(entry) => entry.payload,
                    Element::Garbage(_) | Element::Marker => None,
                };
                let seen = Seen::Requested { due, heard };
                self.propose(AdoptionCandidate { key, seen, payload }, sink);
            }
            cursor = page.next.filter(|_| self.proposals.expire().is_some());
        }
        Ok(())
    }

    /// Removes entries that the ledger has answered.
    pub(super) async fn answered(&self, entries: &[Acknowledgement]) -> Result<(), RedisError> {
        let is_refused = |entry: &&Acknowledgement| entry.state == EntryState::Refused;
        let (refused, done): (Vec<_>, Vec<_>) = entries.iter().partition(is_refused);
        let done: Vec<&TaskKey> = done.into_iter().map(|entry| &entry.key).collect();
        if !done.is_empty() {
            self.keys.forget_taken(&done).await?;
        }
        for entry in refused {
            self.keys.refuse_taken(&entry.key).await?;
        }
        self.proposals
            .remove(entries.iter().map(|entry| &entry.key));
        Ok(())
    }

    /// True if all elements of a list of this length were left there a short time ago.
    fn is_left(&self, slot: u32, length: u64) -> bool {
        let left = self.left().get(&slot).copied();
        left.is_some_and(|(left, at)| left == length && at.elapsed() < LEFT_FOR)
    }

    async fn remember_left(&self, slot: u32, mut count: u64) -> Result<(), RedisError> {
        if count >= LEFT_MAX {
            let lengths = self.keys.lengths(&[slot]).await?;
            count = lengths.first().copied().unwrap_or(count);
        }
        match count {
            0 => self.left().remove(&slot),
            count => self.left().insert(slot, (count, Instant::now())),
        };
        Ok(())
    }

    fn left(&self) -> MutexGuard<'_, HashMap<u32, (u64, Instant)>> {
        self.left.lock().expect("nothing panics while holding it")
    }
}

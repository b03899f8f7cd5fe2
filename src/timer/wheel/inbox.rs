//! The inbox: takes entries of programs from the lists of the slots.
//!
//! A list is a queue of another program, and its elements have no identity. So an element is *taken* first: a script moves
//! it, in one step, into a hash of lapsed, under a new task key and with its due time. From then on it is the same task,
//! however often it is read. It is proposed for adoption, and leaves the hash when the ledger has it.

use std::collections::HashMap;
use std::convert::Infallible;
use std::sync::{Arc, Mutex, MutexGuard};
use std::time::Duration;

use tokio::time::{Instant, sleep};

use super::dial::{Dial, Tick};
use super::entry::{ELEMENT_BYTES_MAX, Element, Entry, Garbage};
use super::proposals::Proposals;
use crate::clock::LedgerClock;
use crate::redis::{Handling, RedisError, Taken, WheelKeys};
use crate::task::{DELAY_MAX, TaskKey, UnixMs, row_due};
use crate::telemetry::log::LogLimiter;
use crate::telemetry::{DropReason, Metrics};
use crate::timer::{Acknowledgement, AdoptionCandidate, Seen, SignalSink, Standing};

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

/// A tick that is handled later than this may find entries that were pushed after it.
const LATE: Duration = Duration::from_secs(1);

/// The server counts idle time in whole seconds, on a clock that it reads ten times a second.
const IDLE_ERROR: Duration = Duration::from_millis(1_200);

/// Interval of the look for taken entries that were not answered.
const LEFT_EVERY: Duration = Duration::from_secs(2);

/// Attempts to find a key that this daemon owns.
const KEYS_TRIED: usize = 64;

/// Takes entries from lists, and proposes them.
#[derive(Debug)]
pub(super) struct Inbox {
    keys: WheelKeys,
    dial: Dial,
    clock: LedgerClock,
    class: String,
    metrics: Arc<Metrics>,
    /// The last tick whose slot was visited. Held while a list is read, so that each element is either found by a visit or
    /// waits for the next one.
    visited: tokio::sync::Mutex<Tick>,
    /// The lengths of lists whose elements are all left there.
    left: Mutex<HashMap<u32, (u64, Instant)>>,
    proposals: Proposals,
    warnings: LogLimiter,
}

impl Inbox {
    pub(super) fn new(
        keys: WheelKeys,
        dial: Dial,
        clock: LedgerClock,
        class: &str,
        metrics: Arc<Metrics>,
    ) -> Self {
        let visited = tokio::sync::Mutex::new(dial.tick_at(clock.now()));
        Self {
            keys,
            dial,
            clock,
            class: class.to_owned(),
            metrics,
            visited,
            left: Mutex::default(),
            proposals: Proposals::default(),
            warnings: LogLimiter::every(Duration::from_secs(600)),
        }
    }

    /// Sets the last tick whose slot was visited.
    pub(super) async fn begin_after(&self, tick: Tick) {
        *self.visited.lock().await = tick;
    }

    /// Takes the entries of a slot whose visit is still to come.
    pub(super) async fn take(&self, slot: u32, sink: &dyn SignalSink) -> Result<(), RedisError> {
        let mut skip = 0;
        loop {
            let visited = self.visited.lock().await;
            let current = self.dial.tick_at(self.clock.now());
            if self.dial.first_visit(slot, *visited) <= current {
                return Ok(());
            }
            let read = self.take_page(slot, *visited, &mut skip, PAGE, sink);
            if read.await? == 0 || skip >= LEFT_MAX {
                break;
            }
        }
        self.remember_left(slot, skip).await
    }

    /// Visits the slot of a tick, at its time: takes the elements that are there now.
    pub(super) async fn visit(&self, tick: Tick, sink: &dyn SignalSink) -> Result<(), RedisError> {
        if self.clock.now() > self.dial.start_of(tick).plus(LATE) {
            let last = *self.visited.lock().await;
            return self.visit_missed(tick, last, sink).await;
        }
        let mut visited = self.visited.lock().await;
        self.take_all(tick, tick.before(), sink).await?;
        *visited = tick;
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
        sink: &dyn SignalSink,
    ) -> Result<(), RedisError> {
        let mut visited = self.visited.lock().await;
        let now = self.clock.now();
        let idle = self.keys.idle_s(self.dial.slot_of(tick)).await?;
        let idle = Duration::from_secs(idle.unwrap_or(0)).saturating_sub(IDLE_ERROR);
        let pushed_by = self.dial.tick_at(now.minus(idle));
        self.take_all(tick, last.max(pushed_by), sink).await?;
        *visited = (*visited).max(tick);
        Ok(())
    }

    /// Takes the elements that the list of a tick's slot has now. `after` is the last visit before they were pushed.
    async fn take_all(
        &self,
        tick: Tick,
        after: Tick,
        sink: &dyn SignalSink,
    ) -> Result<(), RedisError> {
        let slot = self.dial.slot_of(tick);
        let length = self.keys.lengths(&[slot]).await?.first().copied();
        let mut remaining = length.unwrap_or(0);
        if self.is_left(slot, remaining) {
            return Ok(());
        }
        let mut skip = 0;
        while remaining > 0 && skip < LEFT_MAX {
            let read = self.take_page(slot, after, &mut skip, PAGE.min(remaining), sink);
            match read.await? {
                0 => break,
                read => remaining = remaining.saturating_sub(read),
            }
        }
        self.remember_left(slot, skip).await
    }

    /// Takes a page of a list. Returns how many elements it has read, and counts those that it leaves in `skip`.
    async fn take_page(
        &self,
        slot: u32,
        after: Tick,
        skip: &mut u64,
        limit: u64,
        sink: &dyn SignalSink,
    ) -> Result<u64, RedisError> {
        let page = self.keys.read_list(slot, *skip, limit, ELEMENT_BYTES_MAX);
        let page = page.await?;
        self.refused(Garbage::TooLong, page.too_long);
        let read = page.too_long as u64 + page.elements.len() as u64;
        let now = self.clock.now();
        let (mut handled, mut candidates) = (Vec::new(), Vec::new());
        for element in page.elements {
            let (handling, candidate) = match Element::read(&element, &self.class) {
                Element::Entry(entry) if !sink.adopts(&entry.name) => {
                    *skip += 1;
                    continue;
                }
                Element::Entry(entry) => match self.candidate(slot, after, entry, now, sink) {
                    Ok((candidate, due)) => {
                        let taken = Handling::Take(candidate.key.clone(), due, now);
                        (taken, Some(candidate))
                    }
                    Err(why) => self.refusal(why),
                },
                Element::Garbage(why) => self.refusal(why),
                Element::Marker => (Handling::Drop, None),
            };
            handled.push((element, handling));
            candidates.push(candidate);
        }
        let were_there = self.keys.handle(slot, &handled).await?;
        for (candidate, was_there) in candidates.into_iter().zip(were_there) {
            // Another daemon has taken the others.
            if let Some(candidate) = candidate.filter(|_| was_there) {
                self.propose(candidate, sink);
            }
        }
        Ok(read)
    }

    /// The task of an entry, under a new key, and its due time.
    fn candidate(
        &self,
        slot: u32,
        after: Tick,
        entry: Entry,
        now: UnixMs,
        sink: &dyn SignalSink,
    ) -> Result<(AdoptionCandidate, UnixMs), Garbage> {
        let visit = self.dial.visit_after(slot, after, entry.cycle_num);
        let due = visit.map(|visit| row_due(self.dial.start_of(visit)));
        let due = due.filter(|due| due.since(now) <= DELAY_MAX);
        let due = due.ok_or(Garbage::TooLate)?;
        let seen = Seen::Requested { due, heard: now };
        let key = new_key(&entry.name, now, sink).ok_or(Garbage::Method)?;
        let payload = entry.payload;
        Ok((AdoptionCandidate { key, seen, payload }, due))
    }

    fn refusal(&self, why: Garbage) -> (Handling, Option<AdoptionCandidate>) {
        self.refused(why, 1);
        (Handling::Refuse, None)
    }

    fn refused(&self, why: Garbage, count: usize) {
        if count == 0 {
            return;
        }
        self.metrics.dropped(DropReason::NotAnEntry, count as u64);
        if let Some(held_back) = self.warnings.admit(why.as_str()) {
            tracing::warn!(
                problem = why.as_str(),
                held_back,
                "an element of a list of the wheel is not an entry: it is moved to the list of refused ones"
            );
        }
    }

    fn propose(&self, candidate: AdoptionCandidate, sink: &dyn SignalSink) {
        let bytes = candidate.payload.as_ref().map_or(0, |json| json.len());
        if self.proposals.add(&candidate.key, bytes) {
            sink.propose(candidate);
        }
    }

    /// Looks at all lists once a second, and takes what is there.
    pub(super) async fn watch(&self, sink: &dyn SignalSink) -> Result<Infallible, RedisError> {
        let slots: Vec<u32> = (0..self.dial.slots()).collect();
        let part = slots.len().div_ceil(WATCH_PARTS as usize);
        loop {
            for slots in slots.chunks(part.clamp(1, SLOTS_AT_ONCE)) {
                if self.keys.count_lists(slots).await? > 0 {
                    let lengths = self.keys.lengths(slots).await?;
                    for (slot, length) in slots.iter().zip(lengths) {
                        if length > 0 && !self.is_left(*slot, length) {
                            self.take(*slot, sink).await?;
                        }
                    }
                }
                sleep(WATCH_EVERY / WATCH_PARTS).await;
            }
        }
    }

    /// Proposes taken entries that have no answer: those of a daemon that died, and those for which there was no room.
    pub(super) async fn propose_left(
        &self,
        sink: &dyn SignalSink,
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

    async fn propose_taken(&self, sink: &dyn SignalSink) -> Result<(), RedisError> {
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
        let is_refused = |entry: &&Acknowledgement| entry.standing == Standing::Refused;
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

/// Returns a new key of this name. One of this daemon, so that the daemon that has taken the entry adopts it.
fn new_key(name: &TaskKey, now: UnixMs, sink: &dyn SignalSink) -> Option<TaskKey> {
    let mut key = None;
    for _ in 0..KEYS_TRIED {
        let random = rand::random::<u64>() >> 28;
        let suffix = format!("{:011x}{random:09x}", now.0.max(0));
        key = name.with_suffix(&suffix).ok();
        if key.as_ref().is_none_or(|key| sink.owns(key)) {
            break;
        }
    }
    key
}

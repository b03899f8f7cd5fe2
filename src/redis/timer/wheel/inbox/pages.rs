//! Pages of a list: what becomes of each element.

use std::sync::Arc;
use std::time::Duration;

use super::super::entry::{ELEMENT_BYTES_MAX, Element, Entry, Garbage, numbered};
use super::super::wheel_clock::Tick;
use super::{Inbox, Pushed};
use crate::{Handling, RedisError, Taking};
use lapsed_core::task::{DELAY_MAX, TaskKey, UnixMs, row_due};
use lapsed_core::telemetry::DropReason;
use lapsed_core::timer::{AdoptionCandidate, AdoptionSink, Seen};

/// Equal entries are counted for this long after they are due.
const COUNTED_AFTER: Duration = Duration::from_secs(60);

/// Most methods whose entries stay that are logged.
const METHODS_LOGGED: usize = 100;

/// Rounds after the visit that is counted for a restored element, whose keys are looked for in the ledger.
const RESTORED_ROUNDS: [i64; 2] = [0, 1];

/// The same for an element of unknown age: Redis writes a snapshot at least once an hour while the wheel turns, by default.
const UNCONFIRMED_ROUNDS: [i64; 3] = [0, -1, -2];

/// What an entry becomes, with its payload.
type Task = (Taking, Option<Arc<str>>);

impl Inbox {
    /// Takes a page of a list. Returns how many elements it has read, and counts those that it leaves in `skip`.
    pub(super) async fn take_page(
        &self,
        slot: u32,
        pushed: Pushed,
        skip: &mut u64,
        limit: u64,
        sink: &dyn AdoptionSink,
    ) -> Result<u64, RedisError> {
        let page = self.keys.read_list(slot, *skip, limit, ELEMENT_BYTES_MAX);
        let page = page.await?;
        self.refused(Garbage::TooLong, page.too_long);
        let read = page.too_long as u64 + page.elements.len() as u64;
        let now = self.clock.now();
        let (mut handled, mut tasks) = (Vec::new(), Vec::new());
        let mut unsure = Vec::new();
        for element in page.elements {
            let (handling, task) = match Element::read(&element, &self.class) {
                Element::Entry(entry) => match self.taking(slot, pushed, &entry, now, sink) {
                    Ok(Some(taking)) => {
                        let keys = self.possible_keys(pushed, &entry, &taking, now);
                        if !keys.is_empty() {
                            unsure.push((handled.len(), keys));
                        }
                        let task = (taking.clone(), entry.payload);
                        (Handling::Take(taking), Some(task))
                    }
                    Ok(None) => {
                        *skip += 1;
                        self.log_left(&entry);
                        continue;
                    }
                    Err(why) => self.refusal(why),
                },
                Element::Garbage(why) => self.refusal(why),
                Element::Marker => (Handling::Drop, None),
            };
            handled.push((element, handling));
            tasks.push(task);
        }
        recognise(unsure, &mut handled, &mut tasks, sink).await;
        let run = self.run();
        let were_there = self.keys.handle(slot, &run, &handled).await?;
        for (task, number) in tasks.into_iter().zip(were_there) {
            // Another daemon has taken the others.
            let Some(((taking, payload), number)) = task.zip(number) else {
                continue;
            };
            // A key that is too long stays among the taken ones, which are read again.
            if let Ok(key) = numbered(&taking.key, number.get()) {
                let (due, heard) = (taking.due, taking.heard);
                let seen = Seen::Requested { due, heard };
                self.propose(AdoptionCandidate { key, seen, payload }, sink);
            }
        }
        Ok(read)
    }

    /// The task of an entry; `None` if no route here adopts it.
    fn taking(
        &self,
        slot: u32,
        pushed: Pushed,
        entry: &Entry,
        now: UnixMs,
        sink: &dyn AdoptionSink,
    ) -> Result<Option<Taking>, Garbage> {
        let after = self.after(slot, pushed, entry, now);
        let visit = |after| self.wheel_clock.visit_after(slot, after, entry.cycle_num);
        let visits = visit(after).zip(visit(pushed.restored.unwrap_or(after)));
        let times = visits.map(|(due, counted)| {
            (
                self.wheel_clock.start_of(due),
                self.wheel_clock.start_of(counted),
            )
        });
        let times = times.filter(|(due, _)| due.since(now) <= DELAY_MAX);
        // The key that the task will have: a route is asked for that one.
        let counted_for = times.map_or(UnixMs(0), |(_, counted_for)| counted_for);
        let key = entry.key(counted_for).map_err(|_| Garbage::Method)?;
        if !sink.adopts(&key) {
            return Ok(None);
        }
        let (due, counted_for) = times.ok_or(Garbage::TooLate)?;
        // What the ledger has heard since then is newer than what Redis has returned with.
        let old = |last: Tick| self.wheel_clock.start_of(last.before());
        Ok(Some(Taking {
            key,
            counted_for,
            counted: counted_for.since(now) + COUNTED_AFTER,
            due: row_due(due),
            heard: pushed.restored.map_or(now, old),
        }))
    }

    /// The keys that the ledger may have for an element which Redis has returned with, the likeliest first; none for an
    /// element that was pushed just now.
    ///
    /// Counted from the tick of the data, its visit is the one by which it was read before, or the one after, if it was read
    /// late. Without that tick, some visits may have passed since then.
    fn possible_keys(
        &self,
        pushed: Pushed,
        entry: &Entry,
        taking: &Taking,
        now: UnixMs,
    ) -> Vec<Taking> {
        let rounds = match pushed.restored {
            Some(_) => &RESTORED_ROUNDS[..],
            None if now < *self.unconfirmed_until() => &UNCONFIRMED_ROUNDS[..],
            None => return Vec::new(),
        };
        let slots = i64::from(self.wheel_clock.slots());
        let visit = self.wheel_clock.tick_at(taking.counted_for);
        let rounds = rounds.iter().filter_map(|rounds| {
            let tick = Tick(visit.0 + rounds * slots);
            let counted_for = self.wheel_clock.start_of(tick);
            // Before it can have been pushed: what the ledger has heard is newer.
            let rounds = i64::try_from(entry.cycle_num).ok()?.saturating_add(2);
            let heard = tick.0.saturating_sub(rounds.saturating_mul(slots));
            Some(Taking {
                key: entry.key(counted_for).ok()?,
                counted_for,
                counted: counted_for.since(now) + COUNTED_AFTER,
                due: taking.due,
                heard: self.wheel_clock.start_of(Tick(heard)),
            })
        });
        rounds.collect()
    }

    /// The last visit of a slot that does not run an entry, which was read at `now`.
    fn after(&self, slot: u32, pushed: Pushed, entry: &Entry, now: UnixMs) -> Tick {
        let Some(visit) = pushed.near else {
            return pushed.after;
        };
        // Without rounds to wait, it is far more likely due in a second than in exactly one round.
        let guard = match entry.cycle_num {
            0 => Duration::ZERO,
            _ => self.guard(),
        };
        match now.plus(guard) >= visit {
            true => self.wheel_clock.first_visit(slot, pushed.after),
            false => pushed.after,
        }
    }

    /// Logs, once for each method, that entries stay in their lists.
    fn log_left(&self, entry: &Entry) {
        let mut logged = self.logged.lock().expect("nothing panics while holding it");
        let name = entry.name.as_str();
        if logged.len() < METHODS_LOGGED && !logged.contains(name) {
            logged.insert(name.to_owned());
            tracing::warn!(
                task.name = name,
                "entries of this method stay in the lists of the wheel: no route adopts a key such as `{name}@~..`"
            );
        }
    }

    fn refusal(&self, why: Garbage) -> (Handling, Option<Task>) {
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
}

/// Gives elements the first of their possible keys that the ledger has. Without an answer they keep the likeliest one.
async fn recognise(
    unsure: Vec<(usize, Vec<Taking>)>,
    handled: &mut [(Vec<u8>, Handling)],
    tasks: &mut [Option<Task>],
    sink: &dyn AdoptionSink,
) {
    let takings = unsure.iter().flat_map(|(_, takings)| takings);
    let keys: Vec<TaskKey> = takings.map(|taking| taking.key.clone()).collect();
    let known = match keys.is_empty() {
        true => None,
        false => sink.are_known(&keys).await,
    };
    let mut known = known.into_iter().flatten();
    for (index, takings) in unsure {
        let mut takings = takings.into_iter().zip(known.by_ref());
        // The other answers for this element are read, too.
        let found = takings.by_ref().find(|(_, is_known)| *is_known);
        takings.for_each(drop);
        let Some((taking, _)) = found else {
            continue;
        };
        if let Some((task, _)) = &mut tasks[index] {
            *task = taking.clone();
        }
        handled[index].1 = Handling::Take(taking);
    }
}

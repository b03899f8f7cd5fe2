//! Due queue: the alarms of the next seconds, in memory and in order.

use std::collections::HashMap;
use std::collections::btree_map::{BTreeMap, Entry};
use std::sync::Mutex;

use tokio::sync::Notify;

use super::Alarm;
use super::AlarmClock;
use crate::clock::LedgerClock;
use crate::task::{Arming, TaskKey, UnixMs};

/// Most alarms returned at once.
pub const PART: usize = 2_048;

/// A bounded queue of alarms, one for each key, taken when they fall due.
///
/// If more than `PART` are due, they are taken in parts, each half of the oldest and half of the newest, so that alarms
/// due just after a burst do not wait for its end.
///
/// If the queue is full, the alarm with the latest due time is dropped. The next look-ahead inserts it again.
#[derive(Debug)]
pub struct DueQueue {
    capacity: usize,
    alarms: Mutex<Alarms>,
    /// Signals that the earliest alarm may have changed.
    earlier: Notify,
}

#[derive(Debug, Default)]
struct Alarms {
    by_due: BTreeMap<UnixMs, BTreeMap<TaskKey, Option<Arming>>>,
    due_of: HashMap<TaskKey, UnixMs>,
}

impl DueQueue {
    /// Returns an empty queue for at most `capacity` keys.
    pub fn new(capacity: usize) -> Self {
        Self {
            capacity,
            alarms: Mutex::default(),
            earlier: Notify::new(),
        }
    }

    /// Inserts alarms, or moves those of known keys. An alarm without an arming keeps the known one of the same due time.
    /// Returns how many did not fit.
    pub fn insert(&self, alarms: impl IntoIterator<Item = Alarm>) -> usize {
        let mut held = self.held();
        let earliest = held.earliest();
        let mut left_out = 0;
        for alarm in alarms {
            held.insert(alarm);
            if held.due_of.len() > self.capacity {
                held.drop_last();
                left_out += 1;
            }
        }
        if held.earliest() != earliest {
            self.earlier.notify_one();
        }
        left_out
    }

    /// Inserts the alarms of unknown keys.
    pub fn insert_missing(&self, alarms: impl IntoIterator<Item = Alarm>) {
        let missing = |alarm: &Alarm| !self.held().due_of.contains_key(&alarm.key);
        let missing: Vec<Alarm> = alarms.into_iter().filter(missing).collect();
        self.insert(missing);
    }

    /// Removes a key.
    pub fn remove(&self, key: &TaskKey) {
        self.held().remove(key);
    }

    /// Returns the number of keys.
    pub fn count(&self) -> usize {
        self.held().due_of.len()
    }

    /// Waits until alarms are due, and takes them in order of due time, at most `PART` of them.
    ///
    /// # Cancel safety
    /// Cancel safe: no alarm is taken before it is returned. One caller at a time.
    pub async fn due(&self, clock: &LedgerClock, alarm_clock: &mut AlarmClock) -> Vec<Alarm> {
        loop {
            let wake = match self.earliest() {
                Some(due) if due <= clock.lower_bound() => {
                    return self.held().take_until(clock.lower_bound());
                }
                Some(due) => Some(clock.instant_of(due)),
                None => None,
            };
            let ring = async {
                match wake {
                    Some(wake) => alarm_clock.sleep_until(wake).await,
                    None => std::future::pending().await,
                }
            };
            tokio::select! {
                () = self.earlier.notified() => {}
                () = ring => {}
            }
        }
    }

    fn earliest(&self) -> Option<UnixMs> {
        self.held().earliest()
    }

    fn held(&self) -> std::sync::MutexGuard<'_, Alarms> {
        self.alarms
            .lock()
            .expect("nothing panics while holding the due queue")
    }
}

impl Alarms {
    fn earliest(&self) -> Option<UnixMs> {
        self.by_due.first_key_value().map(|(due, _)| *due)
    }

    fn insert(&mut self, alarm: Alarm) {
        let Alarm { key, due, arming } = alarm;
        if let Some(before) = self.due_of.insert(key.clone(), due)
            && before != due
        {
            self.remove_at(before, &key);
        }
        let known = self.by_due.entry(due).or_default().entry(key);
        let known = known.or_default();
        *known = arming.or(*known);
    }

    fn remove(&mut self, key: &TaskKey) {
        if let Some(due) = self.due_of.remove(key) {
            self.remove_at(due, key);
        }
    }

    fn remove_at(&mut self, due: UnixMs, key: &TaskKey) {
        if let Entry::Occupied(mut same) = self.by_due.entry(due) {
            same.get_mut().remove(key);
            if same.get().is_empty() {
                same.remove();
            }
        }
    }

    fn drop_last(&mut self) {
        if let Some(mut same) = self.by_due.last_entry() {
            if let Some((key, _)) = same.get_mut().pop_last() {
                self.due_of.remove(&key);
            }
            if same.get().is_empty() {
                same.remove();
            }
        }
    }

    fn take_until(&mut self, now: UnixMs) -> Vec<Alarm> {
        let mut oldest = Vec::new();
        while oldest.len() < PART / 2
            && let Some(due) = self.earliest()
            && due <= now
        {
            self.take_at(due, PART / 2 - oldest.len(), &mut oldest);
        }
        // Collects from the newest backwards, in parts that are each in order.
        let mut newest = Vec::new();
        let mut taken = 0;
        while taken < PART / 2
            && let Some((due, _)) = self.by_due.range(..=now).next_back()
        {
            let mut same = Vec::new();
            self.take_at(*due, PART / 2 - taken, &mut same);
            taken += same.len();
            newest.push(same);
        }
        oldest.extend(newest.into_iter().rev().flatten());
        oldest
    }

    /// Takes at most `limit` alarms that fall due at `due`.
    fn take_at(&mut self, due: UnixMs, limit: usize, taken: &mut Vec<Alarm>) {
        let Entry::Occupied(mut same) = self.by_due.entry(due) else {
            return;
        };
        for _ in 0..limit {
            let Some((key, arming)) = same.get_mut().pop_first() else {
                break;
            };
            self.due_of.remove(&key);
            taken.push(Alarm { key, due, arming });
        }
        if same.get().is_empty() {
            same.remove();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::time::Duration;

    fn alarm(name: &str, due: i64) -> Alarm {
        Alarm {
            key: TaskKey::build("C", "m", [name]).unwrap(),
            due: UnixMs(due),
            arming: None,
        }
    }

    fn names(alarms: &[Alarm]) -> Vec<&str> {
        alarms
            .iter()
            .map(|alarm| alarm.key.args().next().unwrap())
            .collect()
    }

    #[tokio::test(start_paused = true)]
    async fn alarms_come_out_in_order_when_due_and_not_before() {
        let clock = LedgerClock::starting_at(UnixMs(0));
        let queue = DueQueue::new(10);
        queue.insert([alarm("late", 500), alarm("soon", 100), alarm("same", 100)]);
        let due = queue.due(&clock, &mut AlarmClock::of_the_runtime()).await;
        assert_eq!(clock.now(), UnixMs(100));
        assert_eq!(names(&due), ["same", "soon"]);
        assert_eq!(
            names(&queue.due(&clock, &mut AlarmClock::of_the_runtime()).await),
            ["late"]
        );
        assert_eq!(queue.count(), 0);
    }

    #[tokio::test(start_paused = true)]
    async fn a_known_key_is_moved() {
        let clock = LedgerClock::starting_at(UnixMs(0));
        let queue = DueQueue::new(10);
        queue.insert([alarm("a", 100)]);
        queue.insert([alarm("a", 300)]);
        assert_eq!(
            queue.due(&clock, &mut AlarmClock::of_the_runtime()).await,
            [alarm("a", 300)]
        );
        assert_eq!(clock.now(), UnixMs(300));
    }

    #[test]
    fn an_alarm_without_an_arming_keeps_the_known_one_of_the_same_due_time() {
        let queue = DueQueue::new(10);
        let arming = |due| {
            Some(Arming {
                row: 7,
                due: UnixMs(due),
            })
        };
        let known = Alarm {
            arming: arming(100),
            ..alarm("a", 100)
        };
        queue.insert([known.clone(), alarm("a", 100)]);
        assert_eq!(
            queue.held().take_until(UnixMs(100)),
            std::slice::from_ref(&known)
        );
        queue.insert([known, alarm("a", 200)]);
        assert_eq!(queue.held().take_until(UnixMs(200)), [alarm("a", 200)]);
    }

    #[tokio::test(start_paused = true)]
    async fn an_earlier_alarm_wakes_the_waiting_caller() {
        let clock = LedgerClock::starting_at(UnixMs(0));
        let queue = DueQueue::new(10);
        queue.insert([alarm("late", 10_000)]);
        let mut alarm_clock = AlarmClock::of_the_runtime();
        let (due, ()) = tokio::join!(queue.due(&clock, &mut alarm_clock), async {
            tokio::time::sleep(Duration::from_millis(50)).await;
            queue.insert([alarm("soon", 80)]);
        });
        assert_eq!(names(&due), ["soon"]);
    }

    #[test]
    fn alarms_due_after_a_burst_do_not_wait_for_its_end() {
        let queue = DueQueue::new(10 * PART);
        let burst = (0..3 * PART).map(|number| alarm(&format!("burst{number}"), 5));
        queue.insert(burst.chain([alarm("after", 7), alarm("later", 9)]));
        let first = queue.held().take_until(UnixMs(8));
        assert_eq!(first.len(), PART);
        assert_eq!(first.last(), Some(&alarm("after", 7)));
        let mut left = 0;
        while let part @ 1.. = queue.held().take_until(UnixMs(8)).len() {
            left += part;
        }
        assert_eq!((left, queue.count()), (2 * PART + 1, 1));
    }

    #[test]
    fn a_full_queue_drops_the_latest_alarm() {
        let queue = DueQueue::new(2);
        let left_out = queue.insert([alarm("a", 1), alarm("b", 9), alarm("c", 5)]);
        assert_eq!((left_out, queue.count()), (1, 2));
        assert_eq!(queue.held().take_until(UnixMs(9)).len(), 2);
    }
}

//! Absences: entries of pending tasks that are not in their sets, and the times at which entries are checked.

use std::collections::HashMap;
use std::sync::{Mutex, MutexGuard};
use std::time::Duration;

use tokio::time::Instant;

use crate::clock::LedgerClock;
use crate::task::{TaskKey, UnixMs};
use crate::timer::{AdoptionCandidate, Alarm, AlarmClock, DueQueue, Seen, SignalSink};

/// Most alarms that wait for their check.
const CAPACITY: usize = 200_000;

/// How long before the due time the entry is looked for.
const CHECK_AHEAD_MS: i64 = 50;

/// An entry that is still missing this long after it was reported belongs to a task that no program may cancel. It is
/// written again.
const WRITTEN_AGAIN_AFTER: Duration = Duration::from_secs(30);

/// Most missing entries remembered, and how long.
const REPORTED_MAX: usize = 65_536;
const REPORTED_KEPT: Duration = Duration::from_secs(3600);

/// Checks whether entries are there, and remembers which are not.
pub(super) struct Absences {
    /// Alarms to check, by the time of their check.
    checks: DueQueue,
    /// Missing entries, and when each was reported.
    reported: Mutex<HashMap<TaskKey, Reported>>,
}

struct Reported {
    due: UnixMs,
    at: Instant,
}

impl Default for Absences {
    fn default() -> Self {
        Self {
            checks: DueQueue::new(CAPACITY),
            reported: Mutex::default(),
        }
    }
}

impl Absences {
    /// Has the entries of these alarms checked shortly before they are due.
    pub(super) fn check_before_due(&self, alarms: &[Alarm], clock: &LedgerClock) {
        let now = clock.now();
        let check = |alarm: &Alarm| Alarm {
            due: UnixMs(alarm.due.0 - CHECK_AHEAD_MS),
            ..alarm.clone()
        };
        let ahead = alarms.iter().filter(|alarm| alarm.due > now).map(check);
        self.checks.insert(ahead);
    }

    /// Waits until checks are due, and returns their alarms.
    ///
    /// # Cancel safety
    /// Cancel safe. One caller at a time.
    pub(super) async fn due_checks(
        &self,
        clock: &LedgerClock,
        alarm_clock: &mut AlarmClock,
    ) -> Vec<Alarm> {
        let mut near = self.checks.due(clock, alarm_clock).await;
        for alarm in &mut near {
            alarm.due = UnixMs(alarm.due.0 + CHECK_AHEAD_MS);
        }
        near
    }

    pub(super) fn forget(&self, keys: &[TaskKey]) {
        keys.iter().for_each(|key| self.checks.remove(key));
    }

    /// Reports missing entries to the engine, which cancels their tasks if a program armed them. Returns those that were
    /// reported some time ago: they can be written again.
    pub(super) fn report(
        &self,
        missing: Vec<Alarm>,
        heard: UnixMs,
        sink: &dyn SignalSink,
    ) -> Vec<Alarm> {
        let mut reported = self.reported();
        let mut known = Vec::new();
        for alarm in missing {
            let before = reported.get(&alarm.key);
            let before = before.filter(|before| before.due == alarm.due);
            if before.is_some_and(|before| before.at.elapsed() >= WRITTEN_AGAIN_AFTER) {
                reported.remove(&alarm.key);
                known.push(alarm);
                continue;
            }
            if before.is_none() {
                if reported.len() >= REPORTED_MAX {
                    reported.retain(|_, reported| reported.at.elapsed() < REPORTED_KEPT);
                }
                if reported.len() >= REPORTED_MAX {
                    continue;
                }
                let at = Instant::now();
                let due = alarm.due;
                reported.insert(alarm.key.clone(), Reported { due, at });
            }
            let seen = Seen::Disarmed(heard);
            sink.propose(AdoptionCandidate::of_key(alarm.key, seen));
        }
        known
    }

    fn reported(&self) -> MutexGuard<'_, HashMap<TaskKey, Reported>> {
        self.reported
            .lock()
            .expect("nothing panics while holding the missing entries")
    }
}

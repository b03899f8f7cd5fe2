//! Absences: entries of pending tasks that are not in their sets.

use std::collections::HashMap;
use std::sync::{Mutex, MutexGuard};
use std::time::Duration;

use tokio::time::Instant;

use lapsed_core::task::{Removal, TaskKey, UnixMs};
use lapsed_core::timer::{AdoptionCandidate, AdoptionSink, Alarm, Seen};

/// An entry that is still missing this long after it was reported belongs to a task that no program may cancel. It is
/// written again.
const WRITTEN_AGAIN_AFTER: Duration = Duration::from_secs(30);

/// Most missing entries remembered, and how long.
const REPORTED_MAX: usize = 65_536;
const REPORTED_KEPT: Duration = Duration::from_secs(3600);

/// Remembers which entries are missing.
#[derive(Default)]
pub(super) struct Absences {
    /// Missing entries, and when each was reported.
    reported: Mutex<HashMap<TaskKey, Reported>>,
}

struct Reported {
    due: UnixMs,
    at: Instant,
}

impl Absences {
    /// Reports missing entries to the engine, which cancels their tasks if a program armed them. Returns those that were
    /// reported some time ago: they can be written again.
    pub(super) fn report(
        &self,
        missing: Vec<Alarm>,
        removal: Removal,
        sink: &dyn AdoptionSink,
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
            let seen = Seen::Disarmed(removal);
            sink.propose(AdoptionCandidate::of_key(alarm.key, seen));
        }
        known
    }

    /// Forgets these missing entries: they are about to be written.
    pub(super) fn forget(&self, missing: &[Alarm]) {
        let mut reported = self.reported();
        for alarm in missing {
            reported.remove(&alarm.key);
        }
    }

    fn reported(&self) -> MutexGuard<'_, HashMap<TaskKey, Reported>> {
        self.reported
            .lock()
            .expect("nothing panics while holding the missing entries")
    }
}

//! Alarms of the last seconds, in two generations.

use std::collections::HashMap;
use std::sync::{Mutex, MutexGuard};
use std::time::Duration;

use tokio::time::Instant;

use lapsed_core::task::{TaskKey, UnixMs};
use lapsed_core::timer::Alarm;

/// Remembers the alarms that were read during the last one or two periods. Bounded by their number in that time.
#[derive(Debug)]
pub(super) struct Recent {
    period: Duration,
    generations: Mutex<Generations>,
}

#[derive(Debug)]
struct Generations {
    young: HashMap<TaskKey, UnixMs>,
    old: HashMap<TaskKey, UnixMs>,
    since: Instant,
}

impl Recent {
    /// Remembers for two ticks and some seconds: entries are read up to a tick ahead, and once more just after they are
    /// due.
    pub(super) fn new(tick: Duration) -> Self {
        Self {
            period: 2 * tick + Duration::from_secs(2),
            generations: Mutex::new(Generations {
                young: HashMap::new(),
                old: HashMap::new(),
                since: Instant::now(),
            }),
        }
    }

    /// Returns true if this alarm is new.
    pub(super) fn insert(&self, alarm: &Alarm) -> bool {
        let mut held = self.held();
        let known = held.young.insert(alarm.key.clone(), alarm.due);
        let known = known.or_else(|| held.old.get(&alarm.key).copied());
        known != Some(alarm.due)
    }

    /// Remembers alarms.
    pub(super) fn insert_all<'a>(&self, alarms: impl Iterator<Item = &'a Alarm>) {
        for alarm in alarms {
            self.insert(alarm);
        }
    }

    fn held(&self) -> MutexGuard<'_, Generations> {
        let mut held = self
            .generations
            .lock()
            .expect("nothing panics while holding the recent alarms");
        if held.since.elapsed() > self.period {
            held.since = Instant::now();
            held.old = std::mem::take(&mut held.young);
        }
        held
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test(start_paused = true)]
    async fn an_alarm_is_new_once_within_a_period_and_again_after_two() {
        let alarm = |due| Alarm {
            key: TaskKey::parse("C@m").unwrap(),
            due: UnixMs(due),
            arming: None,
        };
        let recent = Recent::new(Duration::from_secs(1));
        assert!(recent.insert(&alarm(1)));
        assert!(!recent.insert(&alarm(1)));
        assert!(recent.insert(&alarm(2)), "it was moved");
        tokio::time::advance(recent.period + Duration::from_millis(1)).await;
        assert!(!recent.insert(&alarm(2)));
        for _ in 0..2 {
            tokio::time::advance(recent.period + Duration::from_millis(1)).await;
            recent.insert_all([].into_iter());
            drop(recent.held());
        }
        assert!(recent.insert(&alarm(2)));
    }
}

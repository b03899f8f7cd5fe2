//! Suspects: tasks that may have taken their daemon down twice. One at a time runs, and the others are not even claimed.

use std::collections::HashSet;
use std::sync::{Mutex, MutexGuard};

use tokio::sync::{Semaphore, SemaphorePermit};

use crate::task::Arming;
use crate::timer::Signal;

/// Maximum number of suspects that are remembered. Others are claimed and released again.
const REMEMBERED_MAX: usize = 8_192;

/// The suspects of a daemon.
#[derive(Debug)]
pub struct Suspects {
    /// Permit for the one that runs.
    alone: Semaphore,
    /// Those that were released because another one was running.
    waiting: Mutex<HashSet<Arming>>,
}

impl Default for Suspects {
    fn default() -> Self {
        Self {
            alone: Semaphore::new(1),
            waiting: Mutex::default(),
        }
    }
}

impl Suspects {
    /// Permits a claimed suspect to run. `None` if another one is running: this one waits.
    pub fn run_alone(&self, arming: Arming) -> Option<SemaphorePermit<'_>> {
        let permit = self.alone.try_acquire().ok();
        let mut waiting = self.waiting();
        match permit {
            Some(_) => drop(waiting.remove(&arming)),
            None if waiting.len() < REMEMBERED_MAX => drop(waiting.insert(arming)),
            None => {}
        }
        permit
    }

    /// True if some suspects wait.
    pub fn wait(&self) -> bool {
        !self.waiting().is_empty()
    }

    /// Removes the signals of waiting suspects, but for one if none is running. A sweep finds the others again. Returns the
    /// number of those removed.
    pub fn hold_back(&self, signals: &mut Vec<Signal>) -> usize {
        let waiting = self.waiting();
        if waiting.is_empty() {
            return 0;
        }
        let before = signals.len();
        let mut is_free = self.alone.available_permits() > 0;
        signals.retain(|signal| {
            let waits = signal
                .arming
                .is_some_and(|arming| waiting.contains(&arming));
            !waits || std::mem::take(&mut is_free)
        });
        before - signals.len()
    }

    fn waiting(&self) -> MutexGuard<'_, HashSet<Arming>> {
        self.waiting
            .lock()
            .expect("nothing panics while holding it")
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::task::{TaskKey, UnixMs};
    use crate::timer::Source;

    #[test]
    fn a_suspect_that_waits_is_not_claimed_while_another_one_runs() {
        let signals = |rows: &[u64]| -> Vec<Signal> {
            let signal = |row: &u64| Signal {
                key: TaskKey::parse(&format!("Job@run@{row}")).unwrap(),
                source: Source::Sweep,
                arming: Some(arming(*row)),
            };
            rows.iter().map(signal).collect()
        };
        fn arming(row: u64) -> Arming {
            Arming {
                row,
                due: UnixMs(7),
            }
        }
        let suspects = Suspects::default();
        let rows = |suspects: &Suspects| {
            let mut found = signals(&[1, 2, 3]);
            suspects.hold_back(&mut found);
            let armings = found.into_iter().filter_map(|signal| signal.arming);
            armings.map(|arming| arming.row).collect::<Vec<_>>()
        };
        assert_eq!(rows(&suspects), [1, 2, 3], "nothing is known of them");
        let running = suspects.run_alone(arming(1)).unwrap();
        assert!(suspects.run_alone(arming(2)).is_none());
        assert!(suspects.run_alone(arming(3)).is_none());
        assert_eq!(rows(&suspects), [1], "a newer signal of the one that runs");
        drop(running);
        assert_eq!(rows(&suspects), [1, 2], "the next one");
        drop(suspects.run_alone(arming(2)).unwrap());
        drop(suspects.run_alone(arming(3)).unwrap());
        assert!(!suspects.wait());
    }
}

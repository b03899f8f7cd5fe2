//! Suspects: tasks that may have taken their daemon down twice. One runs alone. Each one that ends by itself admits one more at
//! a time, and the others are not even claimed.

use std::collections::HashSet;
use std::sync::{Mutex, MutexGuard};

use crate::task::Arming;
use crate::timer::Signal;

/// Maximum number of suspects that are remembered. Others are claimed and released again.
const REMEMBERED_MAX: usize = 8_192;

/// The suspects of a daemon.
///
/// A kill from outside makes suspects of all tasks that were running, and none of them is to blame. If one is, it is among the
/// first `2 n` when the daemon dies after `n` have ended: the next daemon begins with one again, and the place of the guilty one
/// halves with each death, until it runs alone.
#[derive(Debug, Default)]
pub struct Suspects {
    state: Mutex<State>,
}

#[derive(Debug, Default)]
struct State {
    running: usize,
    /// Those that have ended by themselves since suspects began to wait.
    cleared: usize,
    /// Those that were released because others were running.
    waiting: HashSet<Arming>,
}

impl State {
    fn has_room(&self) -> bool {
        self.running <= self.cleared
    }
}

/// The run of a suspect.
#[derive(Debug)]
pub struct Turn<'a> {
    suspects: &'a Suspects,
    /// Others may run at the same time: a death of the daemon is not held against this one.
    pub is_shared: bool,
    has_ended: bool,
}

impl Suspects {
    /// Permits a claimed suspect to run. `None` if as many as may run at a time are running: this one waits.
    pub fn start(&self, arming: Arming) -> Option<Turn<'_>> {
        let mut state = self.state();
        if !state.has_room() {
            if state.waiting.len() < REMEMBERED_MAX {
                state.waiting.insert(arming);
            }
            return None;
        }
        state.waiting.remove(&arming);
        state.running += 1;
        Some(Turn {
            suspects: self,
            is_shared: state.cleared > 0,
            has_ended: false,
        })
    }

    /// True if some suspects wait.
    pub fn wait(&self) -> bool {
        !self.state().waiting.is_empty()
    }

    /// Removes the signals of waiting suspects, but for as many as may start. A sweep finds the others again. Returns the number
    /// of those removed.
    pub fn hold_back(&self, signals: &mut Vec<Signal>) -> usize {
        let state = self.state();
        if state.waiting.is_empty() {
            return 0;
        }
        let before = signals.len();
        let mut room = (state.cleared + 1).saturating_sub(state.running);
        signals.retain(|signal| {
            let waits = signal
                .arming
                .is_some_and(|arming| state.waiting.contains(&arming));
            let starts = room > 0;
            room -= usize::from(waits && starts);
            !waits || starts
        });
        before - signals.len()
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().expect("nothing panics while holding it")
    }
}

impl Turn<'_> {
    /// The run has ended by itself, and the daemon lives.
    pub fn end(mut self) {
        self.has_ended = true;
    }
}

impl Drop for Turn<'_> {
    fn drop(&mut self) {
        let mut state = self.suspects.state();
        state.running -= 1;
        state.cleared += usize::from(self.has_ended);
        // What these have shown says nothing about later ones.
        if state.running == 0 && state.waiting.is_empty() {
            state.cleared = 0;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::task::{TaskKey, UnixMs};
    use crate::timer::Source;

    fn arming(row: u64) -> Arming {
        Arming {
            row,
            due: UnixMs(7),
        }
    }

    /// The rows that are still signalled of those that were.
    fn passed(suspects: &Suspects, rows: std::ops::RangeInclusive<u64>) -> Vec<u64> {
        let signal = |row: u64| {
            Signal::new(
                TaskKey::parse(&format!("Job@run@{row}")).unwrap(),
                Source::Sweep,
                Some(arming(row)),
            )
        };
        let mut found: Vec<Signal> = rows.map(signal).collect();
        suspects.hold_back(&mut found);
        let armings = found.into_iter().filter_map(|signal| signal.arming);
        armings.map(|arming| arming.row).collect()
    }

    #[test]
    fn a_suspect_that_waits_is_not_claimed_while_another_one_runs() {
        let suspects = Suspects::default();
        assert_eq!(passed(&suspects, 1..=3), [1, 2, 3], "nothing is known");
        let running = suspects.start(arming(1)).unwrap();
        assert!(!running.is_shared);
        assert!(suspects.start(arming(2)).is_none());
        assert!(suspects.start(arming(3)).is_none());
        assert_eq!(passed(&suspects, 1..=3), [1], "a newer signal of it");
        // It was released.
        drop(running);
        assert_eq!(passed(&suspects, 1..=3), [1, 2], "the next one");
        drop(suspects.start(arming(2)).unwrap());
        drop(suspects.start(arming(3)).unwrap());
        assert!(!suspects.wait());
    }

    #[test]
    fn each_suspect_that_ends_by_itself_admits_one_more_at_a_time() {
        const SUSPECTS: u64 = 100;
        let suspects = Suspects::default();
        let mut waiting: Vec<u64> = (1..=SUSPECTS).collect();
        let mut rounds = Vec::new();
        while !waiting.is_empty() {
            let started: Vec<(u64, Turn<'_>)> = waiting
                .iter()
                .filter_map(|row| Some((*row, suspects.start(arming(*row))?)))
                .collect();
            assert!(
                started
                    .iter()
                    .all(|(_, turn)| turn.is_shared != rounds.is_empty())
            );
            waiting.retain(|row| started.iter().all(|(other, _)| other != row));
            rounds.push(started.len());
            started.into_iter().for_each(|(_, turn)| turn.end());
        }
        assert_eq!(rounds, [1, 2, 4, 8, 16, 32, 37]);
        let alone = suspects.start(arming(1)).unwrap();
        assert!(!alone.is_shared, "a later one runs alone again");
    }

    /// The daemon dies as soon as the guilty one runs. All that run then are suspects again.
    #[test]
    fn a_guilty_one_of_many_runs_alone_after_few_deaths() {
        const SUSPECTS: u64 = 1_000;
        for guilty in 1..=SUSPECTS {
            let mut left: Vec<u64> = (1..=SUSPECTS).collect();
            let mut deaths = 0;
            'daemon: loop {
                let suspects = Suspects::default();
                loop {
                    let started: Vec<(u64, Turn<'_>)> = left
                        .iter()
                        .filter_map(|row| Some((*row, suspects.start(arming(*row))?)))
                        .collect();
                    if let Some((_, turn)) = started.iter().find(|(row, _)| *row == guilty) {
                        deaths += 1;
                        match turn.is_shared {
                            true => continue 'daemon,
                            false => break 'daemon,
                        }
                    }
                    let ended: Vec<u64> = started
                        .into_iter()
                        .map(|(row, turn)| {
                            turn.end();
                            row
                        })
                        .collect();
                    left.retain(|row| !ended.contains(row));
                }
            }
            assert!(deaths <= 10, "{deaths} deaths, guilty is {guilty}");
        }
    }
}

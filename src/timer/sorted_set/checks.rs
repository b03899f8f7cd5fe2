//! Checks of entries shortly before their tasks are due.

use std::convert::Infallible;
use std::sync::Arc;
use std::time::Duration;

use super::score::Score;
use super::state::State;
use crate::redis::RedisError;
use crate::task::TaskKey;
use crate::timer::{Alarm, AlarmClock, SignalSink};

/// Most alarms of one check.
const BATCH: usize = 1000;

/// How long the signal of a task waits whose entry is gone or moved.
const CONTESTED_FOR: Duration = Duration::from_millis(250);

/// Checks the entries of expected tasks. A program cancels a task by removing its entry, and moves it by writing the
/// entry again. The signal then waits a moment, so that the engine can cancel or move the task first.
pub(super) struct EntryChecks {
    state: Arc<State>,
}

impl EntryChecks {
    pub(super) fn new(state: Arc<State>) -> Self {
        Self { state }
    }

    /// Checks entries, forever.
    pub(super) async fn run(&self, sink: &dyn SignalSink) -> Infallible {
        let mut alarm_clock = AlarmClock::of_the_runtime();
        loop {
            let absences = &self.state.absences;
            let near = absences.due_checks(&self.state.clock, &mut alarm_clock);
            for batch in near.await.chunks(BATCH) {
                // Without an answer the signals are raised: the row decides.
                let _ = self.check(batch, sink).await;
            }
        }
    }

    async fn check(&self, batch: &[Alarm], sink: &dyn SignalSink) -> Result<(), RedisError> {
        let state = &self.state;
        let keys: Vec<TaskKey> = batch.iter().map(|alarm| alarm.key.clone()).collect();
        let asked = state.clock.now();
        let found = state.entries.find(&keys).await?;
        let (mut missing, mut contested) = (Vec::new(), Vec::new());
        for (alarm, found) in batch.iter().zip(found) {
            match found {
                None => missing.push(alarm.clone()),
                Some(Score::Request(due)) if due > alarm.due.plus(CONTESTED_FOR) => {
                    contested.push(alarm.clone());
                }
                Some(_) => {}
            }
        }
        if !missing.is_empty() && state.absence_counts().await? {
            contested.extend(missing.iter().cloned());
            // A task that no program may cancel runs without its entry.
            let _ = state.absences.report(missing, asked, sink);
        }
        let later = contested.into_iter().map(|alarm| Alarm {
            due: alarm.due.plus(CONTESTED_FOR),
            ..alarm
        });
        state.signals.postpone(later);
        Ok(())
    }
}

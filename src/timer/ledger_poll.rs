//! A timer without a server: signals come from the look-ahead and the sweep.

use std::sync::Arc;

use async_trait::async_trait;
use tokio_util::sync::CancellationToken;

use super::{
    Alarm, AlarmClock, ArmMode, Armed, DueQueue, Remaining, Signal, SignalSink, Source, Timer,
    TimerError,
};
use crate::clock::LedgerClock;
use crate::task::TaskKey;

/// Most due times held in memory.
const DUE_QUEUE_CAPACITY: usize = 200_000;

/// Raises a signal for each expected task at its due time.
///
/// A task becomes known when the look-ahead reads it from the ledger, so a task with a delay shorter than the sweep's
/// interval may start late by up to that interval.
#[derive(Debug)]
pub struct LedgerPoll {
    clock: LedgerClock,
    exact: bool,
    due_queue: DueQueue,
}

impl LedgerPoll {
    /// A timer that uses the runtime's timers, and paused time in a test.
    pub fn new(clock: LedgerClock) -> Self {
        Self {
            clock,
            exact: false,
            due_queue: DueQueue::new(DUE_QUEUE_CAPACITY),
        }
    }

    /// A timer that uses the kernel's timers, exact to about 50 µs.
    pub fn exact(clock: LedgerClock) -> Self {
        Self {
            exact: true,
            ..Self::new(clock)
        }
    }
}

#[async_trait]
impl Timer for LedgerPoll {
    async fn run(&self, sink: Arc<dyn SignalSink>, stop: CancellationToken) {
        let raise_when_due = async {
            let mut alarm_clock = match self.exact {
                true => AlarmClock::of_the_kernel(),
                false => AlarmClock::of_the_runtime(),
            };
            loop {
                for Alarm {
                    key,
                    due: _,
                    arming,
                } in self.due_queue.due(&self.clock, &mut alarm_clock).await
                {
                    sink.raise(Signal {
                        key,
                        source: Source::Nudge,
                        arming,
                    });
                }
            }
        };
        stop.run_until_cancelled(raise_when_due).await;
    }

    async fn arm(&self, alarms: &[Alarm], _: ArmMode) -> Result<Armed, TimerError> {
        Ok(Armed {
            written: 0,
            present: alarms.len(),
        })
    }

    async fn disarm(&self, keys: &[TaskKey]) -> Result<(), TimerError> {
        keys.iter().for_each(|key| self.due_queue.remove(key));
        Ok(())
    }

    async fn remaining(&self, keys: &[TaskKey]) -> Result<Vec<Remaining>, TimerError> {
        Ok(vec![Remaining::Missing; keys.len()])
    }

    fn expect(&self, alarms: Vec<Alarm>) {
        self.due_queue.insert(alarms);
    }

    fn is_listening(&self) -> Option<bool> {
        None
    }
}

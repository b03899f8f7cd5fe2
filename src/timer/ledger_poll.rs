//! A timer without a server: due times come from the look-ahead and the sweep alone.

use std::sync::Arc;

use async_trait::async_trait;
use tokio_util::sync::CancellationToken;

use super::{
    Alarm, AlarmClock, ArmMode, Armed, DueQueue, Remaining, Signal, SignalSink, Source, Timer,
    TimerError,
};
use crate::clock::LedgerClock;
use crate::task::TaskKey;

/// Most due times held in memory at once.
const DUE_QUEUE_CAPACITY: usize = 200_000;

/// Raises a signal for whatever the engine expects, at its due time.
///
/// A task is known here when the daemon's look-ahead reads it from the ledger, so one created with a
/// delay shorter than the sweep's interval starts up to that interval late.
#[derive(Debug)]
pub struct LedgerPoll {
    clock: LedgerClock,
    exact: bool,
    due_queue: DueQueue,
}

impl LedgerPoll {
    /// A timer that runs on the ledger's clock, as exactly as the runtime's timers are, and on paused time in a test.
    pub fn new(clock: LedgerClock) -> Self {
        Self {
            clock,
            exact: false,
            due_queue: DueQueue::new(DUE_QUEUE_CAPACITY),
        }
    }

    /// The same, as exactly as the kernel's are.
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

//! A timer without a server: signals come from the look-ahead and the sweep.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

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

/// How far ahead an alarm of this process is kept. The look-ahead reads later ones when they are near.
const NEAR: Duration = Duration::from_secs(10);

/// Raises a signal for each task at its due time, from memory.
///
/// A task of this process becomes known when it is armed. A task of another process, or of a program that writes SQL,
/// becomes known when the look-ahead or a probe reads it from the ledger: see `ledger_poll.probe`.
#[derive(Debug)]
pub struct LedgerPoll {
    clock: LedgerClock,
    exact: bool,
    due_queue: DueQueue,
    /// True while [`run`](Timer::run) takes alarms out of the queue. A process that only creates tasks keeps none.
    is_running: AtomicBool,
}

impl LedgerPoll {
    /// A timer that uses the runtime's timers, and paused time in a test.
    pub fn new(clock: LedgerClock) -> Self {
        Self {
            clock,
            exact: false,
            due_queue: DueQueue::new(DUE_QUEUE_CAPACITY),
            is_running: AtomicBool::new(false),
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
        self.is_running.store(true, Ordering::Relaxed);
        stop.run_until_cancelled(raise_when_due).await;
        self.is_running.store(false, Ordering::Relaxed);
    }

    /// Keeps the alarms of the next seconds, if this process raises signals. All others are in the ledger.
    async fn arm(&self, alarms: &[Alarm], mode: ArmMode) -> Result<Armed, TimerError> {
        if self.is_running.load(Ordering::Relaxed) {
            let near = self.clock.now().plus(NEAR);
            let (near, far): (Vec<&Alarm>, Vec<&Alarm>) =
                alarms.iter().partition(|alarm| alarm.due <= near);
            match mode {
                ArmMode::Replace => {
                    far.iter()
                        .for_each(|alarm| self.due_queue.remove(&alarm.key));
                    self.due_queue.insert(near.into_iter().cloned());
                }
                ArmMode::IfMissing => self.due_queue.insert_missing(near.into_iter().cloned()),
            }
        }
        Ok(Armed {
            written: 0,
            present: alarms.len(),
            missing: 0,
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

    fn scope(&self) -> String {
        "ledger_poll".to_owned()
    }

    fn is_listening(&self) -> Option<bool> {
        None
    }
}

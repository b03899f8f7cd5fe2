//! Raises a signal for each alarm at its due millisecond, from memory.

use std::convert::Infallible;

use super::due_queue::PART;
use super::{Alarm, AlarmClock, DueQueue, Signal, SignalSink, Source};
use crate::clock::LedgerClock;
use crate::task::TaskKey;

/// Most alarms held in memory.
const CAPACITY: usize = 200_000;

/// The alarms of a timer, raised from memory. Bounded: the look-ahead brings alarms that do not fit again.
#[derive(Debug)]
pub struct DueSignals {
    clock: LedgerClock,
    queue: DueQueue,
}

impl DueSignals {
    pub fn new(clock: LedgerClock) -> Self {
        Self {
            clock,
            queue: DueQueue::new(CAPACITY),
        }
    }

    /// Accepts alarms, or moves those of known keys. An alarm without a row keeps the row of a known one with the same
    /// due time.
    pub fn expect(&self, alarms: impl IntoIterator<Item = Alarm>) {
        self.queue.insert(alarms);
    }

    /// Accepts the alarms of unknown keys.
    pub(super) fn expect_missing(&self, alarms: impl IntoIterator<Item = Alarm>) {
        self.queue.insert_missing(alarms);
    }

    pub fn forget<'a>(&self, keys: impl IntoIterator<Item = &'a TaskKey>) {
        keys.into_iter().for_each(|key| self.queue.remove(key));
    }

    /// Raises signals, forever. Other work runs between the parts of a burst.
    pub async fn raise(&self, sink: &dyn SignalSink, mut alarm_clock: AlarmClock) -> Infallible {
        loop {
            let due = self.queue.due(&self.clock, &mut alarm_clock).await;
            let is_part = due.len() == PART;
            for Alarm {
                key,
                due: _,
                arming,
            } in due
            {
                let source = Source::Nudge;
                sink.raise(Signal::new(key, source, arming));
            }
            if is_part {
                tokio::task::yield_now().await;
            }
        }
    }
}

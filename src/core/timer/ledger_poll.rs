//! A timer without a server: signals come from the look-ahead and the sweep.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use async_trait::async_trait;
use tokio_util::sync::CancellationToken;

use super::due_signals::DueSignals;
use super::{
    Alarm, AlarmClock, AlarmStore, ArmMode, Armed, EngineSink, Remaining, Timer, TimerError,
};
use crate::clock::LedgerClock;
use crate::task::TaskKey;

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
    signals: DueSignals,
    /// True while [`run`](Timer::run) takes alarms out of the queue. A process that only creates tasks keeps none.
    is_running: AtomicBool,
}

impl LedgerPoll {
    /// A timer that uses the runtime's timers, and paused time in a test.
    pub fn new(clock: LedgerClock) -> Self {
        Self {
            signals: DueSignals::new(clock.clone()),
            clock,
            exact: false,
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
impl AlarmStore for LedgerPoll {
    /// Keeps the alarms of the next seconds, if this process raises signals. All others are in the ledger.
    async fn arm(&self, alarms: &[Alarm], mode: ArmMode) -> Result<Armed, TimerError> {
        if self.is_running.load(Ordering::Relaxed) {
            let near = self.clock.now().plus(NEAR);
            let (near, far): (Vec<&Alarm>, Vec<&Alarm>) =
                alarms.iter().partition(|alarm| alarm.due <= near);
            match mode {
                ArmMode::Replace => {
                    self.signals.forget(far.iter().map(|alarm| &alarm.key));
                    self.signals.expect(near.into_iter().cloned());
                }
                ArmMode::IfMissing => self.signals.expect_missing(near.into_iter().cloned()),
            }
        }
        Ok(Armed {
            written: 0,
            present: alarms.len(),
            missing: 0,
        })
    }

    async fn disarm(&self, keys: &[TaskKey]) -> Result<(), TimerError> {
        self.signals.forget(keys);
        Ok(())
    }

    async fn remaining(&self, keys: &[TaskKey]) -> Result<Vec<Remaining>, TimerError> {
        Ok(vec![Remaining::Missing; keys.len()])
    }
}

#[async_trait]
impl Timer for LedgerPoll {
    async fn run(&self, sink: Arc<dyn EngineSink>, stop: CancellationToken) {
        let alarm_clock = match self.exact {
            true => AlarmClock::of_the_kernel(),
            false => AlarmClock::of_the_runtime(),
        };
        let raise_when_due = self.signals.raise(sink.as_ref(), alarm_clock);
        self.is_running.store(true, Ordering::Relaxed);
        stop.run_until_cancelled(raise_when_due).await;
        self.is_running.store(false, Ordering::Relaxed);
    }

    fn expect(&self, alarms: Vec<Alarm>) {
        self.signals.expect(alarms);
    }

    fn scope(&self) -> String {
        "ledger_poll".to_owned()
    }
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::AtomicUsize;

    use super::*;
    use crate::task::UnixMs;
    use crate::timer::due_queue::PART;
    use crate::timer::{AdoptionCandidate, AdoptionSink, Cause, Peers, Signal, SignalSink};

    #[derive(Default)]
    struct Raised(AtomicUsize);

    impl SignalSink for Raised {
        fn raise(&self, _: Signal) {
            self.0.fetch_add(1, Ordering::Relaxed);
        }

        fn sweep(&self, _: Cause) {}

        fn audit(&self, _: Cause) {}

        fn wants(&self, _: &TaskKey) -> bool {
            true
        }

        fn owns(&self, _: &TaskKey) -> bool {
            true
        }
    }

    impl AdoptionSink for Raised {
        fn propose(&self, _: AdoptionCandidate) {}
    }

    impl Peers for Raised {}

    #[tokio::test(start_paused = true)]
    async fn other_tasks_run_between_the_parts_of_a_burst() {
        const BURST: usize = 3 * PART;
        let timer = Arc::new(LedgerPoll::new(LedgerClock::starting_at(UnixMs(1_000))));
        let alarm = |number: usize| Alarm {
            key: TaskKey::build("Job", "run", [number.to_string()]).unwrap(),
            due: UnixMs(0),
            arming: None,
        };
        timer.expect((0..BURST).map(alarm).collect());
        let (sink, stop) = (Arc::<Raised>::default(), CancellationToken::new());
        let (running, to, until) = (Arc::clone(&timer), Arc::clone(&sink), stop.clone());
        let running = tokio::spawn(async move { running.run(to, until).await });
        let mut seen = Vec::new();
        while seen.last() != Some(&BURST) {
            tokio::task::yield_now().await;
            seen.push(sink.0.load(Ordering::Relaxed));
        }
        stop.cancel();
        running.await.unwrap();
        seen.retain(|raised| *raised > 0);
        seen.dedup();
        assert_eq!(seen, [PART, 2 * PART, BURST]);
    }
}

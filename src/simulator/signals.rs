//! A timer whose signals are lost, late, repeated, forged or old.

use std::sync::{Arc, OnceLock};
use std::time::Duration;

use async_trait::async_trait;
use lapsed_core::clock::LedgerClock;
use lapsed_core::task::{Arming, TaskKey, UnixMs};
use lapsed_core::timer::{
    AdoptionCandidate, AdoptionSink, Alarm, AlarmStore, ArmMode, Armed, Cause, EngineSink, Entries,
    Listening, Peers, Remaining, Signal, SignalSink, Source, Timer, TimerError,
};
use tokio::time::sleep;
use tokio_util::sync::CancellationToken;

use crate::plan::FaultKind;
use crate::process::Process;

pub struct SimTimer {
    inner: Arc<dyn Timer>,
    process: Arc<Process>,
    clock: LedgerClock,
    sink: OnceLock<Arc<SimSink>>,
}

impl SimTimer {
    pub fn new(inner: Arc<dyn Timer>, process: Arc<Process>, clock: LedgerClock) -> Self {
        Self {
            inner,
            process,
            clock,
            sink: OnceLock::new(),
        }
    }

    /// Raises signals for tasks that are due a little later.
    fn forge(&self, alarms: &[Alarm]) {
        let Some(sink) = self.sink.get() else { return };
        for alarm in alarms {
            if !self.process.strikes(FaultKind::SignalsForged) {
                continue;
            }
            let early = self.process.draw(1, 30);
            let wait = alarm.due.since(self.clock.now());
            let wait = wait.saturating_sub(Duration::from_millis(early));
            let (sink, alarm) = (Arc::clone(sink), alarm.clone());
            tokio::spawn(async move {
                sleep(wait).await;
                sink.process.runs().await;
                sink.inner
                    .raise(Signal::new(alarm.key, Source::Event, alarm.arming));
            });
        }
    }

    async fn pass(&self) -> Result<(), TimerError> {
        self.process.runs().await;
        match self.process.strikes(FaultKind::TimerRefuses) {
            true => Err(TimerError::new("the timer refuses", "a fault")),
            false => Ok(()),
        }
    }
}

#[async_trait]
impl AlarmStore for SimTimer {
    async fn arm(&self, alarms: &[Alarm], mode: ArmMode) -> Result<Armed, TimerError> {
        self.pass().await?;
        self.inner.arm(alarms, mode).await
    }

    fn horizon(&self) -> Option<Duration> {
        self.inner.horizon()
    }

    async fn disarm(&self, keys: &[TaskKey]) -> Result<(), TimerError> {
        self.pass().await?;
        self.inner.disarm(keys).await
    }

    async fn remaining(&self, keys: &[TaskKey]) -> Result<Vec<Remaining>, TimerError> {
        self.pass().await?;
        self.inner.remaining(keys).await
    }
}

#[async_trait]
impl Timer for SimTimer {
    async fn run(&self, sink: Arc<dyn EngineSink>, stop: CancellationToken) {
        let sink = Arc::new(SimSink {
            inner: sink,
            process: Arc::clone(&self.process),
        });
        let _ = self.sink.set(Arc::clone(&sink));
        self.inner.run(sink, stop).await;
    }

    fn expect(&self, alarms: Vec<Alarm>) {
        self.forge(&alarms);
        self.inner.expect(alarms);
    }

    fn scope(&self) -> String {
        self.inner.scope()
    }

    fn entries(self: Arc<Self>) -> Option<Arc<dyn Entries>> {
        Arc::clone(&self.inner).entries()
    }

    fn listening(self: Arc<Self>) -> Option<Arc<dyn Listening>> {
        Arc::clone(&self.inner).listening()
    }
}

struct SimSink {
    inner: Arc<dyn EngineSink>,
    process: Arc<Process>,
}

impl SimSink {
    fn pass_on(&self, signal: Signal) {
        if self.process.strikes(FaultKind::SignalsLate) {
            let (inner, process) = (Arc::clone(&self.inner), Arc::clone(&self.process));
            let late = Duration::from_millis(process.draw(1, 4_000));
            tokio::spawn(async move {
                sleep(late).await;
                process.runs().await;
                inner.raise(signal);
            });
        } else {
            self.inner.raise(signal);
        }
    }
}

impl SignalSink for SimSink {
    fn raise(&self, signal: Signal) {
        let process = &self.process;
        if process.is_dead() {
            return;
        }
        if process.strikes(FaultKind::SignalsForged) {
            let row = process.draw(0, 12);
            let due = UnixMs(signal.arming.map_or(0, |arming| arming.due.0) + 1);
            self.pass_on(Signal {
                arming: Some(Arming { row, due }),
                ..signal.clone()
            });
        }
        if process.strikes(FaultKind::SignalsOld)
            && let Some(arming) = signal.arming
        {
            let due = UnixMs(arming.due.0 - i64::try_from(process.draw(1, 9_000)).unwrap_or(1));
            self.pass_on(Signal {
                arming: Some(Arming { due, ..arming }),
                ..signal.clone()
            });
        }
        if process.strikes(FaultKind::SignalsLost) {
            return;
        }
        if process.strikes(FaultKind::SignalsTwice) {
            self.pass_on(signal.clone());
        }
        self.pass_on(signal);
    }

    fn sweep(&self, cause: Cause) {
        self.inner.sweep(cause);
    }

    fn audit(&self, cause: Cause) {
        self.inner.audit(cause);
    }

    fn wants(&self, key: &TaskKey) -> bool {
        self.inner.wants(key)
    }

    fn owns(&self, key: &TaskKey) -> bool {
        self.inner.owns(key)
    }
}

#[async_trait]
impl AdoptionSink for SimSink {
    fn adopts(&self, key: &TaskKey) -> bool {
        self.inner.adopts(key)
    }

    fn propose(&self, candidate: AdoptionCandidate) {
        self.inner.propose(candidate);
    }

    fn propose_alone(&self, candidate: AdoptionCandidate) {
        self.inner.propose_alone(candidate);
    }

    fn expired_elsewhere(&self, key: &TaskKey, is_notified: bool) {
        self.inner.expired_elsewhere(key, is_notified);
    }

    async fn are_known(&self, keys: &[TaskKey]) -> Option<Vec<bool>> {
        self.inner.are_known(keys).await
    }
}

impl Peers for SimSink {
    fn listener_rank(&self, key: &TaskKey) -> usize {
        self.inner.listener_rank(key)
    }

    fn hint_recipient(&self, key: &TaskKey) -> Option<u64> {
        self.inner.hint_recipient(key)
    }

    fn member(&self) -> Option<u64> {
        self.inner.member()
    }

    fn may_stop_listening(&self, armings: bool) -> bool {
        self.inner.may_stop_listening(armings)
    }
}

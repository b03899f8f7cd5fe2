//! A timer with a sink that remembers, and ways to wait for what it should come to.

use std::sync::{Arc, Mutex};
use std::time::Duration;

use lapsed::clock::{LedgerClock, wall};
use lapsed::config::{Config, NudgeConfig, RedisConfig, SentinelConfig};
use lapsed::engine::Metrics;
use lapsed::task::{Arming, TaskKey, UnixMs};
use lapsed::timer::key_expiry::Events;
use lapsed::timer::key_expiry::KeyExpiry;
use lapsed::timer::{
    AdoptionCandidate, AdoptionSink, Alarm, AlarmStore, ArmMode, Armed, Cause, Listening, Peers,
    Signal, SignalSink, Source, Timer,
};
use tokio::sync::watch;
use tokio_util::sync::{CancellationToken, DropGuard};

use crate::support::wait::{DEADLINE, until};

pub(crate) fn key(name: &str) -> TaskKey {
    TaskKey::build("C", "m", [name]).unwrap()
}

pub(crate) fn keys<const N: usize>(names: [&str; N]) -> [TaskKey; N] {
    names.map(key)
}

/// What a sink was told.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Recorded {
    Raise(Signal, UnixMs),
    Sweep(Cause),
    Audit(Cause),
    Proposed(AdoptionCandidate),
}

/// Remembers everything, and wakes whoever waits for it.
#[derive(Clone)]
pub(crate) struct Recorder {
    clock: LedgerClock,
    events: Arc<Mutex<Vec<Recorded>>>,
    changed: watch::Sender<()>,
}

impl Recorder {
    fn push(&self, event: Recorded) {
        self.events.lock().unwrap().push(event);
        self.changed.send_replace(());
    }

    /// Where the record ends now.
    pub(crate) fn mark(&self) -> usize {
        self.events.lock().unwrap().len()
    }

    pub(crate) fn count(&self, wanted: impl Fn(&Recorded) -> bool) -> usize {
        self.count_after(0, wanted)
    }

    pub(crate) fn count_after(&self, mark: usize, wanted: impl Fn(&Recorded) -> bool) -> usize {
        self.events.lock().unwrap()[mark..]
            .iter()
            .filter(|event| wanted(event))
            .count()
    }

    pub(crate) fn signals(&self) -> Vec<Signal> {
        let signal = |event: &Recorded| match event {
            Recorded::Raise(signal, _) => Some(signal.clone()),
            Recorded::Sweep(_) | Recorded::Audit(_) | Recorded::Proposed(_) => None,
        };
        self.events
            .lock()
            .unwrap()
            .iter()
            .filter_map(signal)
            .collect()
    }

    pub(crate) async fn wait(&self, wanted: impl Fn(&Recorded) -> bool) -> Recorded {
        self.wait_after(0, wanted).await
    }

    pub(crate) async fn wait_after(
        &self,
        mark: usize,
        wanted: impl Fn(&Recorded) -> bool,
    ) -> Recorded {
        let mut changed = self.changed.subscribe();
        let find = || {
            self.events.lock().unwrap()[mark..]
                .iter()
                .find(|event| wanted(event))
                .cloned()
        };
        let found = async {
            loop {
                if let Some(event) = find() {
                    return event;
                }
                changed.changed().await.unwrap();
            }
        };
        let found = tokio::time::timeout(DEADLINE, found).await;
        found.unwrap_or_else(|_| {
            panic!(
                "not within {DEADLINE:?}; recorded: {:?}",
                self.events.lock().unwrap()
            )
        })
    }

    pub(crate) async fn signal(&self, wanted: impl Fn(&Signal) -> bool) -> Signal {
        let is_wanted =
            |event: &Recorded| matches!(event, Recorded::Raise(signal, _) if wanted(signal));
        match self.wait(is_wanted).await {
            Recorded::Raise(signal, _) => signal,
            Recorded::Sweep(_) | Recorded::Audit(_) | Recorded::Proposed(_) => {
                unreachable!("it was asked for a signal")
            }
        }
    }

    /// The first signal of this source for this key, and when it came.
    pub(crate) async fn timed_signal(&self, source: Source, key: &TaskKey) -> (Signal, UnixMs) {
        let is_wanted = |event: &Recorded| matches!(event, Recorded::Raise(signal, _) if signal.source == source && signal.key == *key);
        match self.wait(is_wanted).await {
            Recorded::Raise(signal, at) => (signal, at),
            Recorded::Sweep(_) | Recorded::Audit(_) | Recorded::Proposed(_) => {
                unreachable!("it was asked for a signal")
            }
        }
    }
}

impl SignalSink for Recorder {
    fn raise(&self, signal: Signal) {
        self.push(Recorded::Raise(signal, self.clock.now()));
    }

    fn sweep(&self, cause: Cause) {
        self.push(Recorded::Sweep(cause));
    }

    fn audit(&self, cause: Cause) {
        self.push(Recorded::Audit(cause));
    }

    fn owns(&self, _: &TaskKey) -> bool {
        true
    }

    fn wants(&self, key: &TaskKey) -> bool {
        key.class() == "C"
    }
}

impl AdoptionSink for Recorder {
    fn propose(&self, candidate: AdoptionCandidate) {
        self.push(Recorded::Proposed(candidate));
    }
}

impl Peers for Recorder {}

/// How a timer is set up.
pub(crate) struct Options {
    redis: RedisConfig,
    sentinel: SentinelConfig,
    nudge: NudgeConfig,
    events: Events,
}

impl Options {
    /// As where nothing is adopted and nothing nudged.
    pub(crate) fn hearing_expired_alone(mut self) -> Self {
        self.events = Events::Expired;
        self
    }

    pub(crate) fn without_nudge(mut self) -> Self {
        self.nudge.enabled = false;
        self
    }

    /// How long Redis may be silent before the link counts as lost.
    pub(crate) fn response_timeout(mut self, timeout: Duration) -> Self {
        self.redis.response_timeout = timeout;
        self
    }

    pub(crate) fn prefix(mut self, prefix: &str) -> Self {
        self.redis.key_prefix = prefix.to_owned();
        self
    }

    pub(crate) fn sentinels(mut self, count: u16, interval: Duration) -> Self {
        self.sentinel = SentinelConfig { count, interval };
        self
    }

    /// Starts it, and does not wait for anything.
    pub(crate) fn start(self) -> Daemon {
        let clock = LedgerClock::starting_at(wall());
        let metrics = Arc::new(Metrics::default());
        let timer = KeyExpiry::new(
            &self.redis,
            self.sentinel,
            self.nudge,
            self.events,
            "test".into(),
            clock.clone(),
            Arc::clone(&metrics),
        );
        let timer = Arc::new(timer.unwrap());
        let (events, changed) = (Arc::default(), watch::Sender::new(()));
        let sink = Recorder {
            clock: clock.clone(),
            events,
            changed,
        };
        let stop = CancellationToken::new();
        let (running, to_sink, until) = (Arc::clone(&timer), Arc::new(sink.clone()), stop.clone());
        tokio::spawn(async move { running.run(to_sink, until).await });
        Daemon {
            timer,
            sink,
            metrics,
            clock,
            _stop_on_drop: stop.clone().drop_guard(),
            stop,
        }
    }

    /// Starts it and waits until it hears events.
    pub(crate) async fn listen(self) -> Daemon {
        let daemon = self.start();
        daemon.is_listening_becomes(true).await;
        daemon
    }
}

/// A running timer; stopped on drop.
pub(crate) struct Daemon {
    pub(crate) timer: Arc<KeyExpiry>,
    pub(crate) sink: Recorder,
    pub(crate) stop: CancellationToken,
    metrics: Arc<Metrics>,
    pub(crate) clock: LedgerClock,
    _stop_on_drop: DropGuard,
}

impl Daemon {
    pub(crate) fn default_on(url: &str) -> Options {
        let Config {
            redis,
            sentinel,
            nudge,
            ..
        } = Config::default();
        let redis = RedisConfig {
            url: url.into(),
            ..redis
        };
        Options {
            redis,
            sentinel,
            nudge,
            events: Events::ExpiredAndArmings,
        }
    }

    pub(crate) fn now(&self) -> UnixMs {
        self.clock.now()
    }

    /// An alarm so many milliseconds from now.
    pub(crate) fn alarm(&self, name: &str, in_ms: i64) -> Alarm {
        let due = UnixMs(self.now().0 + in_ms);
        let arming = Some(Arming { row: 7, due });
        Alarm {
            key: key(name),
            due,
            arming,
        }
    }

    pub(crate) async fn arm(&self, alarms: &[Alarm], mode: ArmMode) -> Armed {
        self.timer.arm(alarms, mode).await.unwrap()
    }

    pub(crate) async fn is_listening_becomes(&self, listening: bool) {
        until(format!("listening is {listening}"), async || {
            self.timer.is_listening() == listening
        })
        .await;
    }

    /// Waits until the metrics contain this text.
    pub(crate) async fn counts(&self, text: &str) {
        until(format!("the metrics contain `{text}`"), async || {
            self.metrics.render().contains(text)
        })
        .await;
    }
}

impl Drop for Daemon {
    fn drop(&mut self) {
        if std::thread::panicking() {
            eprintln!("{}", self.metrics.render());
        }
    }
}

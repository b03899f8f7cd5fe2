//! A running timer, and a sink that remembers its signals.

use std::collections::HashMap;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use lapsed::clock::{LedgerClock, wall};
use lapsed::timer::{
    AdoptionCandidate, AdoptionSink, Alarm, ArmMode, Cause, Peers, Signal, SignalSink, Timer,
};
use lapsed::{Config, TaskKey, UnixMs};
use lapsed_sandbox::PrivateRedis;
use tokio::task::JoinHandle;
use tokio::time::timeout;
use tokio_util::sync::{CancellationToken, DropGuard};

use super::TimerUnderTest;
use crate::support::wait::{DEADLINE, until};

pub fn key(name: impl ToString) -> TaskKey {
    TaskKey::build("C", "m", [name.to_string()]).unwrap()
}

/// Remembers when each key was signalled, by the ledger's clock.
pub struct Sink {
    clock: LedgerClock,
    signals: Mutex<HashMap<TaskKey, Vec<UnixMs>>>,
}

impl SignalSink for Sink {
    fn raise(&self, signal: Signal) {
        let now = self.clock.now();
        let mut signals = self.signals.lock().unwrap();
        signals.entry(signal.key).or_default().push(now);
    }

    fn sweep(&self, _: Cause) {}

    fn audit(&self, _: Cause) {}

    fn wants(&self, key: &TaskKey) -> bool {
        key.class() == "C"
    }

    fn owns(&self, _: &TaskKey) -> bool {
        true
    }
}

impl AdoptionSink for Sink {
    fn propose(&self, _: AdoptionCandidate) {}
}

impl Peers for Sink {}

/// A running timer; stopped on drop.
pub struct Running {
    pub timer: Arc<dyn Timer>,
    pub sink: Arc<Sink>,
    pub clock: LedgerClock,
    stop: CancellationToken,
    running: JoinHandle<()>,
    _stop_on_drop: DropGuard,
}

impl Running {
    /// Starts a timer on this server, and waits until it receives events, if it does at all.
    pub async fn start(under_test: TimerUnderTest, redis: &PrivateRedis) -> Self {
        Self::start_at(under_test, redis, 0).await
    }

    /// As [`start`](Self::start). The ledger's clock is so many milliseconds ahead of the local one.
    pub async fn start_at(under_test: TimerUnderTest, redis: &PrivateRedis, ahead_ms: i64) -> Self {
        let settings = format!(
            "timer = '{}'\nredis.url = '{}'",
            under_test.name,
            redis.url()
        );
        let config = Config::from_toml(&settings).unwrap();
        let clock = LedgerClock::starting_at(UnixMs(wall().0 + ahead_ms));
        let timer = (under_test.build)(&config, clock.clone());
        let sink = Arc::new(Sink {
            clock: clock.clone(),
            signals: Mutex::default(),
        });
        let stop = CancellationToken::new();
        let (running, to, until_stop) = (Arc::clone(&timer), Arc::clone(&sink), stop.clone());
        let running = tokio::spawn(async move { running.run(to, until_stop).await });
        until("the timer is ready", async || {
            let server = Arc::clone(&timer).listening();
            server.is_none_or(|server| server.is_listening())
        })
        .await;
        // It has been polled at least once.
        tokio::task::yield_now().await;
        Self {
            timer,
            sink,
            clock,
            _stop_on_drop: stop.clone().drop_guard(),
            stop,
            running,
        }
    }

    /// An alarm so many milliseconds from now.
    pub fn alarm(&self, name: impl ToString, in_ms: i64) -> Alarm {
        Alarm {
            key: key(name),
            due: UnixMs(self.clock.now().0 + in_ms),
            arming: None,
        }
    }

    pub async fn arm(&self, alarms: &[Alarm], mode: ArmMode) {
        let armed = self.timer.arm(alarms, mode).await.unwrap();
        assert_eq!(armed.written + armed.present, alarms.len(), "{armed:?}");
    }

    /// When the key was signalled so far.
    pub fn signals(&self, key: &TaskKey) -> Vec<UnixMs> {
        let signals = self.sink.signals.lock().unwrap();
        signals.get(key).cloned().unwrap_or_default()
    }

    /// Waits until each of these alarms was signalled, and checks that none was before its due time.
    pub async fn signalled(&self, alarms: &[Alarm]) {
        until(
            format!("{} alarms are signalled", alarms.len()),
            async || {
                let signals = self.sink.signals.lock().unwrap();
                alarms.iter().all(|alarm| signals.contains_key(&alarm.key))
            },
        )
        .await;
        for alarm in alarms {
            let first = self.signals(&alarm.key)[0];
            assert!(
                first >= alarm.due,
                "{} at {first}, due {}",
                alarm.key,
                alarm.due
            );
        }
    }

    /// Stops it, and waits for its end.
    pub async fn stop(self) {
        self.stop.cancel();
        let ended = timeout(DEADLINE.min(Duration::from_secs(10)), self.running).await;
        ended.expect("the timer ends").unwrap();
    }
}

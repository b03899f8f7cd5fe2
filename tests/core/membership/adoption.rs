//! Who writes the rows of keys that programs armed.

use std::sync::atomic::Ordering;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use async_trait::async_trait;
use lapsed::ledger::{Admin, Ledger};
use lapsed::membership::{REFRESH, Readiness};
use lapsed::task::{Countdown, Removal, State, TaskKey, UnixMs};
use lapsed::timer::{
    AdoptionCandidate, Alarm, AlarmStore, ArmMode, Armed, EngineSink, Listening, Remaining, Seen,
    Timer, TimerError,
};
use tokio::time::{Instant, sleep};
use tokio_util::sync::CancellationToken;

use crate::membership::rig::{Daemon, Ground};

/// A timer that sees what it is told to.
#[derive(Default)]
struct Told(Mutex<Option<Arc<dyn EngineSink>>>);

#[async_trait]
impl AlarmStore for Told {
    async fn arm(&self, _: &[Alarm], _: ArmMode) -> Result<Armed, TimerError> {
        Ok(Armed::default())
    }

    async fn disarm(&self, _: &[TaskKey]) -> Result<(), TimerError> {
        Ok(())
    }

    async fn remaining(&self, keys: &[TaskKey]) -> Result<Vec<Remaining>, TimerError> {
        Ok(vec![Remaining::Missing; keys.len()])
    }
}

#[async_trait]
impl Timer for Told {
    async fn run(&self, sink: Arc<dyn EngineSink>, stop: CancellationToken) {
        *self.0.lock().unwrap() = Some(sink);
        stop.cancelled().await;
    }

    fn expect(&self, _: Vec<Alarm>) {}

    fn listening(self: Arc<Self>) -> Option<Arc<dyn Listening>> {
        Some(self)
    }
}

impl Listening for Told {
    fn is_listening(&self) -> bool {
        true
    }
}

/// A daemon beside an elder one that is believed to hear everything.
struct Second {
    ground: Ground,
    daemon: Daemon,
    timer: Arc<Told>,
}

impl Second {
    async fn start() -> Self {
        let ground = Ground::new();
        let shown = ground.clone();
        tokio::spawn(async move {
            loop {
                shown
                    .show_hearing(7, Readiness::Ready, "Job@run", true)
                    .await;
                sleep(REFRESH).await;
            }
        });
        let timer = Arc::new(Told::default());
        let daemon = ground.daemon_with(Arc::clone(&timer) as _);
        daemon.until_members(2).await;
        Self {
            ground,
            daemon,
            timer,
        }
    }

    fn now(&self) -> UnixMs {
        self.ground.ledger.clock().now()
    }

    fn sees(&self, key: &TaskKey, seen: Seen) {
        let sink = self.timer.0.lock().unwrap().clone().unwrap();
        let key = key.clone();
        sink.propose(AdoptionCandidate::of_key(key, seen));
    }

    fn armed_for_a_minute(&self) -> Seen {
        let now = self.now();
        Seen::Armed(Countdown {
            due: now.plus(Duration::from_secs(60)),
            tolerance: Duration::ZERO,
            alive_at: Some(now),
            heard: Some(now),
            late: false,
            kept_since: None,
            meant: None,
        })
    }

    async fn until(&self, key: &TaskKey, state: State) -> Duration {
        let began = Instant::now();
        loop {
            let found = self.ground.ledger.find(key).await.unwrap();
            if found.is_some_and(|record| record.state == state) {
                return began.elapsed();
            }
            assert!(began.elapsed() < Duration::from_secs(30), "not {state}");
            sleep(Duration::from_millis(1)).await;
        }
    }
}

fn key() -> TaskKey {
    TaskKey::parse("Job@run@1").unwrap()
}

#[tokio::test(start_paused = true)]
async fn the_second_listener_waits_only_while_the_first_is_alive() {
    for (gone, armed_ms, deleted_ms) in [(false, 1_500, 1_000), (true, 500, 0)] {
        let second = Second::start().await;
        second.ground.others_are_gone.store(gone, Ordering::SeqCst);
        second.sees(&key(), second.armed_for_a_minute());
        let took = second.until(&key(), State::Pending).await;
        let is_near = |took: Duration, ms: u128| (ms..ms + 50).contains(&took.as_millis());
        assert!(is_near(took, armed_ms), "{gone}: adopted after {took:?}");
        second.sees(&key(), Seen::Disarmed(Removal::at(second.now())));
        let took = second.until(&key(), State::Cancelled).await;
        assert!(
            is_near(took, deleted_ms),
            "{gone}: cancelled after {took:?}"
        );
        second.daemon.stop().await;
    }
}

#[tokio::test(start_paused = true)]
async fn the_second_listener_acts_soon_after_the_first_is_lost() {
    let second = Second::start().await;
    second.sees(&key(), second.armed_for_a_minute());
    sleep(Duration::from_millis(600)).await;
    second.ground.others_are_gone.store(true, Ordering::SeqCst);
    let took = second.until(&key(), State::Pending).await;
    assert!(took <= Duration::from_millis(250), "{took:?}");
}

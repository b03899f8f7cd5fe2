//! Keys that a program armed itself, while the ledger has faults.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use async_trait::async_trait;
use lapsed::ledger::memory::MemoryLedger;
use lapsed::ledger::{
    Admin, Adoption, AdoptionRequest, Claims, Ledger, NewTask, Producer, Scans, TaskRecord,
};
use lapsed::task::{Countdown, State, TaskKey, UnixMs};
use lapsed::timer::{
    AdoptionCandidate, Alarm, AlarmStore, ArmMode, Armed, EngineSink, Listening, Remaining, Seen,
    Signal, Source, Timer, TimerError,
};
use lapsed::{Config, Engine, Handlers};
use tokio::sync::{mpsc, oneshot};
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;

use crate::engine::faults::Faults;
use crate::engine::faulty::Faulty;
use crate::engine::rig::{START, parts};
use crate::middleware::logs::Log;

/// A timer whose server some program has armed keys on.
#[derive(Debug, Default)]
struct Sees {
    candidates: Vec<AdoptionCandidate>,
    expired: Vec<TaskKey>,
    expired_after: Duration,
    /// Whether the keys that it saw are still there.
    still_there: bool,
}

#[async_trait]
impl AlarmStore for Sees {
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
impl Timer for Sees {
    async fn run(&self, sink: Arc<dyn EngineSink>, stop: CancellationToken) {
        for candidate in &self.candidates {
            assert!(sink.wants(&candidate.key));
            sink.propose(candidate.clone());
        }
        tokio::time::sleep(self.expired_after).await;
        for key in &self.expired {
            sink.raise(Signal::new(key.clone(), Source::Event, None));
        }
        stop.cancelled().await;
    }

    fn expect(&self, _: Vec<Alarm>) {}

    fn listening(self: Arc<Self>) -> Option<Arc<dyn Listening>> {
        Some(self)
    }
}

#[async_trait]
impl Listening for Sees {
    fn is_listening(&self) -> bool {
        true
    }

    async fn inspect(
        &self,
        keys: &[TaskKey],
        _: UnixMs,
    ) -> Result<Vec<Option<Countdown>>, TimerError> {
        let seen = |key: &TaskKey| {
            let mut candidates = self.candidates.iter();
            let Seen::Armed(seen) = candidates.find(|seen| seen.key == *key)?.seen else {
                return None;
            };
            self.still_there.then_some(Countdown {
                heard: None,
                ..seen
            })
        };
        Ok(keys.iter().map(seen).collect())
    }
}

/// A key armed for a minute from the start.
fn armed(key: &TaskKey) -> AdoptionCandidate {
    let seen = Seen::Armed(Countdown {
        tolerance: Duration::ZERO,
        alive_at: Some(START),
        due: UnixMs(START.0 + 60_000),
        heard: Some(START),
        late: false,
        kept_since: None,
        meant: None,
    });
    AdoptionCandidate::of_key(key.clone(), seen)
}

/// An engine on this ledger whose timer sees this; and a word of each run of its only handler, of `Job@m`.
fn engine_that(sees: Sees, ledger: Arc<dyn Ledger>) -> (Engine, mpsc::UnboundedReceiver<()>) {
    let (ran, runs) = mpsc::unbounded_channel();
    let mut handlers = Handlers::new();
    handlers.on(("Job", "m"), move |_: Vec<String>| {
        let ran = ran.clone();
        async move { Ok(ran.send(())?) }
    });
    let config = Config::default();
    let parts = parts(ledger, Arc::new(sees), handlers, &config);
    (Engine::with_parts(parts, &config), runs)
}

/// Until then, a sweep has found the task that takes the slot.
const BUSY_FROM: Duration = Duration::from_secs(10);

/// Runs an engine whose only slot for these keys is taken until it stops. The keys expire without a row; the engine stops
/// `after` that. Returns how many of them have a row then, before and after the stop.
async fn rows_of_waiting_keys(after: Duration) -> (usize, usize) {
    let ledger = Arc::new(MemoryLedger::new(START));
    let keys = (0..10).map(|n| TaskKey::build("Job", "busy", [n.to_string()]).unwrap());
    let keys: Vec<TaskKey> = keys.collect();
    let sees = Sees {
        expired: keys.clone(),
        expired_after: BUSY_FROM,
        ..Sees::default()
    };
    let mut handlers = Handlers::new();
    let busy = handlers.on(("Job", "busy"), |_: Vec<String>| std::future::pending());
    busy.concurrency(1);
    let config = Config::default();
    let first = TaskKey::parse("Job@busy@first").unwrap();
    let first = ledger.create(&[NewTask::new(first, START)]).await.unwrap()[0].arming;
    let parts = parts(Arc::clone(&ledger) as _, Arc::new(sees), handlers, &config);
    let rows = async || {
        let found = ledger.look_up(&keys).await.unwrap();
        found.iter().flatten().count()
    };
    let mut before = 0;
    let outcome = async {
        tokio::time::sleep(BUSY_FROM + after).await;
        let claimable = ledger.claimable(&[first.row]).await.unwrap();
        assert!(claimable.is_empty(), "the slot is taken");
        before = rows().await;
    };
    let engine = Engine::with_parts(parts, &config);
    engine.run_until(outcome).await.unwrap();
    (before, rows().await)
}

#[tokio::test(start_paused = true)]
async fn an_expired_key_without_a_row_gets_one_before_it_waits_for_its_route() {
    assert_eq!(
        rows_of_waiting_keys(Duration::from_millis(300)).await,
        (10, 10)
    );
}

#[tokio::test(start_paused = true)]
async fn an_expired_key_without_a_row_gets_one_when_the_engine_stops() {
    assert_eq!(
        rows_of_waiting_keys(Duration::from_millis(5)).await,
        (0, 10)
    );
}

/// Runs an engine whose timer sees this, on a ledger with a fault that passes after ten seconds; tells how long it took from
/// then until the task ran.
async fn adopted_after(timer: Sees, fault: fn(&Faults) -> &AtomicBool) -> Duration {
    let inner = Arc::new(MemoryLedger::new(START));
    let faults = Arc::new(Faults::default());
    fault(&faults).store(true, Ordering::SeqCst);
    let ledger = Arc::new(Faulty::new(Arc::clone(&inner), Arc::clone(&faults)));
    let (engine, mut runs) = engine_that(timer, ledger);
    let (told, took) = oneshot::channel();
    let outcome = async {
        tokio::time::sleep(Duration::from_secs(10)).await;
        let key = TaskKey::parse("Job@m@1").unwrap();
        assert_eq!(inner.find(&key).await.unwrap(), None);
        fault(&faults).store(false, Ordering::SeqCst);
        let passed = Instant::now();
        let ran = tokio::time::timeout(Duration::from_secs(120), runs.recv()).await;
        assert!(ran.is_ok(), "it was lost");
        let record = inner.find(&key).await.unwrap().unwrap();
        assert!(record.adopted);
        assert!(record.created <= record.due, "its lateness is seen");
        told.send(passed.elapsed()).unwrap();
    };
    engine.run_until(outcome).await.unwrap();
    took.await.unwrap()
}

#[tokio::test(start_paused = true)]
async fn a_key_is_adopted_when_the_ledger_answers_again() {
    let key = TaskKey::parse("Job@m@1").unwrap();
    let timer = Sees {
        candidates: vec![armed(&key)],
        ..Sees::default()
    };
    let took = adopted_after(timer, |faults| &faults.look_up_fails).await;
    assert!(took >= Duration::from_secs(49), "{took:?}");
}

#[tokio::test(start_paused = true)]
async fn a_key_that_expires_without_a_row_is_kept_during_an_outage() {
    let key = TaskKey::parse("Job@m@1").unwrap();
    for fault in [
        (|faults| &faults.look_up_fails) as fn(&Faults) -> &AtomicBool,
        |faults| &faults.adopt_fails,
    ] {
        let timer = Sees {
            expired: vec![key.clone()],
            ..Sees::default()
        };
        let took = adopted_after(timer, fault).await;
        assert!(took < Duration::from_secs(5), "{took:?}");
    }
}

#[tokio::test(start_paused = true)]
async fn a_key_that_could_not_be_adopted_before_the_stop_is_named_in_the_log() {
    let log = Log::default();
    let _listening = log.listen(tracing::Level::WARN);
    let faults = Arc::new(Faults::default());
    faults.adopt_fails.store(true, Ordering::SeqCst);
    let inner = Arc::new(MemoryLedger::new(START));
    let ledger = Arc::new(Faulty::new(Arc::clone(&inner), faults));
    let key = TaskKey::parse("Job@m@left").unwrap();
    let timer = Sees {
        expired: vec![key.clone()],
        ..Sees::default()
    };
    let (engine, _runs) = engine_that(timer, ledger);
    let shutdown = tokio::time::sleep(Duration::from_secs(5));
    engine.run_until(shutdown).await.unwrap();
    assert_eq!(inner.find(&key).await.unwrap(), None);
    let lines = log.lines_with("stopping without having written");
    assert!(
        lines.len() == 1 && lines[0].contains("Job@m@left"),
        "{lines:?}"
    );
}

#[tokio::test(start_paused = true)]
async fn an_event_that_met_an_outage_does_not_run_a_finished_task_again() {
    let inner = Arc::new(MemoryLedger::new(START));
    let faults = Arc::new(Faults::default());
    faults.look_up_fails.store(true, Ordering::SeqCst);
    let ledger = Arc::new(Faulty::new(Arc::clone(&inner), Arc::clone(&faults)));
    let key = TaskKey::parse("Job@m@1").unwrap();
    let adopted = AdoptionRequest {
        key: key.clone(),
        due: UnixMs(START.0 - 2_001),
        heard: UnixMs(START.0 - 5_000),
        from_key: true,
        is_entry: false,
        over: None,
        payload: None,
    };
    inner.adopt(&[adopted]).await.unwrap();
    let timer = Sees {
        expired: vec![key.clone()],
        expired_after: Duration::from_secs(5),
        ..Sees::default()
    };
    let (engine, mut runs) = engine_that(timer, ledger);
    let outcome = async {
        runs.recv().await.unwrap(); // by the sweep
        tokio::time::sleep(Duration::from_secs(10)).await;
        faults.look_up_fails.store(false, Ordering::SeqCst);
        tokio::time::sleep(Duration::from_secs(10)).await;
    };
    engine.run_until(outcome).await.unwrap();
    assert!(runs.try_recv().is_err(), "it ran twice");
    assert_eq!(inner.find(&key).await.unwrap().unwrap().state, State::Done);
}

/// What an engine makes of a key of `Job@m` that was armed at the start for a minute later, over a task due in a quarter of
/// an hour from a key, if this happens while the candidate waits.
async fn adopt_while(
    still_there: bool,
    act: impl AsyncFnOnce(&MemoryLedger, &TaskKey),
) -> TaskRecord {
    let key = TaskKey::parse("Job@m@1").unwrap();
    let ledger = Arc::new(MemoryLedger::new(START));
    let adopted = AdoptionRequest {
        key: key.clone(),
        due: UnixMs(START.0 + 900_001),
        heard: UnixMs(START.0 - 10_000),
        from_key: true,
        is_entry: false,
        over: None,
        payload: None,
    };
    ledger.adopt(&[adopted]).await.unwrap();
    let timer = Sees {
        candidates: vec![armed(&key)],
        still_there,
        ..Sees::default()
    };
    let (engine, _runs) = engine_that(timer, Arc::clone(&ledger) as _);
    let outcome = async {
        tokio::time::sleep(Duration::from_millis(150)).await;
        act(&ledger, &key).await;
        tokio::time::sleep(Duration::from_secs(10)).await;
    };
    engine.run_until(outcome).await.unwrap();
    ledger.find(&key).await.unwrap().unwrap()
}

#[tokio::test(start_paused = true)]
async fn a_waiting_candidate_does_not_undo_a_later_acknowledged_change() {
    // Whether or not the older key is found where it was: redis may have died and come back with it.
    for still_there in [false, true] {
        let cancelled = adopt_while(still_there, async |ledger, key| {
            ledger.cancel(std::slice::from_ref(key)).await.unwrap();
        });
        assert_eq!(cancelled.await.state, State::Cancelled);

        let due = UnixMs(START.0 + 20_000);
        let created = adopt_while(still_there, async |ledger, key| {
            let task = NewTask::new(key.clone(), due);
            ledger.create(&[task]).await.unwrap();
        });
        assert_eq!(created.await.due, due);

        let moved = adopt_while(still_there, async |ledger, key| {
            ledger.reschedule(key, due).await.unwrap();
        });
        assert_eq!(moved.await.due, due);
    }
}

#[tokio::test(start_paused = true)]
async fn a_candidate_newer_than_the_last_change_moves_the_task() {
    let moved = adopt_while(true, async |_, _| {}).await;
    assert_eq!(moved.due, UnixMs(START.0 + 60_001));
    assert_eq!(moved.created, START, "when it was armed");
}

#[tokio::test(start_paused = true)]
async fn a_scanned_key_has_the_age_of_its_inspection() {
    let key = TaskKey::parse("Job@m@1").unwrap();
    let mut found = armed(&key);
    if let Seen::Armed(seen) = &mut found.seen {
        seen.heard = None;
    }
    let timer = Sees {
        candidates: vec![found],
        ..Sees::default()
    };
    let ledger = Arc::new(MemoryLedger::new(START));
    let (engine, _runs) = engine_that(timer, Arc::clone(&ledger) as _);
    let stop = tokio::time::sleep(Duration::from_secs(10));
    engine.run_until(stop).await.unwrap();
    let record = ledger.find(&key).await.unwrap().unwrap();
    assert_eq!(record.created, START);
}

/// State of a task that was cancelled just before its key was heard to be armed.
async fn armed_just_after_a_cancellation(still_there: bool) -> State {
    let key = TaskKey::parse("Job@m@1").unwrap();
    let ledger = Arc::new(MemoryLedger::new(START));
    let task = NewTask::new(key.clone(), UnixMs(START.0 + 60_000));
    ledger.create(&[task]).await.unwrap();
    ledger.cancel(std::slice::from_ref(&key)).await.unwrap();
    let timer = Sees {
        candidates: vec![armed(&key)],
        still_there,
        ..Sees::default()
    };
    let (engine, _runs) = engine_that(timer, Arc::clone(&ledger) as _);
    let stop = tokio::time::sleep(Duration::from_secs(10));
    engine.run_until(stop).await.unwrap();
    ledger.find(&key).await.unwrap().unwrap().state
}

#[tokio::test(start_paused = true)]
async fn a_new_inspection_decides_if_clocks_cannot() {
    assert_eq!(armed_just_after_a_cancellation(true).await, State::Pending);
    let gone = armed_just_after_a_cancellation(false).await;
    assert_eq!(gone, State::Cancelled, "the cancellation deleted it");
}

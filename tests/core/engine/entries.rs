//! A timer whose entries stay until they are removed: the engine answers entries of programs, and reports ended tasks.

use std::slice;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use async_trait::async_trait;
use lapsed::ledger::memory::MemoryLedger;
use lapsed::ledger::{Admin, Claims, NewTask, Producer};
use lapsed::task::{State, TaskKey, UnixMs};
use lapsed::timer::{
    self, Acknowledgement, AdoptionCandidate, Alarm, AlarmStore, ArmMode, Armed, ArmedPage,
    EngineSink, EntryState, Listening, Remaining, Seen, Signal, Source, Timer, TimerError,
};
use lapsed::{Config, Engine, HandlerError, Handlers};
use tokio::sync::{mpsc, oneshot};
use tokio_util::sync::CancellationToken;

use crate::engine::rig::{START, parts};

/// The payload of an entry.
const PAYLOAD: &str = r#"{"uid":7}"#;

/// A timer that keeps entries, and what the engine told it.
struct Entries {
    requested: Vec<(TaskKey, UnixMs)>,
    overdue: Vec<Alarm>,
    expected: mpsc::UnboundedSender<Alarm>,
    alarms: Mutex<Option<mpsc::UnboundedReceiver<Alarm>>>,
    acknowledged: mpsc::UnboundedSender<Acknowledgement>,
    ended: mpsc::UnboundedSender<Alarm>,
    /// It has lost its data, and the tasks of this ledger end while their entries are written again.
    lost_with: Option<Arc<MemoryLedger>>,
}

#[async_trait]
impl AlarmStore for Entries {
    async fn arm(&self, alarms: &[Alarm], mode: ArmMode) -> Result<Armed, TimerError> {
        let mut armed = Armed::default();
        if let (Some(ledger), ArmMode::IfMissing) = (&self.lost_with, mode) {
            let keys: Vec<TaskKey> = alarms.iter().map(|alarm| alarm.key.clone()).collect();
            ledger.cancel(&keys).await.unwrap();
            armed.written = keys.len();
        }
        Ok(armed)
    }

    async fn disarm(&self, _: &[TaskKey]) -> Result<(), TimerError> {
        Ok(())
    }

    async fn remaining(&self, keys: &[TaskKey]) -> Result<Vec<Remaining>, TimerError> {
        Ok(vec![Remaining::Missing; keys.len()])
    }
}

#[async_trait]
impl Timer for Entries {
    async fn run(&self, sink: Arc<dyn EngineSink>, stop: CancellationToken) {
        for (key, due) in &self.requested {
            let heard = UnixMs(START.0 + 60_000);
            sink.propose(AdoptionCandidate {
                key: key.clone(),
                seen: Seen::Requested { due: *due, heard },
                payload: Some(PAYLOAD.into()),
            });
        }
        let mut alarms = self.alarms.lock().unwrap().take().expect("run once");
        let raise = async {
            while let Some(Alarm { key, arming, .. }) = alarms.recv().await {
                sink.raise(Signal::new(key, Source::Nudge, arming));
            }
        };
        stop.run_until_cancelled(raise).await;
    }

    fn expect(&self, alarms: Vec<Alarm>) {
        for alarm in alarms {
            self.expected.send(alarm).unwrap();
        }
    }

    fn entries(self: Arc<Self>) -> Option<Arc<dyn timer::Entries>> {
        Some(self)
    }

    fn listening(self: Arc<Self>) -> Option<Arc<dyn Listening>> {
        Some(self)
    }
}

#[async_trait]
impl timer::Entries for Entries {
    fn counts_absence(&self, _: Option<&TaskKey>) -> bool {
        self.lost_with.is_some()
    }

    async fn acknowledge(&self, entries: &[Acknowledgement]) -> Result<(), TimerError> {
        for entry in entries {
            self.acknowledged.send(entry.clone()).unwrap();
        }
        Ok(())
    }

    async fn settle(&self, ended: &[Alarm]) -> Result<(), TimerError> {
        for entry in ended {
            self.ended.send(entry.clone()).unwrap();
        }
        Ok(())
    }
}

#[async_trait]
impl Listening for Entries {
    fn is_listening(&self) -> bool {
        true
    }

    async fn scan_foreign(
        &self,
        _: Option<u64>,
        _: &(dyn for<'a> Fn(&'a TaskKey) -> bool + Send + Sync),
    ) -> Result<ArmedPage, TimerError> {
        Ok(ArmedPage {
            overdue: self.overdue.clone(),
            ..ArmedPage::default()
        })
    }
}

#[tokio::test(start_paused = true)]
async fn entries_of_programs_are_answered_and_those_of_ended_tasks_removed() {
    let ledger = Arc::new(MemoryLedger::new(START));
    let key = |name: &str| TaskKey::build("Job", "run", [name]).unwrap();
    let due = |ms: i64| UnixMs(START.0 + ms);
    let (new, known, kept, done) = (key("new"), key("known"), key("kept"), key("done"));
    for key in [&known, &kept] {
        let task = NewTask::new(key.clone(), due(900_001));
        ledger.create(&[task]).await.unwrap();
    }
    let task = NewTask::new(done.clone(), due(900_001));
    ledger.create(&[task]).await.unwrap();
    ledger.cancel(slice::from_ref(&done)).await.unwrap();

    let (acknowledged, mut answers) = mpsc::unbounded_channel();
    let (ended, mut removed) = mpsc::unbounded_channel();
    let (expected, alarms) = mpsc::unbounded_channel();
    let entry = |key: &TaskKey, due| Alarm {
        key: key.clone(),
        due,
        arming: None,
    };
    let timer = Entries {
        requested: vec![(new.clone(), due(-5_000)), (known.clone(), due(900_001))],
        // One of them has no row: that is no proof that its task has ended.
        overdue: vec![
            entry(&key("without_row"), due(-1)),
            entry(&done, due(-1)),
            entry(&kept, due(-1)),
        ],
        expected,
        alarms: Mutex::new(Some(alarms)),
        acknowledged,
        ended,
        lost_with: None,
    };
    let mut handlers = Handlers::new();
    handlers.on(("Job", "run"), |_: Vec<String>| async {
        Err::<(), _>(HandlerError::permanent("it cannot be done"))
    });
    let config = Config::default();
    let parts = parts(Arc::clone(&ledger) as _, Arc::new(timer), handlers, &config);
    let (stop, stopped) = oneshot::channel::<()>();
    let engine = tokio::spawn(Engine::with_parts(parts, &config).run_until(async {
        let _ = stopped.await;
    }));

    let mut answered = [answers.recv().await.unwrap(), answers.recv().await.unwrap()];
    answered.sort_by(|a, b| a.key.cmp(&b.key));
    let answer = |key: &TaskKey, due| Acknowledgement {
        key: key.clone(),
        requested: due,
        state: EntryState::Pending(due),
    };
    assert_eq!(
        answered,
        [answer(&known, due(900_001)), answer(&new, due(-5_000))]
    );
    let mut settled = [removed.recv().await.unwrap(), removed.recv().await.unwrap()];
    settled.sort_by(|a, b| a.key.cmp(&b.key));
    let gone: Vec<(&TaskKey, UnixMs)> = settled
        .iter()
        .map(|entry| (&entry.key, entry.due))
        .collect();
    assert_eq!(gone, [(&done, due(-1)), (&new, due(-5_000))]);
    let row = ledger
        .look_up(slice::from_ref(&new))
        .await
        .unwrap()
        .remove(0);
    assert_eq!(row.unwrap().state, State::Dead);
    let task = ledger.find(&new).await.unwrap().unwrap();
    assert_eq!(task.payload.as_deref(), Some(PAYLOAD));
    stop.send(()).unwrap();
    tokio::time::timeout(Duration::from_secs(60), engine)
        .await
        .unwrap()
        .unwrap()
        .unwrap();
}

#[tokio::test(start_paused = true)]
async fn an_entry_that_an_audit_writes_for_a_due_task_that_has_just_ended_is_removed() {
    let ledger = Arc::new(MemoryLedger::new(START));
    // No route takes it, so that nothing but the audit looks at it.
    let waits = TaskKey::build("Other", "run", ["waits"]).unwrap();
    let task = NewTask::new(waits.clone(), UnixMs(START.0 - 5_000));
    ledger.create(&[task]).await.unwrap();
    let (ended, mut removed) = mpsc::unbounded_channel();
    let (expected, alarms) = mpsc::unbounded_channel();
    let timer = Entries {
        requested: Vec::new(),
        overdue: Vec::new(),
        expected,
        alarms: Mutex::new(Some(alarms)),
        acknowledged: mpsc::unbounded_channel().0,
        ended,
        lost_with: Some(Arc::clone(&ledger)),
    };
    let mut handlers = Handlers::new();
    handlers.on(("Job", "run"), |_: Vec<String>| async {
        Ok::<(), HandlerError>(())
    });
    let config = Config::default();
    let parts = parts(Arc::clone(&ledger) as _, Arc::new(timer), handlers, &config);
    let (stop, stopped) = oneshot::channel::<()>();
    let engine = tokio::spawn(Engine::with_parts(parts, &config).run_until(async {
        let _ = stopped.await;
    }));
    let removed = tokio::time::timeout(Duration::from_secs(600), removed.recv());
    assert_eq!(removed.await.unwrap().unwrap().key, waits);
    stop.send(()).unwrap();
    tokio::time::timeout(Duration::from_secs(60), engine)
        .await
        .unwrap()
        .unwrap()
        .unwrap();
}

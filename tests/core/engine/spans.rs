//! What a tracer is told: the spans of tasks, and which causes which.

use std::sync::{Arc, Mutex};
use std::time::Duration;

use lapsed::engine::Report;
use lapsed::ledger::memory::MemoryLedger;
use lapsed::ledger::{Admin, Ledger};
use lapsed::task::{State, TaskKey};
use lapsed::timer::Timer;
use lapsed::timer::ledger_poll::LedgerPoll;
use lapsed::trace::{SpanEnd, SpanStart, Step, TaskSpan, Tracer};
use lapsed::{Config, Engine, HandlerError, Handlers, Task, TaskClient, TaskContext, Traceparent};
use tokio::sync::oneshot;

use crate::engine::rig::{START, parts, until};

const TRACE: u128 = 0xa11;
/// The trace of a task that has none.
const NEW_TRACE: u128 = 0xbee;

/// Keeps the spans that it is told. Their ids are 1, 2, 3, ..
#[derive(Default)]
struct Recorder(Arc<Mutex<Vec<Recorded>>>);

#[derive(Debug, Clone)]
struct Recorded {
    step: Step,
    parent: Option<u64>,
    context: Traceparent,
    attempt: Option<u16>,
    /// Once it has ended: its result and its error.
    end: Option<(String, Option<String>)>,
}

struct Handle {
    spans: Arc<Mutex<Vec<Recorded>>>,
    place: usize,
}

impl Tracer for Recorder {
    fn start(&self, span: SpanStart<'_>) -> Box<dyn TaskSpan> {
        let mut spans = self.0.lock().unwrap();
        let place = spans.len();
        let trace = span.parent.map_or(NEW_TRACE, |parent| parent.ids().0);
        spans.push(Recorded {
            step: span.step,
            parent: span.parent.map(|parent| parent.ids().1),
            context: Traceparent::from_parts(trace, place as u64 + 1, true).unwrap(),
            attempt: span.run.map(|run| run.attempt),
            end: None,
        });
        let spans = Arc::clone(&self.0);
        Box::new(Handle { spans, place })
    }
}

impl TaskSpan for Handle {
    fn context(&self) -> Option<Traceparent> {
        Some(self.spans.lock().unwrap()[self.place].context)
    }

    fn end(self: Box<Self>, end: SpanEnd<'_>) {
        let error = end.error.map(str::to_owned);
        self.spans.lock().unwrap()[self.place].end = Some((end.result.to_owned(), error));
    }
}

/// A running engine with a tracer.
struct Traced {
    tasks: TaskClient,
    ledger: Arc<MemoryLedger>,
    spans: Arc<Mutex<Vec<Recorded>>>,
    pull: lapsed::engine::PullQueues,
    _stop: oneshot::Sender<()>,
}

impl Traced {
    fn start(config: &str, handlers: Handlers) -> Self {
        let config = Config::from_toml(config).unwrap();
        let ledger = Arc::new(MemoryLedger::new(START));
        let timer: Arc<dyn Timer> = Arc::new(LedgerPoll::new(ledger.clock().clone()));
        let recorder = Recorder::default();
        let spans = Arc::clone(&recorder.0);
        let tracer: Arc<dyn Tracer> = Arc::new(recorder);
        let mut parts = parts(
            Arc::clone(&ledger) as _,
            Arc::clone(&timer),
            handlers,
            &config,
        );
        parts.tracer = Some(Arc::clone(&tracer));
        let engine = Engine::with_parts(parts, &config);
        let pull = engine.handle().pull();
        let (stop, stopped) = oneshot::channel();
        tokio::spawn(engine.run_until(async move {
            let _ = stopped.await;
        }));
        let tasks = TaskClient::with_parts(Arc::clone(&ledger) as _, timer);
        Self {
            tasks: tasks.with_tracer(tracer),
            ledger,
            spans,
            pull,
            _stop: stop,
        }
    }

    /// Creates a task of a trace, due at once.
    async fn create(&self, key: &str) {
        let task = Task::from(TaskKey::parse(key).unwrap());
        let caller = Traceparent::from_parts(TRACE, 0xc, true).unwrap();
        let task = task.traceparent(&caller.to_string()).unwrap();
        self.tasks.create(task, Duration::ZERO).await.unwrap();
    }

    /// The spans of these steps, once each of them has ended.
    async fn until_ended(&self, steps: &[Step]) -> Vec<Recorded> {
        until(format!("{steps:?} have ended"), async || {
            let spans = self.spans.lock().unwrap();
            let ended = spans.iter().filter(|span| span.end.is_some());
            ended.map(|span| span.step).collect::<Vec<_>>() == steps
        })
        .await;
        self.spans.lock().unwrap().clone()
    }
}

fn ended(span: &Recorded) -> (&str, Option<&str>) {
    let (result, error) = span.end.as_ref().expect("it has ended");
    (result, error.as_deref())
}

#[tokio::test(start_paused = true)]
async fn each_attempt_has_its_spans_below_the_creation() {
    let contexts: Arc<Mutex<Vec<Traceparent>>> = Arc::default();
    let mut handlers = Handlers::new();
    let seen = Arc::clone(&contexts);
    handlers.on(("Job", "once"), move |ctx: TaskContext| {
        seen.lock().unwrap().push(ctx.traceparent().unwrap());
        let result = match ctx.attempt() {
            1 => Err(HandlerError::new("no stock")),
            _ => Ok(()),
        };
        async move { result }
    });
    let traced = Traced::start("", handlers);
    traced.create("Job@once").await;
    let (create, claim, run, settle) = (Step::Create, Step::Claim, Step::Run, Step::Settle);
    let steps = [create, claim, run, settle, claim, run, settle];
    let spans = traced.until_ended(&steps).await;

    let parents: Vec<Option<u64>> = spans.iter().map(|span| span.parent).collect();
    let (caller, creation) = (Some(0xc), Some(1));
    assert_eq!(
        parents,
        [
            caller,
            creation,
            creation,
            Some(3),
            creation,
            creation,
            Some(6)
        ]
    );
    assert!(spans.iter().all(|span| span.context.ids().0 == TRACE));
    let attempts: Vec<Option<u16>> = spans.iter().map(|span| span.attempt).collect();
    let (first, second) = (Some(1), Some(2));
    assert_eq!(
        attempts,
        [None, first, first, first, second, second, second]
    );
    let ends: Vec<_> = spans.iter().map(ended).collect();
    assert_eq!(
        ends,
        [
            ("answered", None),
            ("won", None),
            ("failed", Some("no stock")),
            ("written", None),
            ("won", None),
            ("succeeded", None),
            ("written", None),
        ]
    );
    let runs = [spans[2].context, spans[5].context];
    assert_eq!(*contexts.lock().unwrap(), runs);
}

#[tokio::test(start_paused = true)]
async fn the_trace_of_a_task_without_one_begins_with_its_claim() {
    let mut handlers = Handlers::new();
    handlers.on(("Job", "plain"), |_: TaskContext| async { Ok(()) });
    let traced = Traced::start("", handlers);
    let key = TaskKey::parse("Job@plain").unwrap();
    traced
        .tasks
        .create(key.clone(), Duration::ZERO)
        .await
        .unwrap();
    let spans = traced
        .until_ended(&[Step::Claim, Step::Run, Step::Settle])
        .await;
    let parents: Vec<Option<u64>> = spans.iter().map(|span| span.parent).collect();
    assert_eq!(parents, [None, Some(1), Some(2)]);
    assert!(spans.iter().all(|span| span.context.ids().0 == NEW_TRACE));
    // Its row is as it was given.
    let record = traced.ledger.find(&key).await.unwrap().unwrap();
    assert_eq!((record.state, record.payload), (State::Done, None));
    assert_eq!(record.traceparent, None);
}

#[tokio::test(start_paused = true)]
async fn the_run_of_a_worker_of_a_pull_queue_lasts_until_its_report() {
    let route = "[[routes]]\nmatch = '^Mail@'\npull = { queue = 'mail', visibility = '30s' }";
    let traced = Traced::start(route, Handlers::new());
    let take = || {
        traced
            .pull
            .take("mail", 1, Some(Duration::from_secs(60)), "w")
    };
    traced.create("Mail@send@1").await;
    // One that was not received, one without a report, and one with a report.
    drop(take().await.unwrap());
    take().await.unwrap().keep();
    let taken = take().await.unwrap().keep();
    let done = traced
        .pull
        .settle(&taken[0].claim, Report::Done { result: None });
    done.await.unwrap();
    let steps = [
        [Step::Create].as_slice(),
        &[Step::Claim, Step::Run, Step::Settle],
        &[Step::Claim, Step::Run],
        &[Step::Claim, Step::Run, Step::Settle],
    ];
    let spans = traced.until_ended(&steps.concat()).await;
    let parents: Vec<Option<u64>> = spans.iter().map(|span| span.parent).collect();
    let [create, unreceived, reported] = [Some(1), Some(3), Some(8)];
    assert_eq!(
        parents[1..],
        [
            create, create, unreceived, create, create, create, create, reported
        ]
    );
    let lost = Some("the worker did not report to this daemon before its lease ended");
    let ends: Vec<_> = spans[2..].iter().map(ended).collect();
    assert_eq!(ends[0], ("interrupted", None));
    assert_eq!(ends[3], ("unreported", lost));
    assert_eq!(ends[5..], [("succeeded", None), ("written", None)]);
    assert_eq!(taken[0].task.traceparent(), Some(spans[7].context));
}

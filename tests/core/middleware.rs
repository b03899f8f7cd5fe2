//! What stands around handlers, and what travels with a payload: on the test kit, without servers.

use std::io;
use std::sync::{Arc, LazyLock, Mutex};
use std::time::Duration;

use async_trait::async_trait;
use lapsed::handler::{Middleware, Next, SlowLog, VerifyPayload};
use lapsed::ledger::{NewTask, Producer};
use lapsed::task::{Outcome, State};
use lapsed::testing::{START, TestKit, TestRun};
use lapsed::{Config, Due, HandlerError, Handlers, Task, TaskContext};

const TRACE: &str = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01";
const TRACE_ID: &str = "0af7651916cd43dd8448eb211c80319c";
const SECRET: &str = "a secret of sixteen bytes or more";

/// What happened, in order.
#[derive(Clone, Default)]
struct Diary(Arc<Mutex<Vec<String>>>);

impl Diary {
    fn note(&self, text: impl Into<String>) {
        self.0.lock().unwrap().push(text.into());
    }

    fn read(&self) -> Vec<String> {
        std::mem::take(&mut *self.0.lock().unwrap())
    }
}

/// Notes its name before and after.
struct Noting(&'static str, Diary);

#[async_trait]
impl Middleware for Noting {
    async fn around(&self, context: TaskContext, next: Next) -> Result<(), HandlerError> {
        self.1.note(format!("{} begins", self.0));
        let result = next.run(context).await;
        self.1.note(format!("{} ends", self.0));
        result
    }
}

/// `Job@ok`, which succeeds, and `Job@fail`, which fails at its first attempt.
fn jobs(diary: &Diary) -> Handlers {
    let mut handlers = Handlers::new();
    let (ok, fail) = (diary.clone(), diary.clone());
    handlers.on(("Job", "ok"), move |_: Vec<String>| {
        ok.note("ok");
        async { Ok(()) }
    });
    handlers.on(("Job", "fail"), move |ctx: TaskContext, _: Vec<String>| {
        fail.note("fail");
        async move {
            match ctx.attempt() {
                1 => Err(HandlerError::new("no")),
                _ => Ok(()),
            }
        }
    });
    handlers
}

async fn create(kit: &TestKit, key: &str) {
    let key: lapsed::TaskKey = key.parse().unwrap();
    kit.tasks().create(key, Due::NOW).await.unwrap();
}

/// Runs what is due, once.
async fn outcome(kit: &mut TestKit) -> Outcome {
    let mut ran = kit.advance(Duration::ZERO).await;
    assert_eq!(ran.len(), 1);
    ran.remove(0).outcome
}

#[tokio::test]
async fn what_is_registered_first_stands_outermost() {
    let diary = Diary::default();
    let mut handlers = jobs(&diary);
    handlers.wrap(Noting("first", diary.clone()));
    let before = diary.clone();
    handlers.before(move |_| {
        before.note("before");
        async { Ok(()) }
    });
    handlers
        .only(("Job", "ok"))
        .wrap(Noting("only", diary.clone()));
    handlers.wrap(Noting("last", diary.clone()));
    let mut kit = TestKit::new(handlers);
    create(&kit, "Job@ok").await;
    kit.advance(Duration::ZERO).await;
    assert_eq!(
        diary.read(),
        [
            "first begins",
            "before",
            "only begins",
            "last begins",
            "ok",
            "last ends",
            "only ends",
            "first ends"
        ]
    );
}

#[tokio::test]
async fn a_selection_is_around_its_own_tasks_only_and_routes_are_wrapped_too() {
    let diary = Diary::default();
    let mut handlers = jobs(&diary);
    handlers
        .only(("Job", "ok"))
        .wrap(Noting("only", diary.clone()));
    handlers
        .matching("^Shop@.*@7$")
        .wrap(Noting("matching", diary.clone()));
    handlers.wrap(Noting("all", diary.clone()));
    let config = Config::from_toml("[[routes]]\nmatch = '^Shop@'\nlog = {}").unwrap();
    let mut kit = TestKit::with_config(&config, handlers);
    for (key, around) in [
        ("Job@ok", &["only", "all"][..]),
        ("Job@fail", &["all"]),
        ("Shop@open@7", &["matching", "all"]),
        ("Shop@open@8", &["all"]),
    ] {
        create(&kit, key).await;
        kit.advance(Duration::ZERO).await;
        let begun = diary.read();
        let begun = begun.iter().filter_map(|line| line.strip_suffix(" begins"));
        assert_eq!(begun.collect::<Vec<_>>(), around, "{key}");
    }
}

#[tokio::test]
async fn a_middleware_may_answer_in_place_of_the_handler() {
    let diary = Diary::default();
    let mut handlers = jobs(&diary);
    handlers.wrap(|ctx: TaskContext, next: Next| async move {
        let what = ctx.key().args().next().map(str::to_owned);
        match what.as_deref() {
            Some("skip") => Ok(()),
            Some("forbid") => Err(HandlerError::permanent("forbidden")),
            Some("spoil") => {
                next.run(ctx).await?;
                Err(HandlerError::new("spoilt"))
            }
            _ => next.run(ctx).await,
        }
    });
    let mut kit = TestKit::new(handlers);
    for arg in ["skip", "forbid", "spoil", "go"] {
        create(&kit, &format!("Job@ok@{arg}")).await;
    }
    kit.advance(Duration::ZERO).await;
    assert_eq!(diary.read(), ["ok", "ok"]);
    assert_eq!(kit.task("Job@ok@skip").unwrap().state, State::Done);
    kit.assert_dead(("Job", "ok", ["forbid"]))
        .with_error("forbidden");
    kit.assert_scheduled(("Job", "ok", ["spoil"]))
        .due_in(Duration::from_secs(15));
    kit.assert_ran(("Job", "ok", ["go"])).succeeded();
}

#[tokio::test]
async fn a_panic_in_a_middleware_is_a_panic_of_the_run() {
    let mut handlers = jobs(&Diary::default());
    handlers.wrap(|ctx: TaskContext, next: Next| async move {
        assert!(ctx.attempt() > 1, "not at first");
        next.run(ctx).await
    });
    let mut kit = TestKit::new(handlers);
    create(&kit, "Job@ok").await;
    assert_eq!(
        outcome(&mut kit).await,
        Outcome::Panicked {
            message: "not at first".to_owned()
        }
    );
    kit.advance(Duration::from_secs(15)).await;
    kit.assert_ran(("Job", "ok", [""; 0])).times(2).succeeded();
}

#[tokio::test]
async fn a_middleware_hands_values_to_the_handler() {
    struct Tenant(String);
    let mut handlers = Handlers::new();
    handlers.on(
        ("Job", "for"),
        |ctx: TaskContext, _: Vec<String>| async move {
            let tenant = ctx.extensions().get::<Tenant>();
            Err(HandlerError::permanent(match tenant {
                Some(tenant) => tenant.0.clone(),
                None => "nobody".to_owned(),
            }))
        },
    );
    handlers.before(|ctx| async move {
        if let Some(tenant) = ctx.key().args().next() {
            ctx.extensions().insert(Tenant(tenant.to_owned()));
        }
        Ok(())
    });
    let call = async |args: &[&str]| {
        let run = TestRun::of(Task::new("Job", "for", args).unwrap());
        run.call(&handlers).await.unwrap_err().to_string()
    };
    assert_eq!(call(&["shop-7"]).await, "shop-7");
    assert_eq!(call(&[]).await, "nobody");
}

#[tokio::test]
async fn an_error_before_a_run_is_its_outcome() {
    let diary = Diary::default();
    let mut handlers = jobs(&diary);
    handlers
        .only(("Job", "ok"))
        .before(|_| async { Err(HandlerError::retry_after("frozen", Duration::from_secs(60))) });
    let mut kit = TestKit::new(handlers);
    create(&kit, "Job@ok").await;
    create(&kit, "Job@fail").await;
    kit.advance(Duration::ZERO).await;
    assert_eq!(diary.read(), ["fail"], "only the other one");
    kit.assert_scheduled(("Job", "ok", [""; 0]))
        .due_in(Duration::from_secs(60));
}

#[tokio::test]
async fn hooks_after_a_run_see_every_end_and_change_none() {
    let diary = Diary::default();
    let mut handlers = jobs(&diary);
    handlers.on(("Job", "panic"), || async { panic!("at the handler") });
    handlers.on(("Job", "hang"), std::future::pending);
    handlers.after(|_, _| panic!("at the hook"));
    let after = diary.clone();
    handlers.after(move |ctx, outcome| {
        after.note(format!("{} {}", ctx.key().method(), outcome.as_str()));
    });
    handlers.only(("Job", "hang")).after(|_, outcome| {
        assert!(matches!(outcome, Outcome::TimedOut { .. }));
    });
    let config = Config::from_toml("engine.timeout = '500ms'").unwrap();
    let mut kit = TestKit::with_config(&config, handlers);
    for method in ["ok", "fail", "panic", "hang"] {
        create(&kit, &format!("Job@{method}")).await;
    }
    kit.advance(Duration::ZERO).await;
    assert_eq!(
        diary.read(),
        [
            "ok",
            "ok succeeded",
            "fail",
            "fail failed",
            "panic panicked",
            "hang timed_out"
        ]
    );
    assert_eq!(kit.task("Job@ok").unwrap().state, State::Done);
    kit.assert_scheduled(("Job", "fail", [""; 0]));
}

#[tokio::test]
async fn only_what_was_signed_with_a_known_secret_is_run() {
    let diary = Diary::default();
    let mut handlers = jobs(&diary);
    handlers.wrap(VerifyPayload::any_of([
        "the secret that comes next".into(),
        SECRET.into(),
    ]));
    let mut kit = TestKit::new(handlers);
    let task = |arg: &str| Task::new("Job", "ok", [arg]).unwrap().payload(r#"{"n":1}"#);
    let tasks = kit.tasks();
    for (task, runs) in [
        (task("signed").sign(SECRET), true),
        (
            task("with the other").sign("the secret that comes next"),
            true,
        ),
        (task("without payload").sign(SECRET), true),
        (task("unsigned"), false),
        (
            task("by a stranger").sign("a secret of somebody else"),
            false,
        ),
    ] {
        let name = task.key().to_string();
        tasks.create(task, Due::NOW).await.unwrap();
        kit.advance(Duration::ZERO).await;
        let record = kit.task(&name).unwrap();
        let (state, payload) = (record.state, record.payload);
        assert_eq!(payload.as_deref(), Some(r#"{"n":1}"#), "{name}");
        assert_eq!(
            state,
            if runs { State::Done } else { State::Dead },
            "{name}"
        );
        assert_eq!(diary.read().is_empty(), !runs, "{name}");
    }
    kit.assert_dead(("Job", "ok", ["unsigned"]))
        .with_error("permanent failure: payload is not authentic");
}

#[tokio::test]
async fn a_signature_that_is_copied_to_another_task_is_not_authentic() {
    let mut handlers = jobs(&Diary::default());
    handlers.wrap(VerifyPayload::new(SECRET));
    let mut kit = TestKit::new(handlers);
    let signature =
        lapsed::task::sign(SECRET.as_bytes(), &"Job@ok@1".parse().unwrap(), Some("[1]"));
    for (key, payload) in [
        ("Job@ok@1", "[1]"),
        ("Job@ok@2", "[1]"),
        ("Job@ok@1@", "[1]"),
    ] {
        let mut row = NewTask::new(key.parse().unwrap(), START);
        // As somebody's SQL would.
        row.payload = Some(format!(
            r#"{{"$lapsed":{{"signature":"{signature}"}},"payload":{payload}}}"#
        ));
        kit.ledger().create(&[row]).await.unwrap();
    }
    kit.advance(Duration::ZERO).await;
    kit.assert_ran(("Job", "ok", ["1"])).succeeded();
    kit.assert_dead(("Job", "ok", ["2"]));
    kit.assert_dead(("Job", "ok", ["1", ""]));
}

#[tokio::test]
async fn a_payload_may_not_look_like_an_envelope() {
    let task = Task::new("Job", "ok", [1]).unwrap();
    let task = task.payload(r#"{"a": 1, "$lapsed": {}}"#);
    let tasks = TestKit::new(Handlers::new()).tasks();
    let error = tasks.create(task, Due::NOW).await.unwrap_err();
    assert_eq!(
        error.to_string(),
        "payload has a top-level member `$lapsed`, which is reserved: expected another name"
    );
}

#[tokio::test]
async fn a_secret_that_can_be_guessed_signs_nothing() {
    let tasks = TestKit::new(Handlers::new()).tasks();
    let task = Task::new("Job", "ok", [1]).unwrap().sign("short");
    let error = tasks.create(task, Due::NOW).await.unwrap_err();
    assert_eq!(
        error.to_string(),
        "the secret to sign with has 5 bytes, expected at least 16"
    );
}

/// What is logged while it lives.
#[derive(Clone, Default)]
struct Log(Arc<Mutex<Vec<u8>>>);

impl io::Write for Log {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.0.lock().unwrap().extend(bytes);
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

impl Log {
    fn listen(&self, level: tracing::Level) -> tracing::subscriber::DefaultGuard {
        // While there is one dispatcher only, `tracing` asks the thread that meets a line first whether anybody wants it,
        // and remembers a no for all threads. With a second one it asks each dispatcher.
        static SECOND: LazyLock<tracing::Dispatch> = LazyLock::new(|| {
            let all = tracing_subscriber::fmt().with_max_level(tracing::Level::TRACE);
            tracing::Dispatch::new(all.with_writer(io::sink).finish())
        });
        LazyLock::force(&SECOND);
        let log = self.clone();
        let subscriber = tracing_subscriber::fmt()
            .with_writer(move || log.clone())
            .with_ansi(false)
            .with_max_level(level)
            .finish();
        tracing::subscriber::set_default(subscriber)
    }

    fn lines_with(&self, text: &str) -> Vec<String> {
        let bytes = self.0.lock().unwrap();
        let log = String::from_utf8_lossy(&bytes);
        let lines = log.lines().filter(|line| line.contains(text));
        lines.map(str::to_owned).collect()
    }
}

#[tokio::test]
async fn a_slow_run_is_warned_about_while_it_goes_on() {
    let log = Log::default();
    let _listening = log.listen(tracing::Level::WARN);
    let (seen, slow) = (log.clone(), Duration::from_millis(20));
    let mut handlers = Handlers::new();
    handlers.on(("Job", "slow"), move || {
        let seen = seen.clone();
        async move {
            let told = async {
                while seen.lines_with("run is slow, and still running").is_empty() {
                    tokio::task::yield_now().await;
                }
            };
            tokio::time::timeout(Duration::from_secs(30), told).await?;
            Ok(())
        }
    });
    handlers.on(("Job", "quick"), || async { Ok(()) });
    handlers.wrap(SlowLog::after(slow));
    let mut kit = TestKit::new(handlers);
    create(&kit, "Job@slow").await;
    create(&kit, "Job@quick").await;
    kit.advance(Duration::ZERO).await;
    kit.assert_ran(("Job", "slow", [""; 0])).succeeded();
    let lines = log.lines_with("slow");
    assert_eq!(lines.len(), 2, "{lines:?}");
    assert!(lines[0].contains("slow_after_ms=20"), "{lines:?}");
    assert!(lines[1].contains("slow run is over"), "{lines:?}");
}

#[tokio::test]
async fn the_span_of_a_run_names_its_trace_and_keeps_arguments_to_itself() {
    let mut handlers = Handlers::new();
    handlers.on(("Job", "log"), |_: Vec<String>| async {
        tracing::info!("the handler speaks");
        Ok(())
    });
    for (level, shows_args) in [(tracing::Level::INFO, false), (tracing::Level::DEBUG, true)] {
        let log = Log::default();
        let _listening = log.listen(level);
        let mut kit = TestKit::new(handlers.clone());
        let task = Task::new("Job", "log", ["s3cret"]).unwrap();
        let task = task.traceparent(TRACE).unwrap();
        kit.tasks().create(task, Due::NOW).await.unwrap();
        kit.advance(Duration::ZERO).await;
        let lines = log.lines_with("the handler speaks");
        let [line] = &lines[..] else {
            panic!("{lines:?}")
        };
        assert!(line.contains(&format!("trace_id=\"{TRACE_ID}\"")), "{line}");
        assert!(line.contains("run{") && line.contains("Job@log"), "{line}");
        assert_eq!(line.contains("s3cret"), shows_args, "{line}");
    }
}

#[tokio::test]
async fn a_run_has_a_span_of_its_own_in_the_trace_of_its_creator() {
    let task = Task::new("Job", "trace", [1]).unwrap();
    let untraced = TestRun::of(task.clone().payload("[1]")).context().await;
    assert_eq!(untraced.traceparent(), None);
    assert!(untraced.to_json().get("traceparent").is_none());

    let run = TestRun::of(task.payload("[1]").traceparent(TRACE).unwrap());
    let (one, other) = (run.context().await, run.context().await);
    assert_eq!(one.creator_traceparent().unwrap().to_string(), TRACE);
    assert_eq!(one.payload_json(), Some("[1]"));
    let (own, others) = (one.traceparent().unwrap(), other.traceparent().unwrap());
    assert_eq!(own.trace_id(), TRACE_ID);
    assert_ne!(own.span_id(), "b7ad6b7169203331");
    assert_ne!(own.span_id(), others.span_id());
    let json = one.to_json();
    assert_eq!(json["traceparent"], own.to_string());
    assert_eq!(json["payload"], serde_json::json!([1]));
}

#[tokio::test]
async fn targets_get_the_payload_digit_for_digit_and_on_one_line() {
    let task = Task::new("Job", "pay", ["ü", ""]).unwrap().tag("shop-7");
    let run = TestRun::of(task.payload("{\n\"amount\":12345678901234567890.10,\"after\":1e400}"));
    let context = run.context().await;
    let (id, due) = (context.id(), context.due());
    assert_eq!(
        context.to_json_line(),
        format!(
            "{{\"id\":\"{id}\",\"key\":\"Job@pay@ü@\",\"class\":\"Job\",\"method\":\"pay\",\"args\":[\"ü\",\"\"],\
             \"due\":\"{due}\",\"attempt\":1,\"lateness_ms\":0,\
             \"payload\":{{ \"amount\":12345678901234567890.10,\"after\":1e400}},\"tag\":\"shop-7\"}}"
        )
    );
}

#[tokio::test]
async fn what_a_handler_creates_belongs_to_its_trace() {
    const OWN: &str = "00-11111111111111111111111111111111-2222222222222222-00";
    const TOLD: &str = "00-33333333333333333333333333333333-4444444444444444-01";
    let (seen, mut spans) = tokio::sync::mpsc::unbounded_channel();
    let handlers = |tasks: lapsed::TaskClient| {
        let mut handlers = Handlers::new();
        handlers.on(("Job", "parent"), move |ctx: TaskContext| {
            let (seen, tasks) = (seen.clone(), tasks.clone());
            async move {
                seen.send(ctx.traceparent())?;
                let child = |name: &str| Task::new("Job", "child", [name]);
                tasks.create(child("inherits")?, Due::NOW).await?;
                let own = child("has its own")?.traceparent(OWN)?;
                tasks.create(own, Due::NOW).await?;
                let told = tasks.clone().trace_with(|| Some(TOLD.to_owned()));
                told.create(child("is told")?, Due::NOW).await?;
                for silent in [None, Some("nonsense")] {
                    let silent = tasks.clone().trace_with(move || silent.map(str::to_owned));
                    silent.create(child("is told nothing")?, Due::NOW).await?;
                }
                Ok(())
            }
        });
        handlers
    };
    let mut kit = TestKit::build(&Config::default(), handlers);
    let parent = Task::new("Job", "parent", [""; 0]).unwrap();
    let parent = parent.traceparent(TRACE).unwrap();
    kit.tasks().create(parent, Due::NOW).await.unwrap();
    kit.advance(Duration::ZERO).await;
    kit.assert_ran(("Job", "parent", [""; 0])).succeeded();
    let span = spans.recv().await.unwrap().unwrap().to_string();
    let trace_of = |arg: &str| {
        let task = kit.assert_scheduled(("Job", "child", [arg])).task().clone();
        task.traceparent.unwrap().to_string()
    };
    assert_eq!(trace_of("inherits"), span);
    assert_eq!(trace_of("has its own"), OWN);
    assert_eq!(trace_of("is told"), TOLD);
    assert_eq!(trace_of("is told nothing"), span);
    // Outside of any run nothing is inherited.
    create(&kit, "Job@child@alone").await;
    assert_eq!(kit.task("Job@child@alone").unwrap().traceparent, None);
}

#[tokio::test]
async fn a_traceparent_that_is_none_is_refused() {
    let task = Task::new("Job", "ok", [1]).unwrap();
    let error = task.traceparent("00-xyz").unwrap_err().to_string();
    assert!(error.contains("expected `00-<32 hex digits>-"), "{error}");
}

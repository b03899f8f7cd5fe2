//! What stands around handlers, and what travels with a payload: on the test kit, without servers.

pub mod logs;
mod signatures;

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
async fn the_first_registered_middleware_is_the_outermost() {
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
async fn a_selected_middleware_wraps_matching_tasks_and_routes_only() {
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
async fn tasks_created_by_a_handler_join_its_trace() {
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
async fn an_invalid_traceparent_is_rejected() {
    let task = Task::new("Job", "ok", [1]).unwrap();
    let error = task.traceparent("00-xyz").unwrap_err().to_string();
    assert!(error.contains("expected `00-<32 hex digits>-"), "{error}");
}

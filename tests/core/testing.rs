//! The test kit itself.

mod assertions;
mod documented;

use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;

use lapsed::ledger::{Admin, Claimant, Claims};
use lapsed::task::{Outcome, Overlap, State};
use lapsed::testing::{START, TestKit, TestRun};
use lapsed::{Config, HandlerError, Handlers, Recurrence, Task, TaskClient, TaskContext};

const HOUR: Duration = Duration::from_secs(3600);

fn secs(secs: u64) -> Duration {
    Duration::from_secs(secs)
}

/// `Job@ok` succeeds, `Job@fail` never does.
fn jobs() -> Handlers {
    let mut handlers = Handlers::new();
    handlers.on(("Job", "ok"), |_: Vec<String>| async { Ok(()) });
    handlers.on(
        ("Job", "fail"),
        |ctx: TaskContext, _: Vec<String>| async move {
            Err(HandlerError::new(format!("failure {}", ctx.attempt())))
        },
    );
    handlers
}

async fn create(tasks: &TaskClient, method: &str, arg: &str, delay: Duration) {
    tasks.create(("Job", method, [arg]), delay).await.unwrap();
}

#[tokio::test]
async fn tasks_run_in_the_order_of_their_due_times_each_at_its_own() {
    let mut kit = TestKit::new(jobs());
    for (arg, delay) in [("c", 30), ("a", 10), ("later", 31), ("b", 10)] {
        create(&kit.tasks(), "ok", arg, secs(delay)).await;
    }
    let ran = kit.advance(secs(30)).await;
    let ran: Vec<(String, u64)> = ran
        .iter()
        .map(|ran| (ran.key.to_string(), ran.at.since(START).as_secs()))
        .collect();
    let expected = [("Job@ok@a", 10), ("Job@ok@b", 10), ("Job@ok@c", 30)];
    assert_eq!(ran, expected.map(|(key, at)| (key.to_owned(), at)));
    assert_eq!(kit.now(), START.plus(secs(30)));
    assert_eq!(kit.scheduled().len(), 1);
    assert_eq!(kit.ran().len(), 3);
}

#[tokio::test]
async fn retries_come_exactly_as_the_policy_says_and_end_in_death() {
    let mut kit = TestKit::new(jobs());
    create(&kit.tasks(), "fail", "1", Duration::ZERO).await;
    let ran = kit.advance(48 * HOUR).await;
    let waits: Vec<u64> = ran
        .windows(2)
        .map(|pair| pair[1].at.since(pair[0].at).as_secs())
        .collect();
    assert_eq!(
        waits,
        [
            15, 15, 30, 180, 600, 1200, 1800, 1800, 1800, 3600, 10800, 10800, 10800, 21600, 21600
        ]
    );
    assert_eq!(ran[0].task.state, State::Waiting);
    kit.assert_dead(("Job", "fail", ["1"]))
        .with_error("gave up after 16 of 16 attempts: failure 16");
    kit.assert_ran(("Job", "fail", ["1"])).times(16);
}

#[tokio::test]
async fn routes_and_their_retry_policies_count() {
    let config = "[[routes]]\nmatch = '^Shop@'\nexec = ['false']\nretry = { max_attempts = 3, backoff = 'fixed', delay = '7s', jitter = 1.0 }";
    let config = Config::from_toml(config).unwrap();
    let mut kit = TestKit::with_config(&config, jobs());
    kit.tasks()
        .create(("Shop", "open", [1]), secs(5))
        .await
        .unwrap();
    let ran = kit.advance(HOUR).await;
    let at: Vec<u64> = ran
        .iter()
        .map(|ran| ran.at.since(START).as_secs())
        .collect();
    assert_eq!(at, [5, 12, 19]);
    assert_eq!(ran[0].route, "^Shop@");
    kit.assert_dead(("Shop", "open", [1]))
        .with_error("`false` ended with");
}

#[tokio::test]
async fn what_a_handler_creates_runs_in_its_turn() {
    let handlers = |tasks: TaskClient| {
        let mut handlers = Handlers::new();
        handlers.on(("Tick", "tock"), move |n: u32| {
            let tasks = tasks.clone();
            async move {
                tasks.create(("Tick", "tock", [n + 1]), secs(60)).await?;
                Ok(())
            }
        });
        handlers
    };
    let mut kit = TestKit::build(&Config::default(), handlers);
    kit.tasks()
        .create(("Tick", "tock", [0]), Duration::ZERO)
        .await
        .unwrap();
    let ran = kit.advance(HOUR).await;
    assert_eq!(ran.len(), 61);
    kit.assert_scheduled(("Tick", "tock", [61]))
        .due_in(secs(60));
    kit.assert_ran(("Tick", "tock", [60])).at(START.plus(HOUR));
}

#[tokio::test]
async fn a_task_that_creates_itself_without_end_is_noticed() {
    let handlers = |tasks: TaskClient| {
        let mut handlers = Handlers::new();
        handlers.on(("For", "ever"), move |n: u32| {
            let tasks = tasks.clone();
            async move {
                tasks
                    .create(("For", "ever", [n + 1]), Duration::ZERO)
                    .await?;
                Ok(())
            }
        });
        handlers
    };
    let mut kit = TestKit::build(&Config::default(), handlers);
    kit.tasks()
        .create(("For", "ever", [0]), Duration::ZERO)
        .await
        .unwrap();
    let endless = tokio::spawn(async move { kit.advance(secs(1)).await.len() });
    let panic = endless.await.unwrap_err().into_panic();
    let message = panic.downcast::<String>().unwrap();
    assert!(
        message.starts_with("5000 runs at 2030-01-01T00:00:00.000Z: a task creates itself"),
        "{message}"
    );
}

#[tokio::test]
async fn cancelled_moved_and_foreign_tasks_are_as_the_ledger_says() {
    let mut kit = TestKit::new(jobs());
    let tasks = kit.tasks();
    for arg in ["cancelled", "moved", "plain"] {
        create(&tasks, "ok", arg, secs(10)).await;
    }
    tasks
        .create(("Nobody", "runs", [1]), secs(1))
        .await
        .unwrap();
    tasks.cancel(("Job", "ok", ["cancelled"])).await.unwrap();
    let moved = "Job@ok@moved";
    tasks.reschedule(moved, HOUR).await.unwrap();
    assert_eq!(kit.advance(secs(60)).await.len(), 1);
    kit.assert_not_ran(("Job", "ok", ["cancelled"]));
    kit.assert_not_scheduled(("Job", "ok", ["cancelled"]));
    kit.assert_scheduled(("Job", "ok", ["moved"]))
        .due_at(START.plus(HOUR));
    let due: Vec<String> = kit
        .due_tasks()
        .iter()
        .map(|task| task.key.to_string())
        .collect();
    assert_eq!(due, ["Nobody@runs@1"]);
}

#[tokio::test]
async fn a_dead_task_can_be_redriven() {
    let runs = Arc::new(AtomicU32::new(0));
    let count = Arc::clone(&runs);
    let mut handlers = Handlers::new();
    handlers.on(("Job", "mended"), move || {
        let first = count.fetch_add(1, Ordering::SeqCst) == 0;
        async move {
            match first {
                true => Err(HandlerError::permanent("broken")),
                false => Ok(()),
            }
        }
    });
    let mut kit = TestKit::new(handlers);
    kit.tasks()
        .create(("Job", "mended", [""; 0]), secs(1))
        .await
        .unwrap();
    kit.advance(secs(1)).await;
    kit.assert_dead(("Job", "mended", [""; 0]));
    kit.ledger()
        .redrive(&"Job@mended".parse().unwrap())
        .await
        .unwrap();
    kit.advance(Duration::ZERO).await;
    let runs = kit
        .assert_ran(("Job", "mended", [""; 0]))
        .times(2)
        .succeeded();
    assert_eq!(runs.all()[0].id, runs.last().id, "the same arming");
}

#[tokio::test]
async fn the_next_run_may_be_awaited_however_far_it_is() {
    let mut kit = TestKit::new(jobs());
    assert_eq!(kit.run_next().await, None);
    create(&kit.tasks(), "ok", "1", 1000 * HOUR).await;
    let ran = kit.run_next().await.unwrap();
    assert_eq!(
        (ran.at, ran.outcome),
        (START.plus(1000 * HOUR), Outcome::Succeeded)
    );
    assert_eq!(kit.now(), START.plus(1000 * HOUR));
}

#[tokio::test]
async fn tasks_without_a_handler_do_not_advance_the_clock() {
    let mut kit = TestKit::new(jobs());
    let tasks = kit.tasks();
    tasks
        .create(("Nobody", "runs", [1]), secs(1))
        .await
        .unwrap();
    assert_eq!(kit.run_next().await, None);
    assert_eq!(kit.now(), START);
}

#[tokio::test]
async fn a_task_leased_by_another_daemon_is_skipped_and_delays_no_other() {
    let mut kit = TestKit::new(jobs());
    create(&kit.tasks(), "ok", "held", secs(1)).await;
    create(&kit.tasks(), "ok", "free", secs(2)).await;
    let claimant = Claimant {
        daemon: "another".to_owned(),
        lease: HOUR,
    };
    kit.set_now(START.plus(secs(1)));
    let lookup = kit
        .ledger()
        .look_up(&["Job@ok@held".parse().unwrap()])
        .await;
    let arming = lookup.unwrap()[0].clone().unwrap().arming;
    let claims = kit.ledger().claim(&[arming], &claimant).await.unwrap();
    assert_eq!(claims.len(), 1);
    kit.set_now(START);
    kit.advance(secs(10)).await;
    kit.assert_not_ran(("Job", "ok", ["held"]));
    kit.assert_ran(("Job", "ok", ["free"])).times(1);
}

#[tokio::test]
async fn setting_the_clock_runs_no_task() {
    let mut kit = TestKit::new(jobs());
    create(&kit.tasks(), "ok", "1", secs(1)).await;
    kit.set_now(START.plus(HOUR));
    kit.assert_not_ran(("Job", "ok", ["1"]));
    assert_eq!(kit.due_tasks().len(), 1);
    kit.advance(Duration::ZERO).await;
    kit.assert_ran(("Job", "ok", ["1"])).at(START.plus(HOUR));
}

#[tokio::test]
async fn two_test_kits_run_the_same_tasks_in_the_same_order() {
    let story = async || {
        let mut kit = TestKit::new(jobs());
        for n in 0..20u64 {
            let method = if n % 3 == 0 { "fail" } else { "ok" };
            create(&kit.tasks(), method, &n.to_string(), secs(n % 7)).await;
        }
        let ran = kit.advance(HOUR).await;
        ran.iter().map(ToString::to_string).collect::<Vec<_>>()
    };
    assert_eq!(story().await, story().await);
}

#[tokio::test]
async fn transactions_need_the_mysql_ledger() {
    use lapsed::MysqlTask as _;
    let run = TestRun::of(Task::new("Job", "ok", [1]).unwrap());
    let error = run.context().await.begin().await.err().unwrap();
    assert!(error.to_string().contains("MySQL"), "{error}");
}

#[tokio::test]
async fn one_handler_can_be_called_alone() {
    let mut handlers = jobs();
    handlers.on(("Job", "look"), |ctx: TaskContext, n: u64| async move {
        let payload: Vec<u64> = ctx.payload()?;
        Err(HandlerError::new(format!(
            "{n} {payload:?} {:?} {} {}",
            ctx.tag(),
            ctx.attempt(),
            ctx.lateness_ms()
        )))
    });
    let task = Task::new("Job", "look", [7])
        .unwrap()
        .payload("[1, 2]")
        .tag("shop");
    let run = TestRun::of(task).attempt(4).late_by(secs(2));
    let error = run.call(&handlers).await.unwrap_err();
    assert_eq!(error.to_string(), "7 [1, 2] Some(\"shop\") 4 2000");
}

#[tokio::test]
async fn an_expired_task_does_not_run() {
    let mut handlers = Handlers::new();
    handlers
        .on(("Job", "ok"), |_: Vec<String>| async { Ok(()) })
        .expire_after(Duration::from_secs(60));
    let mut kit = TestKit::new(handlers);
    let hourly = Recurrence::every(Duration::from_secs(3600)).unwrap();
    let tasks = kit.tasks();
    tasks
        .create(("Job", "ok", [1]), Duration::from_secs(60))
        .await
        .unwrap();
    let series = Task::new("Job", "ok", ["series"]).unwrap();
    tasks.create_recurring(series, hourly).await.unwrap();
    kit.set_now(START.plus(Duration::from_secs(5400)));
    let taken_up = kit.advance(Duration::ZERO).await;
    assert_eq!(taken_up.len(), 2);
    assert!(taken_up.iter().all(|ran| !ran.reached_handler()));
    kit.assert_not_ran(("Job", "ok", [1]));
    kit.assert_dead(("Job", "ok", [1])).with_error("expired");
    kit.assert_not_ran(("Job", "ok", ["series"]));
}

#[tokio::test]
async fn occurrences_that_may_overlap_are_runs_of_their_series() {
    let mut kit = TestKit::new(jobs());
    let often = Recurrence::every(Duration::from_secs(60)).unwrap();
    let task = Task::new("Job", "ok", ["a"]).unwrap();
    let often = often.overlap(Overlap::Allow);
    kit.tasks().create_recurring(task, often).await.unwrap();
    kit.advance(Duration::from_secs(180)).await;
    kit.assert_ran(("Job", "ok", ["a"])).times(3).succeeded();
    kit.assert_not_ran(("Job", "ok", ["b"]));
}

#[tokio::test]
async fn a_tag_that_databases_treat_as_equal_to_another_is_rejected() {
    let kit = TestKit::new(jobs());
    for (tag, why) in [
        ("shop-7 ", "tag ends in a space"),
        ("", "tag is empty or contains a control character"),
    ] {
        let task = Task::new("Job", "ok", [1]).unwrap().tag(tag);
        let refused = kit.tasks().create(task, HOUR).await.unwrap_err();
        assert_eq!(refused.to_string(), why);
    }
}

//! Series on the ledger in memory: no server, and time moves only when nothing else can.

use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use lapsed::ledger::Admin;
use lapsed::task::{CatchUp, Overlap, State};
use lapsed::testing::{Ran, TestKit};
use lapsed::{Config, HandlerError, Handlers, Recurrence, Task, TaskContext, TaskKey, UnixMs};

/// When each run was due, and what it is to come to.
type Runs = Arc<Mutex<Vec<UnixMs>>>;

/// `Job@run` writes down its due time and fails if it is one of these, counted from 1.
fn handlers(runs: &Runs, fails: &'static [usize]) -> Handlers {
    let mut handlers = Handlers::new();
    let runs = Arc::clone(runs);
    handlers.on(("Job", "run"), move |ctx: TaskContext| {
        let number = {
            let mut runs = runs.lock().unwrap();
            runs.push(ctx.due());
            runs.len()
        };
        async move {
            match fails.contains(&number) {
                true => Err(HandlerError::permanent("no")),
                false => Ok(()),
            }
        }
    });
    handlers
}

#[tokio::test(start_paused = true)]
async fn a_recurring_task_keeps_its_schedule_whether_occurrences_succeed_or_die() {
    let runs = Runs::default();
    let (engine, tasks) = lapsed::in_memory(&Config::default(), handlers(&runs, &[2, 3]));
    let every = Recurrence::every(Duration::from_secs(600)).unwrap();
    let task = Task::new("Job", "run", [""; 0]).unwrap();
    let begun = tasks.create_recurring(task, every).await.unwrap();
    let hour = tokio::time::sleep(Duration::from_secs(3_630));
    engine.run_until(hour).await.unwrap();
    let expected: Vec<UnixMs> = (0..6)
        .map(|n| UnixMs(begun.due().0 + n * 600_000))
        .collect();
    assert_eq!(*runs.lock().unwrap(), expected);
}

#[tokio::test(start_paused = true)]
async fn a_recurring_task_ends_in_the_state_of_its_last_occurrence() {
    for (fails, state) in [(&[][..], State::Done), (&[3][..], State::Dead)] {
        let runs = Runs::default();
        let (engine, tasks) = lapsed::in_memory(&Config::default(), handlers(&runs, fails));
        let three = Recurrence::every(Duration::from_secs(60)).unwrap();
        let three = three.times(3).unwrap().catch_up(CatchUp::All);
        let task = Task::new("Job", "run", [""; 0]).unwrap();
        let series = tasks.create_recurring(task.clone(), three).await.unwrap();
        let a_while = tokio::time::sleep(Duration::from_secs(400));
        engine.run_until(a_while).await.unwrap();
        assert_eq!(runs.lock().unwrap().len(), 3);
        assert_eq!(tasks.pttl(task.key()).await.unwrap(), None);
        // The very arming that was the last is not created again: its state is what it came to.
        let last = UnixMs(series.due().0 + 120_000);
        let found = tasks.create(task, last).await.unwrap();
        assert_eq!(found.state(), state);
    }
}

#[tokio::test]
async fn a_recurring_task_created_due_now_starts_now() {
    let runs = Runs::default();
    let mut kit = TestKit::new(handlers(&runs, &[]));
    let (tasks, begin) = (kit.tasks(), kit.now());
    let at = |hours: i64| UnixMs(begin.0 + hours * 3_600_000);
    let hourly = Recurrence::every(Duration::from_secs(3_600)).unwrap();
    let twice = hourly.starting(begin).times(2).unwrap();
    let task = Task::new("Job", "run", [""; 0]).unwrap();
    let made = tasks.create_recurring(task.clone(), twice.clone()).await;
    assert_eq!(made.unwrap().due(), begin);
    kit.advance(Duration::from_secs(20)).await;
    // Said once more, differently: what has begun does not begin again.
    let tagged = task.tag("reports");
    let made = tasks.create_recurring(tagged, twice).await.unwrap();
    assert_eq!(made.due(), at(1));
    kit.advance(Duration::from_secs(10_000)).await;
    assert_eq!(*runs.lock().unwrap(), [at(0), at(1)]);
}

#[tokio::test(start_paused = true)]
async fn a_recurrence_without_an_occurrence_ahead_is_refused() {
    let (_engine, tasks) = lapsed::in_memory(&Config::default(), Handlers::new());
    let over = Recurrence::cron("@daily").unwrap().until(UnixMs(1));
    let task = Task::new("Job", "run", [""; 0]).unwrap();
    let refused = tasks.create_recurring(task, over).await.unwrap_err();
    assert_eq!(
        refused.to_string(),
        "no occurrence lies ahead: its end has passed"
    );
}

/// How a run ends.
type End = fn(&TaskContext) -> Result<(), HandlerError>;

/// `Job@run`, whose runs end one after another as these say; behind the last all succeed.
fn ending(ends: &'static [End]) -> Handlers {
    let mut handlers = Handlers::new();
    let run = Arc::new(AtomicUsize::new(0));
    handlers.on(("Job", "run"), move |ctx: TaskContext| {
        let end = ends.get(run.fetch_add(1, Ordering::SeqCst));
        let end = end.map_or(Ok(()), |end| end(&ctx));
        async move { end }
    });
    handlers
}

fn fails(_: &TaskContext) -> Result<(), HandlerError> {
    Err(HandlerError::permanent("no"))
}

fn secs(secs: u64) -> Duration {
    Duration::from_secs(secs)
}

async fn begin(kit: &TestKit, recurrence: Recurrence) -> UnixMs {
    let task = Task::new("Job", "run", [""; 0]).unwrap();
    let made = kit.tasks().create_recurring(task, recurrence).await;
    made.unwrap().due()
}

fn outcomes(ran: &[Ran]) -> Vec<&'static str> {
    ran.iter().map(|ran| ran.outcome.as_str()).collect()
}

#[tokio::test]
async fn an_occurrence_that_was_snoozed_is_run_again_though_its_due_time_is_long_ago() {
    let mut kit = TestKit::new(ending(&[|_| Err(HandlerError::snooze(secs(600)))]));
    let due = begin(&kit, Recurrence::every(secs(3_600)).unwrap()).await;
    let ran = kit.advance(secs(3_600 + 900)).await;
    assert_eq!(outcomes(&ran), ["snoozed", "succeeded"]);
    assert_eq!(kit.task("Job@run").unwrap().due, due.plus(secs(3_600)));
}

#[tokio::test]
async fn a_last_occurrence_that_is_redriven_is_run() {
    let mut kit = TestKit::new(ending(&[fails]));
    let once = Recurrence::every(secs(60)).unwrap().times(1).unwrap();
    begin(&kit, once).await;
    assert_eq!(outcomes(&kit.advance(secs(3_600)).await), ["failed"]);
    assert_eq!(kit.task("Job@run").unwrap().state, State::Dead);
    let key = TaskKey::parse("Job@run").unwrap();
    kit.ledger().redrive(&key).await.unwrap();
    assert_eq!(outcomes(&kit.advance(Duration::ZERO).await), ["succeeded"]);
}

#[tokio::test]
async fn a_failed_run_keeps_no_result() {
    let mut kit = TestKit::new(ending(&[
        |ctx| ctx.keep_result(1),
        |ctx| {
            ctx.keep_result(2)?;
            fails(ctx)
        },
    ]));
    begin(&kit, Recurrence::every(secs(60)).unwrap()).await;
    let result = |kit: &TestKit| kit.task("Job@run").unwrap().result;
    kit.advance(secs(60)).await;
    assert_eq!(result(&kit).as_deref(), Some("1"));
    kit.advance(secs(60)).await;
    assert_eq!(result(&kit), None);
}

#[tokio::test]
async fn a_missed_occurrence_keeps_the_result_of_the_previous_one() {
    let mut kit = TestKit::new(ending(&[fails]));
    begin(&kit, Recurrence::every(secs(3_600)).unwrap()).await;
    kit.advance(secs(3_600)).await;
    let error = kit.task("Job@run").unwrap().last_error;
    assert!(error.is_some());
    assert_eq!(latest(&kit), "failed: permanent");
    kit.set_now(kit.now().plus(secs(5_000)));
    assert_eq!(outcomes(&kit.advance(Duration::ZERO).await), ["missed"]);
    assert_eq!(kit.task("Job@run").unwrap().last_error, error);
    assert_eq!(latest(&kit), "skipped: not run");
}

/// What became of the latest occurrence.
fn latest(kit: &TestKit) -> String {
    let task = kit.task("Job@run").unwrap();
    task.latest_occurrence.unwrap().to_string()
}

#[tokio::test]
async fn occurrences_of_a_key_that_has_a_suffix_cannot_overlap() {
    let kit = TestKit::new(ending(&[]));
    let task = Task::from(TaskKey::parse("Job@run@~0000000000abc").unwrap());
    let rule = Recurrence::every(secs(60)).unwrap();
    let tasks = kit.tasks();
    let made = tasks.create_recurring(task.clone(), rule.clone()).await;
    assert!(made.is_ok(), "{made:?}");
    let rule = rule.overlap(Overlap::Allow);
    let refused = tasks.create_recurring(task, rule).await.unwrap_err();
    assert_eq!(
        refused.to_string(),
        "key ends in the suffix `@~0000000000abc`, expected none where occurrences may overlap: each has its own suffix"
    );
}

#[tokio::test]
async fn a_cancelled_occurrence_stays_cancelled() {
    let mut kit = TestKit::new(ending(&[]));
    let rule = Recurrence::every(secs(60)).unwrap();
    let due = begin(&kit, rule.overlap(Overlap::Allow)).await;
    let instance = TaskKey::parse(&format!("Job@run@~{}", due.0)).unwrap();
    let tasks = kit.tasks();
    tasks.create(instance.clone(), due).await.unwrap();
    tasks.cancel(&instance).await.unwrap();
    let ran = kit.advance(secs(90)).await;
    assert_eq!(outcomes(&ran), ["handed_on"]);
    assert_eq!(latest(&kit), "handed on to a separate task");
    let state = kit.task(instance.as_str()).unwrap().state;
    assert_eq!(state, State::Cancelled);
}

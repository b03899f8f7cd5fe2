//! After a dump was restored: what is overdue waits for review, and what falls due from now on runs.

use lapsed::engine::DropReason;
use lapsed::ledger::{Admin, RunNowAnswer};
use lapsed::task::{Scope, State};
use lapsed::{Due, UnixMs};

use crate::end_to_end::pausing::scope;
use crate::support::daemon::Daemon;
use crate::support::handlers::handlers;
use crate::support::maria::numbers;
use crate::support::process::Process;
use crate::support::rig::Rig;
use crate::support::tasks::{create, key};
use crate::support::wait::until;

const HOLD: &str = "engine.hold_overdue = true";

/// Rows as a dump of an hour ago has them: overdue ones, and one whose retry lies ahead.
async fn restore(rig: &Rig, count: i64) {
    let numbers = numbers(count);
    rig.run_sql(&format!(
        "INSERT INTO tb_time_limit_task (`key`, status, start_time, end_time, sts) \
           SELECT CONCAT('Job@record@', seq), 0, 1, UNIX_TIMESTAMP(NOW(3)) - 3600 + seq, 0 FROM {numbers}; \
         INSERT INTO tb_time_limit_task (`key`, status, start_time, end_time, sts, run_end, retry_at, attempt) \
           SELECT 'Job@record@retry', 0, 1, end_time, 0, end_time, UNIX_TIMESTAMP(NOW(3)) + 5, 1 \
           FROM tb_time_limit_task WHERE `key` = 'Job@record@1'"
    ))
    .await;
}

async fn waiting(rig: &Rig) -> i64 {
    rig.with_status(0).await
}

#[tokio::test]
async fn overdue_tasks_stay_held_over_restarts_until_released_and_new_ones_run() {
    let rig = Rig::new("").await;
    restore(&rig, 100).await;
    // Armed before anybody listens, for later: found and adopted.
    rig.arm("Job@effect@armed", 2_000).await;
    let first = Daemon::start(&rig.config_with(HOLD), handlers());
    first.hears_events().await;
    rig.arm("Job@effect@new", 600).await;
    first.create("Job@effect@created", 300).await;
    first.create("Job@effect@now", 0).await;
    rig.until_done(4).await;
    until("the retry was dropped, too", async || {
        first.dropped(DropReason::Paused) >= 1.0
    })
    .await;
    assert_eq!(waiting(&rig).await, 101);
    assert_eq!(rig.runs().await, []);
    first.stop().await;

    // Others know of it, whether or not they ask for one; the hold is about the first start.
    let held_before = |pauses: Vec<lapsed::task::Pause>| pauses[0].due_before.unwrap();
    let client = rig.client().await;
    let before = held_before(client.pauses().await.unwrap());
    let plain = rig.listening_daemon().await;
    let holding = Daemon::start(&rig.config_with(HOLD), handlers());
    holding.hears_events().await;
    create(&client, "Job@effect@later", 100).await;
    rig.until_done(5).await;
    assert_eq!(rig.runs().await, []);
    let pauses = client.pauses().await.unwrap();
    assert_eq!(pauses.len(), 1);
    assert_eq!(held_before(pauses), before);

    // One by one: moved, run, called off.
    let now = Due::after_ms(0).unwrap();
    client.reschedule(&key("Job@record@1"), now).await.unwrap();
    let ledger = lapsed::ledger::mysql::MysqlLedger::new(&rig.config().ledger).unwrap();
    let run = ledger.run_now(&key("Job@record@2")).await.unwrap();
    assert!(matches!(run, RunNowAnswer::Due(arming) if arming.due >= before));
    client.cancel(&key("Job@record@3")).await.unwrap();
    rig.until_state("Job@record@1", State::Done).await;
    rig.until_state("Job@record@2", State::Done).await;
    assert_eq!(rig.runs().await.len(), 2);

    // A class, and then the rest.
    client
        .resume_held(&scope("Job@effect"), "test")
        .await
        .unwrap();
    client
        .resume_held(&scope("Job@record"), "test")
        .await
        .unwrap();
    rig.until_done(5 + 100).await;
    assert_eq!(waiting(&rig).await, 0);
    let runs = rig.runs().await;
    assert_eq!(
        runs.len(),
        100,
        "each once: all but the cancelled one, and the retry"
    );
    assert_eq!(rig.record("Job@record@retry").await.attempt, 2);
    client
        .resume_held(&Scope::EVERYTHING, "test")
        .await
        .unwrap();
    assert_eq!(client.pauses().await.unwrap(), []);
    drop((plain, holding));
}

#[tokio::test]
async fn listen_with_hold_overdue_says_what_it_holds() {
    let rig = Rig::new("[[routes]]\nmatch = '^Job@record@'\nlog = {}").await;
    restore(&rig, 30).await;
    let mut daemon = Process::listen_holding(&rig);
    daemon.until_logged("tasks are held for review").await;
    daemon.until_logged("overdue=30").await;
    let client = rig.client().await;
    let made = create(&client, "Job@record@new", 0).await;
    rig.until_state("Job@record@new", State::Done).await;
    rig.until_clock(UnixMs(made.due().0 + 2_000)).await;
    assert_eq!(waiting(&rig).await, 31);
    daemon.kill();

    let again = Process::listen_holding(&rig);
    again.until_logged("that hold is kept").await;
    // What was lifted before it has read it, it would not say.
    again.until_logged("pause seen").await;
    client
        .resume_held(&Scope::EVERYTHING, "test")
        .await
        .unwrap();
    rig.until_done(32).await;
    again.until_logged("pause lifted").await;
}

//! Daemons that hear of keys late, and keys whose rows are locked: no word of a program is forgotten or counted twice.

use lapsed::task::State;
use rustix::process::Signal;
use sqlx::{Connection, MySqlConnection};

use crate::support::process::Process;
use crate::support::rig::Rig;
use crate::support::tasks::create;
use crate::support::wait::until;

/// Longer than a member list counts as fresh, and than two due times may differ that belong to one arming.
const FROZEN_MS: i64 = 5_000;

/// Two daemons that hear all events and know of each other. The first is the senior one.
async fn two_daemons(rig: &Rig) -> [Process; 2] {
    let first = Process::worker(rig);
    until_members(rig, 1).await;
    let second = Process::worker(rig);
    until_members(rig, 2).await;
    [first, second]
}

async fn until_members(rig: &Rig, count: i64) {
    until(format!("{count} daemons are members"), async || {
        let names: Vec<String> = rig.redis_says(&["KEYS", "#lapsed:members:*"]).await;
        match names.first() {
            Some(name) => rig.redis_says::<i64>(&["HLEN", name]).await == count,
            None => false,
        }
    })
    .await;
    until(format!("{count} daemons listen"), async || {
        let clients: String = rig.redis_says(&["CLIENT", "LIST", "TYPE", "pubsub"]).await;
        let listen = |line: &&str| !line.contains(" psub=0 ");
        clients.lines().filter(listen).count() as i64 == count
    })
    .await;
}

async fn a_frozen_daemon_runs_nothing_again(frozen: usize) {
    let rig = Rig::new("").await;
    let daemons = two_daemons(&rig).await;
    rig.arm("Job@record@before", 500).await;
    rig.until_done(1).await;
    daemons[frozen].freeze();
    for number in 0..30 {
        rig.arm(&format!("Job@record@{number}"), 600).await;
    }
    let armed = rig.now_ms().await;
    rig.until_done(31).await;
    rig.until_clock(lapsed::UnixMs(armed + FROZEN_MS)).await;
    daemons[frozen].signal(Signal::CONT);
    // Behind all that it reads now.
    for number in 0..3 {
        rig.arm(&format!("Job@record@after{number}"), 1_500).await;
    }
    rig.until_done(34).await;
    rig.each_ran_once(34).await;
}

#[tokio::test]
async fn keys_expired_while_the_first_daemon_is_frozen_run_once() {
    a_frozen_daemon_runs_nothing_again(0).await;
}

#[tokio::test]
async fn keys_expired_while_the_second_daemon_is_frozen_run_once() {
    a_frozen_daemon_runs_nothing_again(1).await;
}

#[tokio::test]
async fn a_task_cancelled_while_a_daemon_is_frozen_stays_cancelled() {
    let rig = Rig::new("").await;
    let daemons = two_daemons(&rig).await;
    rig.run_sql(
        "INSERT INTO tb_time_limit_task_pauses (kind, class, method, since) \
         VALUES ('pause', 'Job', '', UNIX_TIMESTAMP(NOW(3)))",
    )
    .await;
    daemons[0].freeze();
    for number in 0..10 {
        rig.arm(&format!("Job@record@{number}"), 1_000).await;
    }
    let armed = rig.now_ms().await;
    let client = rig.client().await;
    for number in 0..10 {
        let name = format!("Job@record@{number}");
        rig.until_adopted(&name).await;
        rig.until_clock(lapsed::UnixMs(armed + 1_200)).await;
        client
            .cancel(lapsed::TaskKey::parse(&name).unwrap())
            .await
            .unwrap();
    }
    rig.until_clock(lapsed::UnixMs(armed + FROZEN_MS)).await;
    daemons[0].signal(Signal::CONT);
    rig.run_sql("DELETE FROM tb_time_limit_task_pauses").await;
    rig.arm("Job@record@after", 3_000).await;
    rig.until_done(1).await;
    rig.each_ran_once(1).await;
    assert_eq!(rig.with_status(3).await, 10);
}

/// Locks the row of this task.
async fn lock<'a>(
    other: &'a mut MySqlConnection,
    name: &str,
) -> sqlx::Transaction<'a, sqlx::MySql> {
    // Only this row, and not the gap in front of it, where other tasks are inserted.
    sqlx::query("SET TRANSACTION ISOLATION LEVEL READ COMMITTED")
        .execute(&mut *other)
        .await
        .unwrap();
    let mut holding = other.begin().await.unwrap();
    let lock = "SELECT id FROM tb_time_limit_task WHERE `key` = ? FOR UPDATE";
    sqlx::query(lock)
        .bind(name)
        .fetch_one(&mut *holding)
        .await
        .unwrap();
    holding
}

async fn connect(rig: &Rig) -> MySqlConnection {
    let url = rig.config().ledger.url.expose().to_owned();
    MySqlConnection::connect(&url).await.unwrap()
}

#[tokio::test]
async fn moves_that_wait_for_a_locked_row_are_not_forgotten_when_their_keys_expire() {
    let rig = Rig::new("").await;
    let daemon = rig.listening_daemon().await;
    daemon.has_audited().await;
    for number in 0..20 {
        daemon
            .create(&format!("Job@record@{number}"), 36_000_000)
            .await;
    }
    let mut other = connect(&rig).await;
    let holding = lock(&mut other, "Job@record@0").await;
    for number in 0..20 {
        let name = format!("Job@record@{number}");
        let () = rig.redis_says(&["SETEX", &name, "2", ""]).await;
    }
    let armed = rig.now_ms().await;
    // All keys have expired, and lapsed has armed those of rows that seemed early.
    rig.until_clock(lapsed::UnixMs(armed + 4_500)).await;
    holding.rollback().await.unwrap();
    rig.until_done(20).await;
    rig.each_ran_once(20).await;
}

#[tokio::test]
async fn a_locked_row_whose_key_was_deleted_delays_no_adoption() {
    let rig = Rig::new("").await;
    let daemon = rig.listening_daemon().await;
    daemon.has_audited().await;
    rig.arm("Job@record@locked", 600_000).await;
    rig.until_adopted("Job@record@locked").await;
    let mut other = connect(&rig).await;
    let holding = lock(&mut other, "Job@record@locked").await;
    let _: i64 = rig.redis_says(&["DEL", "Job@record@locked"]).await;
    for number in 0..10 {
        rig.arm(&format!("Job@record@{number}"), 1_500).await;
    }
    rig.until_done(10).await;
    assert_eq!(rig.state("Job@record@locked").await, State::Pending);
    holding.rollback().await.unwrap();
    rig.until_state("Job@record@locked", State::Cancelled).await;
    rig.each_ran_once(10).await;
}

#[tokio::test]
async fn a_burst_of_deletions_is_written_after_due_tasks() {
    let rig = Rig::new("").await;
    let daemon = rig.listening_daemon().await;
    daemon.has_audited().await;
    for number in 0..400 {
        rig.arm(&format!("Job@record@far{number}"), 600_000).await;
    }
    until("all are adopted", async || rig.with_status(0).await == 400).await;
    for number in 0..400 {
        let name = format!("Job@record@far{number}");
        let _: i64 = rig.redis_says(&["DEL", &name]).await;
    }
    rig.arm("Job@record@near", 300).await;
    rig.until_done(1).await;
    until("all are cancelled", async || {
        rig.with_status(3).await == 400
    })
    .await;
    rig.each_ran_once(1).await;
}

#[tokio::test]
async fn keys_are_adopted_after_the_ledger_clock_was_set_back() {
    let rig = Rig::new("").await;
    let daemon = rig.listening_daemon().await;
    daemon.has_audited().await;
    for name in ["done", "deleted"] {
        let delay_ms = if name == "done" { 300 } else { 600_000 };
        rig.arm(&format!("Job@record@{name}"), delay_ms).await;
    }
    let client = rig.client().await;
    create(&client, "Job@record@moved", 600_000).await;
    rig.until_done(1).await;
    rig.until_adopted("Job@record@deleted").await;
    // As if all of this had happened before the clock was set back by two minutes.
    rig.run_sql(
        "UPDATE tb_time_limit_task SET changed_at = changed_at + 120, start_time = start_time + 120, \
         finished_at = finished_at + 120, end_time = IF(status = 1, end_time + 120, end_time), \
         run_end = IF(status = 1, end_time, run_end)",
    )
    .await;
    for name in ["done", "moved"] {
        let () = rig
            .redis_says(&["SETEX", &format!("Job@record@{name}"), "2", ""])
            .await;
    }
    let _: i64 = rig.redis_says(&["DEL", "Job@record@deleted"]).await;
    until("each ran", async || rig.runs().await.len() == 3).await;
    assert_eq!(rig.runs_of("Job@record@done").await.len(), 2);
    assert_eq!(rig.runs_of("Job@record@moved").await.len(), 1);
    rig.until_state("Job@record@deleted", State::Cancelled)
        .await;
}

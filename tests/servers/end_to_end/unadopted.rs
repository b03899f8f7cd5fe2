//! What adoption does not touch: keys of others, keys with a row, and keys that were deleted.

use lapsed::engine::DropReason;
use lapsed::task::State;
use lapsed::{Handlers, TaskContext};
use lapsed_sandbox::PrivateRedis;
use tokio::time::Instant;

use crate::support::daemon::Daemon;
use crate::support::handlers::write_down;
use crate::support::maria::counter;
use crate::support::rig::Rig;
use crate::support::setup::Setup;
use crate::support::wait::until;

async fn rows(rig: &Rig) -> i64 {
    rig.number("SELECT COUNT(*) FROM tb_time_limit_task").await
}

/// Statements that the database has executed: those that read, and those that write.
async fn statements(rig: &Rig) -> (i64, i64) {
    let of = async |name: &str| counter(&rig.sql, name).await;
    (
        of("Com_select").await,
        of("Com_insert").await + of("Com_update").await,
    )
}

#[tokio::test]
async fn keys_without_a_route_are_neither_read_nor_adopted() {
    let rig = Rig::new("").await;
    let daemon = rig.listening_daemon().await;
    rig.arm("Job@record@first", 200).await;
    rig.until_done(1).await;
    let read = rig.redis_calls("getrange").await;
    for number in 0..200 {
        for name in [
            format!("cache:user:{number}"),
            format!("Foo@bar@{number}"),
            format!("user@example.com:{number}"),
        ] {
            rig.arm(&name, 50 + number).await;
        }
    }
    rig.arm("Job@record@last", 500).await;
    rig.until_done(2).await;
    // Only ours, the first a second time where its event came after its run.
    let read = rig.redis_calls("getrange").await - read;
    assert!((1..=4).contains(&read), "{read} keys were read");
    assert_eq!(rows(&rig).await, 2);
    until("their events are counted", async || {
        daemon.dropped(DropReason::Unroutable) >= 200.0
    })
    .await;
}

#[tokio::test]
async fn a_route_may_refuse_to_adopt_and_another_may_adopt_alone() {
    let routes = "[[routes]]\nmatch = '^No@'\nlog = {}\nadopt = false\n\
                  [[routes]]\nmatch = '^Yes@'\nlog = {}\nadopt = true\n\
                  [[routes]]\nmatch = '^Any@'\nlog = {}\n";
    for (enabled, adopted) in [(true, &["Any@m@1", "Yes@m@1"][..]), (false, &["Yes@m@1"])] {
        let rig = Rig::new(&format!("adopt.enabled = {enabled}\n{routes}")).await;
        let daemon = rig.listening_daemon().await;
        for name in ["No@m@1", "Yes@m@1", "Any@m@1"] {
            rig.arm(name, 1_500).await;
        }
        rig.until_done(adopted.len()).await;
        until("the others came to nothing", async || {
            daemon.dropped(DropReason::Unknown) >= (3 - adopted.len()) as f64
        })
        .await;
        for name in adopted {
            assert_eq!(rig.state(name).await, State::Done);
        }
        assert_eq!(rows(&rig).await, adopted.len() as i64);
    }
}

#[tokio::test]
async fn a_key_that_no_event_announces_is_found_by_a_scan_before_it_expires() {
    let conf = tempfile::NamedTempFile::new().unwrap();
    let settings = "rename-command CONFIG \"\"\nnotify-keyspace-events \"\"\n";
    std::fs::write(conf.path(), settings).unwrap();
    let include = conf.path().to_str().unwrap();
    let setup = Setup::new("sentinel.interval = '1h'");
    let options = PrivateRedis::options().set("include", include);
    let rig = setup.redis(options).start().await;
    let daemon = rig.daemon();
    daemon.has_audited().await;
    assert_eq!(daemon.status.is_listening(), Some(false));
    // Long enough for a scan on a busy machine, short enough for no audit.
    rig.arm("Job@record@unheard", 20_000).await;
    rig.until_adopted("Job@record@unheard").await;
    rig.until_done(1).await;
}

#[tokio::test]
async fn armings_of_the_daemon_itself_cost_no_statement() {
    const OURS: i64 = 300;
    let setup = Setup::new("sweep.interval = '1h'\nsentinel.interval = '1h'");
    let rig = setup.own_maria().start().await;
    let daemon = rig.listening_daemon().await;
    daemon.has_audited().await;
    let adopted_after = async |name: &str| {
        rig.arm(name, 60_000).await;
        rig.until_adopted(name).await;
    };
    adopted_after("Job@record@before").await;
    let (now, read) = (rig.now_ms().await, Instant::now());
    let before = statements(&rig).await;
    for number in 0..OURS {
        // One at a time, as producers arm them; the rows would only add to what is counted.
        let due = now + read.elapsed().as_millis() as i64 + 60_000;
        let (name, value) = (format!("Job@record@{number}"), format!("lapsed:{due}"));
        // By the moment, so that a machine that is busy between the two lines makes no other due time of it.
        let due = due.to_string();
        let () = rig.redis_says(&["SET", &name, &value, "PXAT", &due]).await;
    }
    // What was armed before this was handled before this.
    adopted_after("Job@record@after").await;
    let after = statements(&rig).await;
    assert_eq!(after.1 - before.1, 1, "writes: the last one's row");
    assert_eq!(
        (rows(&rig).await, daemon.dropped(DropReason::Known)),
        (2, 0.0)
    );
    // This test asks every 10 ms; the daemon reads a clock each 5 s.
    let reads = after.0 - before.0;
    assert!(reads < OURS / 2, "{reads} reads");
}

#[tokio::test]
async fn a_program_that_writes_its_row_a_little_later_keeps_it() {
    let rig = Rig::new("").await;
    let daemon = rig.listening_daemon().await;
    // However slow this machine is: the daemon cannot look for a row before the program has written its own.
    let mut program = rig.sql.acquire().await.unwrap();
    for statement in [
        "LOCK TABLES tb_time_limit_task WRITE",
        "INSERT INTO tb_time_limit_task (`key`, start_time, end_time, tag) \
         VALUES ('Job@record@1', UNIX_TIMESTAMP(NOW(3)), UNIX_TIMESTAMP(NOW(3)) + 3, 'mine')",
        "UNLOCK TABLES",
    ] {
        if statement.starts_with("INSERT") {
            rig.arm("Job@record@1", 3_000).await;
        }
        sqlx::raw_sql(statement)
            .execute(&mut *program)
            .await
            .unwrap();
    }
    drop(program);
    until("it was compared", async || {
        daemon.dropped(DropReason::Known) >= 1.0
    })
    .await;
    let record = rig.record("Job@record@1").await;
    assert_eq!(
        (record.tag.as_deref(), record.adopted),
        (Some("mine"), false)
    );
    rig.until_done(1).await;
    rig.each_ran_once(1).await;
    assert_eq!(rows(&rig).await, 1);
}

#[tokio::test]
async fn a_leftover_key_of_a_cancelled_task_is_ignored() {
    let rig = Rig::new("").await;
    let daemon = rig.listening_daemon().await;
    // As if deleting the keys had failed: the rows are cancelled, the keys stay.
    rig.arm("Job@record@adopted", 5_000).await;
    rig.until_adopted("Job@record@adopted").await;
    let end = "UNIX_TIMESTAMP() + 5";
    rig.run_sql(&format!(
        "INSERT INTO tb_time_limit_task (`key`, start_time, end_time) VALUES ('Job@record@written', UNIX_TIMESTAMP(), {end})"
    ))
    .await;
    let () = rig
        .redis_says(&["SETEX", "Job@record@written", "5", ""])
        .await;
    until("it was compared", async || {
        daemon.dropped(DropReason::Known) >= 1.0
    })
    .await;
    rig.run_sql(
        "UPDATE tb_time_limit_task SET status = 3, sts = 1, finished_at = UNIX_TIMESTAMP(NOW(3))",
    )
    .await;
    daemon.stop().await;
    // Its first audit finds both.
    let daemon = rig.listening_daemon().await;
    until("both were found and expired", async || {
        daemon.dropped(DropReason::Known) >= 2.0 && daemon.dropped(DropReason::Cancelled) >= 2.0
    })
    .await;
    assert_eq!(rig.runs().await, []);
    assert_eq!(rig.with_status(3).await, 2);
}

#[tokio::test]
async fn a_key_of_any_type_and_size_is_adopted() {
    let rig = Rig::new("").await;
    let _daemon = rig.listening_daemon().await;
    let large = "x".repeat(8 << 20);
    let commands: [&[&str]; 4] = [
        &["HSET", "Job@record@hash", "field", "value"],
        &["RPUSH", "Job@record@list", "value"],
        &["SET", "Job@record@large", &large],
        &["SET", "Job@record@like-ours", "lapsed:tomorrow"],
    ];
    for command in commands {
        let _: redis::Value = rig.redis_says(command).await;
        let set: i64 = rig.redis_says(&["PEXPIRE", command[1], "1500"]).await;
        assert_eq!(set, 1);
    }
    rig.until_done(commands.len()).await;
    rig.each_ran_once(commands.len()).await;
}

#[tokio::test]
async fn a_key_made_to_last_without_an_event_runs_from_its_row() {
    let rig = Rig::new("").await;
    let _daemon = rig.listening_daemon().await;
    rig.arm("Job@record@1", 2_000).await;
    rig.until_adopted("Job@record@1").await;
    let () = rig.redis_says(&["SET", "Job@record@1", ""]).await;
    rig.until_done(1).await;
    rig.each_ran_once(1).await;
}

#[tokio::test]
async fn a_deletion_by_a_replica_cancels_no_task() {
    let rig = Rig::new("").await;
    let daemon = rig.listening_daemon().await;
    rig.arm("Job@record@1", 6_000).await;
    rig.until_adopted("Job@record@1").await;
    // The daemon's server becomes a replica of another, which then deletes the key: both say `del`.
    let other = PrivateRedis::options().set("repl-diskless-sync-delay", "0");
    let other = other.start().await.unwrap();
    let mut other_says = other.connect(0).await.unwrap();
    let () = redis::cmd("PSETEX")
        .arg(&["Job@record@1", "60000", ""])
        .query_async(&mut other_says)
        .await
        .unwrap();
    let port = other.port().to_string();
    let () = rig.redis_says(&["REPLICAOF", "127.0.0.1", &port]).await;
    until("it follows the other", async || {
        let info: String = rig.redis_says(&["INFO", "replication"]).await;
        info.contains("master_link_status:up")
    })
    .await;
    let deleted: i64 = redis::cmd("DEL")
        .arg("Job@record@1")
        .query_async(&mut other_says)
        .await
        .unwrap();
    assert_eq!(deleted, 1);
    until(
        "the deletion was not believed, or not heard any more",
        async || {
            daemon.dropped(DropReason::Unverified) >= 1.0
                || daemon.status.is_listening() == Some(false)
        },
    )
    .await;
    rig.until_done(1).await;
    rig.each_ran_once(1).await;
    assert_eq!(daemon.metric("lapsed_withdrawn_total"), 0.0);
}

#[tokio::test]
async fn a_handler_that_arms_its_own_key_runs_each_time() {
    let rig = Rig::new("").await;
    let redis = rig.redis_connection().await;
    let mut handlers = Handlers::new();
    handlers.on(
        ("Job", "record"),
        move |task: TaskContext, _: Vec<String>| {
            let mut redis = redis.clone();
            async move {
                write_down(&task).await?;
                let () = redis::cmd("SET")
                    .arg(task.key().as_str())
                    .arg("")
                    .arg("PX")
                    .arg(300)
                    .query_async(&mut redis)
                    .await?;
                Ok(())
            }
        },
    );
    let daemon = Daemon::start(&rig.config(), handlers);
    daemon.hears_events().await;
    rig.arm("Job@record@1", 300).await;
    until("it has run eight times", async || {
        rig.runs_of("Job@record@1").await.len() >= 8
    })
    .await;
    let runs = rig.runs_of("Job@record@1").await;
    let apart = runs.windows(2).map(|pair| pair[1].at_ms - pair[0].at_ms);
    let apart: Vec<i64> = apart.collect();
    assert!(
        apart.iter().all(|ms| (300..1_500).contains(ms)),
        "{apart:?}"
    );
    assert_eq!(rows(&rig).await, 1);
}

#[tokio::test]
async fn an_arming_that_a_stalled_server_carries_out_late_runs_nothing_again() {
    let rig = Rig::new("").await;
    let daemon = rig.listening_daemon().await;
    let made = daemon.create("Job@record@1", 0).await;
    rig.until_done(1).await;
    // As the server would have got it before it stalled.
    let value = format!("lapsed:{}", made.due().0);
    let () = rig
        .redis_says(&["SET", "Job@record@1", &value, "PX", "3000"])
        .await;
    until("it expired in vain", async || {
        daemon.dropped(DropReason::Finished) >= 1.0
    })
    .await;
    assert!(daemon.dropped(DropReason::Known) >= 1.0);
    assert_eq!(rows(&rig).await, 1);
    rig.each_ran_once(1).await;
}

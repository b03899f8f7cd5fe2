//! The ledger fails, hangs or is locked; in the end every task is settled, and each effect is there once.

use std::time::Duration;

use lapsed::{Task, UnixMs};
use sqlx::{AssertSqlSafe, Connection, MySqlConnection, Row};

use crate::end_to_end::wire::Wire;
use crate::support::daemon::Daemon;
use crate::support::handlers::handlers;
use crate::support::rig::Rig;
use crate::support::setup::Setup;
use crate::support::wait::until;

/// Tasks that take effect in their own transactions, some of them during what the test does next.
async fn create_effects(daemon: &Daemon, count: i64) {
    for number in 0..count {
        let name = format!("Job@effect@{number}");
        daemon.create(&name, number * 40).await;
    }
}

async fn settled(rig: &Rig) -> i64 {
    let done = sqlx::query_scalar("SELECT COUNT(*) FROM tb_time_limit_task WHERE status = 1");
    done.fetch_one(&rig.sql).await.unwrap_or(-1)
}

#[tokio::test]
async fn a_ledger_that_is_killed_twice_has_every_effect_once() {
    let mut rig = Setup::new("engine.lease = '3s'").own_maria().start().await;
    let daemon = rig.daemon();
    create_effects(&daemon, 100).await;
    for share in [20, 60] {
        until(format!("{share} are done"), async || {
            settled(&rig).await >= share
        })
        .await;
        rig.maria().kill();
        rig.maria().restart().await.unwrap();
    }
    until("all are done", async || settled(&rig).await == 100).await;
    rig.each_effect_once(100).await;
    daemon.stop().await;
}

#[tokio::test]
async fn a_ledger_that_restarts_in_good_order_has_every_effect_once() {
    let mut rig = Setup::new("engine.lease = '3s'").own_maria().start().await;
    let daemon = rig.daemon();
    create_effects(&daemon, 100).await;
    until("20 are done", async || settled(&rig).await >= 20).await;
    rig.maria().shutdown().await.unwrap();
    until("the daemon has noticed", async || {
        !daemon.status.ledger_answers()
    })
    .await;
    rig.maria().restart().await.unwrap();
    until("all are done", async || settled(&rig).await == 100).await;
    until("the daemon has noticed", async || {
        daemon.status.ledger_answers()
    })
    .await;
    rig.each_effect_once(100).await;
}

#[tokio::test]
async fn a_ledger_that_hangs_for_eight_seconds_has_every_effect_once() {
    let mut rig = Setup::new("engine.lease = '3s'").own_maria().start().await;
    let daemon = rig.daemon();
    create_effects(&daemon, 100).await;
    until("20 are done", async || settled(&rig).await >= 20).await;
    rig.maria().stop_process().unwrap();
    // Time itself is under test: longer than a lease, and than a statement may take.
    tokio::time::sleep(Duration::from_secs(8)).await;
    rig.maria().continue_process().unwrap();
    until("all are done", async || settled(&rig).await == 100).await;
    rig.each_effect_once(100).await;
    assert!(daemon.is_alive());
}

#[tokio::test]
async fn a_daemon_whose_connections_are_killed_again_and_again_has_every_effect_once() {
    let rig = Rig::new("engine.lease = '2s'").await;
    let daemon = rig.daemon();
    create_effects(&daemon, 100).await;
    for share in [10, 20, 30, 40, 50] {
        until(format!("{share} are done"), async || {
            settled(&rig).await >= share
        })
        .await;
        let mut own = MySqlConnection::connect(rig.config().ledger.url.expose())
            .await
            .unwrap();
        let (own_id, database): (u64, String) =
            sqlx::query_as("SELECT CONNECTION_ID(), CAST(DATABASE() AS CHAR)")
                .fetch_one(&mut own)
                .await
                .unwrap();
        // Not `information_schema`: there MySQL refuses statements whose values are no text.
        let all = sqlx::query("SHOW PROCESSLIST").fetch_all(&mut own);
        for other in all.await.unwrap() {
            let id: u64 = other.get_unchecked("Id");
            let of = other.get_unchecked::<Option<String>, _>("db");
            if id == own_id || of.as_deref() != Some(&*database) {
                continue;
            }
            // It may have gone by itself.
            let _ = sqlx::raw_sql(AssertSqlSafe(format!("KILL {id}")))
                .execute(&mut own)
                .await;
        }
    }
    until("all are done", async || settled(&rig).await == 100).await;
    rig.each_effect_once(100).await;
}

/// A daemon whose wire to the ledger is cut.
async fn daemon_behind(
    rig: &Rig,
    cut: impl Fn(&[u8]) -> bool + Send + Sync + 'static,
    most: usize,
) -> (Daemon, Wire) {
    let url = rig.config().ledger.url.expose().to_owned();
    let port = url.split([':', '/']).nth(4).unwrap().to_owned();
    let wire = Wire::to(port.parse().unwrap(), most, cut).await;
    let mut config = rig.config();
    // Readable to the wire: MySQL has TLS switched on.
    let through = url.replace(&port, &wire.port.to_string()) + "?ssl-mode=disabled";
    config.ledger.url = through.as_str().into();
    (Daemon::start(&config, handlers()), wire)
}

#[tokio::test]
async fn a_commit_whose_reply_is_lost_counts() {
    let rig = Rig::new("").await;
    let is_commit = |packet: &[u8]| packet.ends_with(b"\x03COMMIT");
    let (daemon, wire) = daemon_behind(&rig, is_commit, 10).await;
    let client = rig.client().await;
    for number in 0..20 {
        crate::support::tasks::create(&client, &format!("Job@effect@{number}"), number * 50).await;
    }
    rig.until_done(20).await;
    assert_eq!(wire.cuts(), 10);
    rig.each_effect_once(20).await;
    let succeeded = "lapsed_runs_total{route=\"Job@effect\",outcome=\"succeeded\"}";
    until("all have succeeded", async || {
        daemon.metric(succeeded) == 20.0
    })
    .await;
    daemon.stop().await;
    let tried_twice =
        "SELECT COUNT(*) FROM tb_time_limit_task WHERE attempt > 1 OR last_error IS NOT NULL";
    assert_eq!(rig.number(tried_twice).await, 0);
}

#[tokio::test]
async fn a_claim_whose_answer_is_lost_is_given_back_and_counts_nothing() {
    let rig = Rig::new("").await;
    // Only a claim names the daemon, and it executes a prepared statement.
    let process = format!(":{}", std::process::id());
    let is_claim = move |packet: &[u8]| {
        packet.get(4) == Some(&0x17)
            && packet
                .windows(process.len())
                .any(|bytes| bytes == process.as_bytes())
    };
    let (daemon, wire) = daemon_behind(&rig, is_claim, 2).await;
    let client = rig.client().await;
    for number in 0..5 {
        crate::support::tasks::create(&client, &format!("Job@record@{number}"), 0).await;
    }
    rig.until_done(5).await;
    assert_eq!(wire.cuts(), 2);
    rig.each_ran_once(5).await;
    let counted = "SELECT COUNT(*) FROM tb_time_limit_task WHERE attempt > 1 OR crashes > 0";
    assert_eq!(rig.number(counted).await, 0);
    daemon.stop().await;
}

#[tokio::test]
async fn answers_that_are_lost_anywhere_leave_every_effect_once() {
    let rig = Rig::new("engine.lease = '1s'").await;
    let packets = std::sync::atomic::AtomicUsize::new(0);
    let each_so_many = move |_: &[u8]| {
        let number = packets.fetch_add(1, std::sync::atomic::Ordering::SeqCst);
        number > 100 && number.is_multiple_of(23)
    };
    let (daemon, wire) = daemon_behind(&rig, each_so_many, 20).await;
    let client = rig.client().await;
    for number in 0..100 {
        crate::support::tasks::create(&client, &format!("Job@effect@{number}"), number * 50).await;
    }
    until("all are done", async || settled(&rig).await == 100).await;
    rig.each_effect_once(100).await;
    assert!(wire.cuts() >= 10, "only {}", wire.cuts());
    assert!(daemon.is_alive());
}

#[tokio::test]
async fn a_row_that_somebody_locks_delays_no_other() {
    let rig = Rig::new("").await;
    let daemon = rig.daemon();
    // All at the same moment, so that one statement claims them, the locked one first.
    let due = UnixMs(rig.now_ms().await + 2_000);
    let task = |number| Task::new("Job", "record", [number]).unwrap();
    daemon.tasks.create(task(0), due).await.unwrap();
    let url = rig.config().ledger.url.expose().to_owned();
    let mut other = MySqlConnection::connect(&url).await.unwrap();
    let mut tx = other.begin().await.unwrap();
    let lock = "SELECT id FROM tb_time_limit_task WHERE `key` = 'Job@record@0' FOR UPDATE";
    sqlx::query(AssertSqlSafe(lock.to_owned()))
        .execute(&mut *tx)
        .await
        .unwrap();
    for number in 1..50 {
        daemon.tasks.create(task(number), due).await.unwrap();
    }

    // The lock is held until these are done: one that waited for it would wait for ever.
    rig.until_done(49).await;
    // Long enough for several claims to meet the lock.
    rig.until_clock(UnixMs(due.0 + 6_000)).await;
    assert_eq!(rig.with_status(1).await, 49);
    tx.rollback().await.unwrap();
    rig.until_done(50).await;
    rig.each_ran_once(50).await;
}

#[tokio::test]
async fn a_row_that_is_locked_while_it_runs_is_settled_later_and_delays_no_other() {
    let rig = Rig::new("").await;
    let mut handlers = crate::support::handlers::handlers();
    let (entered, mut running) = tokio::sync::mpsc::unbounded_channel();
    let go = std::sync::Arc::new(tokio::sync::Notify::new());
    let gate = std::sync::Arc::clone(&go);
    handlers.on(("Job", "gated"), move || {
        let (entered, gate) = (entered.clone(), std::sync::Arc::clone(&gate));
        async move {
            entered.send(()).unwrap();
            gate.notified().await;
            Ok(())
        }
    });
    let daemon = rig.daemon_with(handlers);
    daemon.create("Job@gated", 0).await;
    running.recv().await.unwrap();
    let mut tx = rig.sql.begin().await.unwrap();
    sqlx::query("SELECT id FROM tb_time_limit_task WHERE `key` = 'Job@gated' FOR UPDATE")
        .execute(&mut *tx)
        .await
        .unwrap();
    go.notify_one();
    for number in 0..30 {
        daemon
            .create(&format!("Job@record@{number}"), number * 100)
            .await;
    }
    rig.until_done(30).await;
    rig.each_ran_once(30).await;
    tx.rollback().await.unwrap();
    rig.until_done(31).await;
    assert!(running.try_recv().is_err(), "it ran once");
}

#[tokio::test]
async fn one_key_that_the_table_cannot_hold_keeps_no_other_from_being_adopted() {
    let rig = Setup::new("").without_table().start().await;
    rig.run_sql(
        "CREATE TABLE tb_time_limit_task (id INT UNSIGNED NOT NULL AUTO_INCREMENT PRIMARY KEY, \
           `key` VARCHAR(255) CHARACTER SET utf8 COLLATE utf8_bin NOT NULL, status TINYINT UNSIGNED NOT NULL, \
           start_time DECIMAL(13,3) UNSIGNED NOT NULL, end_time DECIMAL(13,3) UNSIGNED NOT NULL) ENGINE=InnoDB DEFAULT CHARSET=utf8",
    )
    .await;
    rig.migrate().await;
    let daemon = rig.listening_daemon().await;
    rig.arm("Job@record@😀", 3_600_000).await;
    rig.arm("Job@record@expires😀", 300).await;
    daemon
        .until_counted(
            "lapsed_signals_dropped_total{reason=\"unfit_key\"}",
            |count| count >= 2.0,
        )
        .await;
    rig.publish_expired("Job@record@forged😀").await;
    for number in 0..20 {
        rig.arm(&format!("Job@record@{number}"), 1_000).await;
    }
    rig.until_done(20).await;
    rig.each_ran_once(20).await;
    daemon.stop().await;
    // One that starts meets it in its audit.
    let next = rig.listening_daemon().await;
    next.has_audited().await;
    rig.arm("Job@record@20", 500).await;
    rig.until_done(21).await;
    next.stop().await;
}

//! A ledger on a group of MySQL servers, of which one is the primary.
//!
//! MariaDB has no Group Replication, and Debian stable has no MySQL: `scripts/on-mysql` runs these tests.
//! `LAPSED_TEST_FAILOVERS` sets how often the primary is killed, once by default.

use std::process::Command;
use std::sync::Arc;
use std::sync::atomic::{AtomicU16, Ordering};

use lapsed::Due;
use lapsed_doctor::{self as doctor, Severity};
use lapsed_sandbox::{MariaOptions, PrivateGroup};
use sqlx::{AssertSqlSafe, Connection, MySqlConnection};
use tempfile::TempDir;
use tokio::io::copy_bidirectional;
use tokio::net::TcpStream;
use tokio::sync::Mutex;
use tokio::time::Instant;

use crate::doctor::rig::{assert_contains, finding};
use crate::replicated::balancer::{Balancer, Check, write_program};
use crate::replicated::{
    Load, another_writer, each_took_effect_once, until_none_waits, until_one_runs,
};
use crate::support::not_tried::not_tried;
use crate::support::setup::Setup;
use crate::support::tasks::key;
use crate::support::tcp_proxy::in_front_of;
use crate::support::wait::until;

/// A user who may not connect to a member that is offline, as root may.
const USER: &str = "CREATE USER lapsed IDENTIFIED BY 'secret'; GRANT ALL ON lapsed.* TO lapsed; \
     GRANT SELECT ON performance_schema.replication_group_members TO lapsed";

const IS_PRIMARY: Check = Check {
    word: "MEMBER_ROLE",
    user: "CREATE USER haproxy IDENTIFIED BY 'secret'; \
           GRANT SELECT ON performance_schema.replication_group_members TO haproxy",
};

/// Three members, or `None` if the server in PATH is not MySQL.
async fn group(
    test: &str,
    options: impl Fn(usize, MariaOptions) -> MariaOptions,
) -> Option<PrivateGroup> {
    let version = Command::new("mariadbd").arg("--version").output().unwrap();
    if String::from_utf8_lossy(&version.stdout).contains("MariaDB") {
        let what = "Group Replication: it needs MySQL, see `scripts/on-mysql` in CONTRIBUTING.md";
        not_tried(test, what);
        return None;
    }
    let group = PrivateGroup::start_with(3, "lapsed", options)
        .await
        .unwrap();
    ask(&group, 0, USER).await;
    Some(group)
}

/// Sends statements to a member, as root.
async fn ask(group: &PrivateGroup, member: usize, statements: &str) {
    let mut connection = connect(group, member).await;
    sqlx::raw_sql(AssertSqlSafe(statements.to_owned()))
        .execute(&mut connection)
        .await
        .unwrap();
}

async fn connect(group: &PrivateGroup, member: usize) -> MySqlConnection {
    let url = group.members[member].url("lapsed");
    MySqlConnection::connect(&url).await.unwrap()
}

#[ignore = "a group that dies and hangs needs the machine for itself, and MySQL: scripts/on-mysql"]
#[tokio::test]
async fn each_task_takes_effect_once_and_never_early_while_primaries_die_hang_and_lose_their_majority()
 {
    let test = "each_task_takes_effect_once_and_never_early_while_primaries_die_hang_and_lose_their_majority";
    let Some(mut group) = group(test, |_, options| options).await else {
        return;
    };
    let balancer = Balancer::start(&group.members, &IS_PRIMARY, "lapsed:secret").await;
    let rig = Setup::new("engine.lease = '5s'")
        .ledger(balancer.url())
        .start()
        .await;
    let daemon = Arc::new(rig.daemon());
    let other = rig.daemon();
    daemon.hears_events().await;
    other.hears_events().await;
    let load = Load::start(&daemon);

    let mut primary = 0;
    for wait_s in ["5", "0"] {
        for member in 0..3 {
            let wait = format!("SET GLOBAL group_replication_member_expel_timeout = {wait_s}");
            ask(&group, member, &wait).await;
        }
        for _ in 0..crate::failover::failovers() {
            until_one_runs(&rig).await;
            let began = Instant::now();
            group.members[primary].kill();
            let next = another_writer(&group.members, &balancer, primary).await;
            until_one_runs(&rig).await;
            println!(
                "a killed primary, given up after {wait_s} s: tasks run after {:?}",
                began.elapsed()
            );
            group.rejoin(primary).await.unwrap();
            let wait = format!("SET GLOBAL group_replication_member_expel_timeout = {wait_s}");
            ask(&group, primary, &wait).await;
            // The member that returns is a secondary.
            assert_eq!(
                another_writer(&group.members, &balancer, primary).await,
                next
            );
            primary = next;
        }
        let began = Instant::now();
        group.members[primary].stop_process().unwrap();
        let next = another_writer(&group.members, &balancer, primary).await;
        until_one_runs(&rig).await;
        println!(
            "a hanging primary, given up after {wait_s} s: tasks run after {:?}",
            began.elapsed()
        );
        group.members[primary].continue_process().unwrap();
        until_online(&group, next, 3).await;
        primary = next;
    }

    // The others cannot be reached: nothing is committed.
    let others: Vec<usize> = (0..3).filter(|number| *number != primary).collect();
    let began = Instant::now();
    for number in &others {
        group.members[*number].stop_process().unwrap();
    }
    until("the primary has lost the majority", async || {
        balancer.writer().await.is_none()
    })
    .await;
    println!("no majority: no writer after {:?}", began.elapsed());
    let began = Instant::now();
    for number in others {
        group.members[number].continue_process().unwrap();
    }
    until_one_runs(&rig).await;
    println!("a majority again: tasks run after {:?}", began.elapsed());

    let acknowledged = load.stop().await;
    // Tasks run, so there is a primary, with what was committed.
    let connected = MySqlConnection::connect(&balancer.url()).await.unwrap();
    let node = Mutex::new(connected);
    until_none_waits(&node).await;
    each_took_effect_once(&acknowledged, &node).await;
}

/// Waits until this member says that so many are online.
async fn until_online(group: &PrivateGroup, member: usize, count: i64) {
    let connection = Mutex::new(connect(group, member).await);
    until(format!("{count} members are online"), async || {
        let online = "SELECT COUNT(*) FROM performance_schema.replication_group_members WHERE MEMBER_STATE = 'ONLINE'";
        let online: i64 = sqlx::query_scalar(online)
            .fetch_one(&mut *connection.lock().await)
            .await
            .unwrap();
        online == count
    })
    .await;
}

#[tokio::test]
async fn connections_to_a_former_primary_are_left_although_nothing_closes_them() {
    let test = "connections_to_a_former_primary_are_left_although_nothing_closes_them";
    let Some(group) = group(test, |_, options| options).await else {
        return;
    };
    // New connections lead to the primary, like a name that is changed. Those that are open stay.
    let leads_to = Arc::new(AtomicU16::new(group.members[0].port()));
    let target = Arc::clone(&leads_to);
    let port = in_front_of(group.members[0].port(), move |mut client, _| {
        let port = target.load(Ordering::Relaxed);
        async move {
            let mut server = TcpStream::connect(("127.0.0.1", port)).await.unwrap();
            let _ = copy_bidirectional(&mut client, &mut server).await;
        }
    })
    .await;
    let rig = Setup::new("engine.lease = '5s'\nretry.max_attempts = 2")
        .ledger(format!("mysql://lapsed:secret@127.0.0.1:{port}/lapsed"))
        .start()
        .await;
    let daemon = rig.listening_daemon().await;
    let create = async |first: i64| {
        let burst = (first..first + 40).map(|number| {
            let name = format!("Job@trace@{number}");
            let (tasks, due) = (&daemon.tasks, Due::after_ms(50).unwrap());
            async move { tasks.create(key(&name), due).await }
        });
        futures_util::future::join_all(burst).await
    };
    // Both pools have open connections.
    for created in create(0).await {
        created.unwrap();
    }
    rig.until_done(40).await;

    let second = "SELECT CAST(@@server_uuid AS CHAR)";
    let second: String = sqlx::query_scalar(second)
        .fetch_one(&mut connect(&group, 1).await)
        .await
        .unwrap();
    ask(
        &group,
        0,
        &format!("SELECT group_replication_set_as_primary('{second}')"),
    )
    .await;
    leads_to.store(group.members[1].port(), Ordering::Relaxed);
    until("a task is created on the new primary", async || {
        let due = Due::after_ms(50).unwrap();
        daemon
            .tasks
            .create(key("Job@trace@first"), due)
            .await
            .is_ok()
    })
    .await;
    // No other connection is used to find out the same.
    for created in create(1_000).await {
        created.unwrap();
    }
    let sql = sqlx::MySqlPool::connect_lazy(&group.members[1].url("lapsed")).unwrap();
    let count = async |text: &'static str| {
        let count: i64 = sqlx::query_scalar(text).fetch_one(&sql).await.unwrap();
        count
    };
    until("all are done", async || {
        count("SELECT COUNT(*) FROM tb_time_limit_task WHERE status = 1").await == 81
    })
    .await;
    let repeated = "SELECT COUNT(*) FROM tb_time_limit_task WHERE attempt > 1";
    assert_eq!(
        count(repeated).await,
        0,
        "a run was lost to the former primary"
    );
    assert_eq!(count("SELECT COUNT(*) FROM runs").await, 81);
}

#[tokio::test]
async fn doctor_names_the_primary_and_refuses_clocks_that_differ() {
    // The clock of one member is 300 ms ahead.
    let directory = TempDir::new().unwrap();
    let ahead = directory.path().join("mariadbd");
    let library = crate::support::faked_clock::library();
    let script = format!(
        "#!/bin/sh\nexport LD_PRELOAD={} FAKETIME=+0.3s FAKETIME_DONT_FAKE_MONOTONIC=1\nexec mariadbd \"$@\"\n",
        library.display()
    );
    write_program(&ahead, &script);
    let test = "doctor_names_the_primary_and_refuses_clocks_that_differ";
    let options = |number, options: MariaOptions| match number {
        2 => options.program(ahead.to_str().unwrap()),
        _ => options,
    };
    let Some(mut group) = group(test, options).await else {
        return;
    };
    let of = |number: usize| format!("127.0.0.1:{}", group.members[number].port());
    let url = format!("mysql://lapsed:secret@{}/lapsed", of(0));
    let rig = Setup::new("").ledger(url).start().await;
    let report = doctor::examine(&rig.config()).await;
    let found = finding(&report, "ledger.group", Severity::Ok);
    let expected = format!(
        "3 of 3 members of the group are online; {} is the primary",
        of(0)
    );
    assert_contains(&found.found, &expected);
    let clocks = finding(&report, "ledger.nodes", Severity::Error);
    assert_contains(&clocks.found, &format!("the clock of {} is ", of(2)));

    group.members[2].kill();
    until("two members are left", async || {
        let report = doctor::examine(&rig.config()).await;
        report
            .findings
            .iter()
            .any(|it| it.check == "ledger.group" && it.found.contains("2 of 2 members"))
    })
    .await;
    let report = doctor::examine(&rig.config()).await;
    let clocks = finding(&report, "ledger.nodes", Severity::Ok);
    assert_contains(&clocks.found, "the clocks of 2 nodes agree within ");

    group.members[1].stop_process().unwrap();
    until("there is no majority", async || {
        let report = doctor::examine(&rig.config()).await;
        report
            .findings
            .iter()
            .any(|it| it.check == "ledger.group" && it.severity == Severity::Error)
    })
    .await;
}

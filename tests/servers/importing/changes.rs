//! Sources that change while they are imported, and imports that are interrupted.

use std::process::{Child, Stdio};

use redis::cmd;
use serde_json::{Value, json};

use super::programs::{bullmq, php};
use super::{import, tasks};
use crate::support::rig::Rig;
use crate::support::shell::Shell;
use crate::support::wait::until;

const JOBS: i64 = 30_000;

async fn fill(rig: &Rig, count: i64, due_ms: i64) {
    for from in (0..count).step_by(1_000) {
        let mut add = cmd("ZADD");
        add.arg("order");
        for number in from..(from + 1_000).min(count) {
            // Several of each due time.
            add.arg(due_ms + number / 7).arg(format!("job-{number:06}"));
        }
        let () = add
            .query_async(&mut rig.redis_connection().await)
            .await
            .unwrap();
    }
}

async fn rows(rig: &Rig) -> i64 {
    rig.number("SELECT COUNT(*) FROM tb_time_limit_task").await
}

/// Starts an import that takes the jobs, and does not wait for it.
fn begin_import(shell: &Shell, source: &str) -> Child {
    let mut command = shell.command(&["--json", "import", source, "--take"]);
    command.stdout(Stdio::piped()).stderr(Stdio::null());
    command.spawn().unwrap()
}

/// Two jobs are read. Before their tasks are written, a program removes one and moves the other one. Returns the exit code
/// and the report.
async fn remove_and_move(rig: &Rig, source: &str, set: &str) -> (i32, Value) {
    let shell = Shell::of(rig);
    let mut lock = rig.sql.acquire().await.unwrap();
    let hold = "SELECT GET_LOCK(DATABASE(), 60)";
    let held: i64 = sqlx::query_scalar(hold)
        .fetch_one(&mut *lock)
        .await
        .unwrap();
    assert_eq!(held, 1);
    rig.run_sql(
        "CREATE TRIGGER hold BEFORE INSERT ON tb_time_limit_task FOR EACH ROW \
         SET @held = GET_LOCK(DATABASE(), 60) + RELEASE_LOCK(DATABASE())",
    )
    .await;
    let members: Vec<String> = rig.redis_says(&["ZRANGE", set, "0", "-1"]).await;
    let [gone, moved] = &members[..] else {
        panic!("{members:?}")
    };
    let child = begin_import(&shell, source);
    until("a task is about to be written", async || {
        let waiting =
            "SELECT COUNT(*) FROM information_schema.PROCESSLIST WHERE STATE = 'User lock' AND DB = DATABASE()";
        rig.number(waiting).await > 0
    })
    .await;
    let _: i64 = rig.redis_says(&["ZREM", set, gone]).await;
    // To before what was read already: it is not read again.
    let _: String = rig.redis_says(&["ZINCRBY", set, "-60", moved]).await;
    let release = "SELECT RELEASE_LOCK(DATABASE())";
    let _: i64 = sqlx::query_scalar(release)
        .fetch_one(&mut *lock)
        .await
        .unwrap();
    let ended = child.wait_with_output().unwrap();
    let report: Value = serde_json::from_slice(&ended.stdout).unwrap();
    let left: Vec<String> = rig.redis_says(&["ZRANGE", set, "0", "-1"]).await;
    assert_eq!(left, std::slice::from_ref(moved), "{source}: {report}");
    (ended.status.code().unwrap(), report)
}

#[tokio::test]
async fn a_removed_job_is_distinguished_from_a_moved_one() {
    let in_an_hour = json!({ "delay": 3_600_000 });
    for (source, set) in [
        ("seed001", "order"),
        ("seed000", "delay_queue_job"),
        ("bullmq", "bull:Mail:delayed"),
    ] {
        let rig = Rig::new("").await;
        match source {
            "seed001" => fill(&rig, 2, rig.now_ms().await + 3_600_000).await,
            "seed000" => {
                php(&rig, "seed000", 0);
                let others = ["ZREM", set, "3", "4", "5", "999999"];
                assert_eq!(rig.redis_says::<i64>(&others).await, 4);
            }
            _ => {
                let job =
                    json!({ "queue": "Mail", "name": "welcome", "data": {}, "opts": in_an_hour });
                bullmq(&rig, &json!([job, job]));
            }
        }
        let (code, report) = remove_and_move(&rig, source, set).await;
        let counts = ["created", "taken", "undone", "changed", "not_undone"];
        let counts = counts.map(|name| report[name].as_u64().unwrap());
        assert_eq!((code, counts), (0, [2, 0, 1, 1, 0]), "{source}: {report}");
        assert_eq!(
            (rig.with_status(0).await, rows(&rig).await),
            (1, 2),
            "{source}"
        );
    }
}

#[tokio::test]
async fn an_import_fails_if_the_task_of_a_job_that_is_gone_has_run() {
    let rig = Rig::new("").await;
    fill(&rig, 2, rig.now_ms().await + 3_600_000).await;
    // As if a daemon had run it at once.
    rig.run_sql(
        "CREATE TRIGGER run BEFORE INSERT ON tb_time_limit_task FOR EACH ROW SET NEW.status = 1",
    )
    .await;
    let (code, report) = remove_and_move(&rig, "seed001", "order").await;
    assert_eq!((code, report["undone"].as_u64()), (1, Some(0)), "{report}");
    assert_eq!(report["not_undone"].as_u64(), Some(1), "{report}");
}

#[tokio::test]
async fn an_import_that_was_killed_is_continued() {
    let rig = Rig::new("").await;
    let shell = Shell::of(&rig);
    let due = rig.now_ms().await + 3_600_000;
    fill(&rig, JOBS, due).await;
    let mut child = begin_import(&shell, "seed001");
    until("some tasks are created", async || rows(&rig).await > 4_000).await;
    child.kill().unwrap();
    child.wait().unwrap();
    let left = rig.redis_says::<i64>(&["ZCARD", "order"]).await;
    assert!(left > 0 && rows(&rig).await < JOBS, "it was killed midway");

    let report = import(&shell, &["seed001", "--take"]);
    assert_eq!(report.code, 0, "{}", report.stderr);
    assert_eq!(report.count("taken"), left as u64);
    assert_eq!(rows(&rig).await, JOBS);
    let first = rig.record("order@run@job-000000").await;
    let last = rig.record("order@run@job-029999").await;
    assert_eq!((first.due_at.0, last.due_at.0), (due, due + 29_999 / 7));
    assert_eq!(rig.redis_says::<i64>(&["EXISTS", "order"]).await, 0);
}

#[tokio::test]
async fn jobs_that_are_added_or_moved_meanwhile_are_at_the_source_or_in_the_ledger() {
    let rig = Rig::new("").await;
    let shell = Shell::of(&rig);
    let due = rig.now_ms().await + 3_600_000;
    fill(&rig, JOBS, due).await;
    let mut child = begin_import(&shell, "seed001");
    // The old program goes on: new jobs at both ends, and jobs that are moved from one end to the other.
    let mut number = 0;
    let mut connection = rig.redis_connection().await;
    while child.try_wait().unwrap().is_none() {
        number += 1;
        let mut add = cmd("ZADD");
        add.arg("order")
            .arg(due - number)
            .arg(format!("early-{number}"));
        add.arg(due + 1_000_000 + number)
            .arg(format!("late-{number}"));
        let () = add.query_async(&mut connection).await.unwrap();
        for member in [number * 50 % JOBS, JOBS - number * 50 % JOBS] {
            let mut moved = cmd("ZADD");
            moved.arg("order").arg("XX").arg(due + 2_000_000 + number);
            moved.arg(format!("job-{member:06}"));
            let () = moved.query_async(&mut connection).await.unwrap();
        }
    }
    let scores: Vec<(String, f64)> = {
        let mut range = cmd("ZRANGE");
        range.arg("order").arg(0).arg(-1).arg("WITHSCORES");
        range.query_async(&mut connection).await.unwrap()
    };
    let report = import(&shell, &["seed001", "--take"]);
    assert_eq!(
        (report.code, report.count("taken")),
        (0, scores.len() as u64)
    );
    let found = tasks(&rig).await;
    assert_eq!(found.len() as i64, JOBS + 2 * number);
    for (member, score) in scores {
        assert_eq!(
            found[&format!("order@run@{member}")].due,
            score as i64,
            "{member}"
        );
    }
    assert_eq!(rig.redis_says::<i64>(&["EXISTS", "order"]).await, 0);
}

#[tokio::test]
async fn a_job_that_is_removed_while_it_is_taken_leaves_no_task() {
    let rig = Rig::new("").await;
    let shell = Shell::of(&rig);
    let due = rig.now_ms().await + 3_600_000;
    fill(&rig, JOBS, due).await;
    let mut child = begin_import(&shell, "seed001");
    let mut connection = rig.redis_connection().await;
    let (mut number, mut removed) = (0, Vec::new());
    while child.try_wait().unwrap().is_none() {
        let mut remove = redis::pipe();
        let members: Vec<String> = (number..number + 50)
            .map(|number| format!("job-{:06}", number * 7_919 % JOBS))
            .collect();
        number += 50;
        for member in &members {
            remove.zrem("order", member);
        }
        let answers: Vec<bool> = remove.query_async(&mut connection).await.unwrap();
        let answered = members.into_iter().zip(answers);
        removed.extend(answered.filter_map(|(member, was_there)| was_there.then_some(member)));
    }
    assert!(child.wait().unwrap().success());
    assert!(removed.len() > 100, "only {} were removed", removed.len());
    let pending = sqlx::query_scalar::<_, String>(
        "SELECT `key` FROM tb_time_limit_task WHERE status = 0 AND sts = 0",
    );
    let pending: std::collections::HashSet<String> = pending
        .fetch_all(&rig.sql)
        .await
        .unwrap()
        .into_iter()
        .collect();
    let stayed = removed
        .iter()
        .filter(|member| pending.contains(&format!("order@run@{member}")));
    assert_eq!(stayed.count(), 0, "of {} removed jobs", removed.len());
    assert_eq!(
        pending.len() + removed.len(),
        usize::try_from(JOBS).unwrap()
    );
    assert_eq!(rig.redis_says::<i64>(&["EXISTS", "order"]).await, 0);
}

#[tokio::test]
async fn a_job_that_was_moved_moves_its_task_and_one_that_ran_does_not_run_again() {
    let rig = Rig::new("").await;
    let shell = Shell::of(&rig);
    let due = rig.now_ms().await + 3_600_000;
    fill(&rig, 2, due).await;
    import(&shell, &["seed001"]);
    shell.text(&["cancel", "order@run@job-000000"]);
    let moved = (due + 500).to_string();
    let _: i64 = rig
        .redis_says(&["ZADD", "order", &moved, "job-000001"])
        .await;
    let report = import(&shell, &["seed001"]);
    assert_eq!(report.counts(["created", "moved", "known"]), [0, 1, 1]);
    assert_eq!(rig.record("order@run@job-000001").await.due_at.0, due + 500);
    let cancelled = rig.record("order@run@job-000000").await.state;
    assert_eq!(cancelled, lapsed::task::State::Cancelled);
}

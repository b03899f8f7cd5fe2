//! Sources that change while they are imported, and imports that are interrupted.

use std::process::{Child, Stdio};

use redis::cmd;

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
fn begin_import(shell: &Shell) -> Child {
    let mut command = shell.command(&["import", "seed001", "--take"]);
    command.stdout(Stdio::null()).stderr(Stdio::null());
    command.spawn().unwrap()
}

#[tokio::test]
async fn an_import_that_was_killed_is_continued() {
    let rig = Rig::new("").await;
    let shell = Shell::of(&rig);
    let due = rig.now_ms().await + 3_600_000;
    fill(&rig, JOBS, due).await;
    let mut child = begin_import(&shell);
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
    let mut child = begin_import(&shell);
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
    let mut child = begin_import(&shell);
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

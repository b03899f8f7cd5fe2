//! Daemons with each timer: nothing is lost, early or repeated.

use lapsed::task::State;

use super::TimerUnderTest;
use crate::support::maria::numbers;
use crate::support::redis_commands::ask;
use crate::support::rig::Rig;
use crate::support::scene::Scene;
use crate::support::tasks::create_many;
use crate::support::wait::until;

async fn rig(timer: TimerUnderTest) -> Rig {
    let name = timer.name;
    let settings = "ledger.max_connections = 20\nwheel.class = 'Job'";
    Rig::new(&format!("timer = '{name}'\n{settings}")).await
}

/// True once the daemon receives what it can.
async fn listening(rig: &Rig) -> crate::support::daemon::Daemon {
    let daemon = rig.daemon();
    daemon.status.ready().await;
    daemon
}

pub async fn entries_of_programs_run_once(timer: TimerUnderTest) {
    const ENTRIES: i64 = 40;
    let rig = rig(timer).await;
    let daemon = listening(&rig).await;
    let mut redis = rig.redis_connection().await;
    let Some(schedule_command) = timer.schedule_command else {
        // Its producers write rows.
        rig.run_sql(&format!(
            "INSERT INTO tb_time_limit_task (`key`, status, start_time, end_time, sts) \
             SELECT CONCAT('Job@record@', seq), 0, UNIX_TIMESTAMP(), UNIX_TIMESTAMP(NOW(3)) + (seq DIV 2) / 10, 0 FROM {}",
            numbers(ENTRIES)
        ))
        .await;
        rig.until_done(ENTRIES as usize).await;
        rig.each_ran_once(ENTRIES as usize).await;
        daemon.stop().await;
        return;
    };
    for words in timer.garbage {
        let _: redis::Value = ask(&mut redis, words).await;
    }
    let now = rig.now_ms().await;
    for number in 0..ENTRIES {
        let due = now + 2_000 + number * 50;
        // Repeated, and one in four is moved.
        let dues = [due - 500 * i64::from(number % 4 == 0), due, due];
        let dues = if timer.names_keys {
            &dues[..]
        } else {
            &dues[2..]
        };
        for due in dues {
            let words = schedule_command(number, *due);
            let words: Vec<&str> = words.iter().map(String::as_str).collect();
            let _: redis::Value = ask(&mut redis, &words).await;
        }
    }
    rig.until_done(ENTRIES as usize).await;
    rig.each_ran_once(ENTRIES as usize).await;
    daemon.stop().await;
    let adopted = "SELECT COUNT(*) FROM tb_time_limit_task WHERE adopted IN (1, 3) AND status = 1";
    assert_eq!(rig.number(adopted).await, ENTRIES);
    for number in (0..ENTRIES).filter(|_| timer.names_keys) {
        let record = rig.record(&format!("Job@record@{number}")).await;
        // A remaining time is rounded; an earlier due time was replaced.
        assert!(record.due.0 > now + 1_900 + number * 50, "{record:?}");
    }
}

pub async fn a_killed_daemon_loses_no_task_repeats_none_and_starts_none_early(
    timer: TimerUnderTest,
) {
    kill_a_daemon(&rig(timer).await).await;
}

/// Kills a daemon in the middle of its work. Another goes on.
pub async fn kill_a_daemon(scene: &impl Scene) {
    const TASKS: i64 = 150;
    let client = scene.producer().await;
    let mut first = scene.worker();
    create_many(&client, "Job@effect@", TASKS, 500, 20).await;
    create_many(&client, "Job@record@", TASKS, 500, 20).await;
    until("some are done", async || scene.with_status(1).await >= 60).await;
    first.kill();
    let done = scene.with_status(1).await;
    assert!(done < 2 * TASKS, "it was killed in the middle of its work");
    let _second = scene.worker();
    scene.until_done(2 * TASKS as usize).await;
    scene.each_effect_once(TASKS as usize).await;
    for run in scene.runs().await {
        assert!(run.at_ms >= run.due_ms, "early: {run:?}");
    }
}

pub async fn an_audit_restores_what_the_store_has_lost(timer: TimerUnderTest) {
    const TASKS: i64 = 40;
    let rig = rig(timer).await;
    create_many(&rig.client().await.into(), "Job@record@", TASKS, 3_000, 20).await;
    create_many(
        &rig.client().await.into(),
        "Job@record@far",
        1,
        3_600_000,
        0,
    )
    .await;
    let () = rig.redis_says(&["FLUSHALL"]).await;
    let daemon = listening(&rig).await;
    rig.until_done(TASKS as usize).await;
    rig.each_ran_once(TASKS as usize).await;
    assert_eq!(rig.state("Job@record@far0").await, State::Pending);
    daemon.stop().await;
}

pub async fn two_daemons_run_each_task_once(timer: TimerUnderTest) {
    const TASKS: i64 = 200;
    let rig = rig(timer).await;
    let (first, second) = (listening(&rig).await, listening(&rig).await);
    create_many(&rig.client().await.into(), "Job@record@", TASKS, 0, 10).await;
    rig.until_done(TASKS as usize).await;
    rig.each_ran_once(TASKS as usize).await;
    first.stop().await;
    second.stop().await;
}

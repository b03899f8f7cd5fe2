//! A task that starts after all tasks with a tag, on real servers.

use std::time::Duration;

use lapsed::Task;
use lapsed::task::{After, IfDead, State};

use crate::support::rig::Rig;
use crate::support::tasks::key;
use crate::support::wait::until;

/// Length of the group.
const MEMBERS: usize = 60;

const LAST: &str = "Job@record@last";

#[tokio::test]
async fn the_last_task_runs_once_and_after_all_others_though_a_daemon_dies() {
    let rig = Rig::new("engine.lease = '1s'").await;
    let [killed, stays] = [rig.listening_daemon().await, rig.listening_daemon().await];
    let client = rig.client().await;
    for number in 0..MEMBERS {
        let task = Task::from(key(&format!("Job@record@{number}"))).tag("g");
        let delay = Duration::from_millis(number as u64 * 50);
        client.create(task, delay).await.unwrap();
    }
    let after = After {
        tag: "g".to_owned(),
        if_dead: IfDead::Wait,
    };
    let last = Task::from(key(LAST)).after(after);
    client.create(last, Duration::ZERO).await.unwrap();
    until("it waits", async || {
        !rig.record(LAST).await.history.is_empty()
    })
    .await;
    let waits = rig.record(LAST).await;
    assert_eq!((waits.state, waits.attempt), (State::Waiting, 0));
    killed.kill();
    rig.until_state(LAST, State::Done).await;
    assert_eq!(rig.with_status(1).await, MEMBERS as i64 + 1);
    let runs = rig.runs().await;
    let (last, members): (Vec<_>, Vec<_>) = runs.iter().partition(|run| run.name == LAST);
    assert_eq!(last.len(), 1);
    assert!(members.len() >= MEMBERS);
    assert!(members.iter().all(|run| run.at_ms <= last[0].at_ms));
    drop(stays);
}

//! Several daemons, and several sets.

use std::collections::BTreeSet;

use lapsed::task::State;

use super::queue::{MAPPED, Queue, SET, due_of, seconds, with_events};
use crate::support::daemon::Daemon;
use crate::support::handlers::handlers;
use crate::support::rig::Rig;

#[tokio::test]
async fn two_daemons_run_each_entry_once_between_them() {
    let rig = with_events(MAPPED).await;
    let daemons = [rig.listening_daemon().await, rig.listening_daemon().await];
    let mut queue = Queue::of(&rig).await;
    let now = seconds(&rig, 0).await;
    for number in 0..300 {
        queue.add(&number.to_string(), now + number % 5).await;
    }
    rig.until_done(300).await;
    rig.each_ran_once(300).await;
    queue.until_empty().await;
    let won = daemons
        .iter()
        .map(|daemon| daemon.metric("lapsed_claims_total{result=\"won\"}"));
    assert_eq!(won.sum::<f64>(), 300.0);
}

#[tokio::test]
async fn a_dead_daemons_requests_are_adopted_by_another() {
    let rig = with_events(MAPPED).await;
    let [first, _second] = [rig.listening_daemon().await, rig.listening_daemon().await];
    let mut queue = Queue::of(&rig).await;
    first.kill();
    let now = seconds(&rig, 0).await;
    for number in 0..50 {
        queue.add(&number.to_string(), now).await;
    }
    rig.until_done(50).await;
    rig.each_ran_once(50).await;
    queue.until_empty().await;
}

#[tokio::test]
async fn several_sets_are_one_queue() {
    let settings = "timer = 'sorted_set'\nsorted_set = { keys = ['q:0', 'q:1', 'q:2'], member = 'Job@record@{member}' }\n\
                    redis.key_prefix = 'app:'\nsweep.interval = '1h'";
    let rig = Rig::new(settings).await;
    let daemon = Daemon::start(&rig.config(), handlers());
    daemon.hears_events().await;
    let now = seconds(&rig, 0).await;
    for set in 0..3 {
        let mut queue = Queue::named(&rig, &format!("app:q:{set}")).await;
        for number in 0..20 {
            queue
                .add(&format!("{set}-{number}"), now + number % 3)
                .await;
        }
    }
    for number in 0..40 {
        daemon
            .create(&format!("Job@record@made{number}"), 3_600_000)
            .await;
    }
    rig.until_done(60).await;
    rig.each_ran_once(60).await;
    let mut entries = 0;
    for set in 0..3 {
        let mut queue = Queue::named(&rig, &format!("app:q:{set}")).await;
        let members = queue.members().await;
        assert!(!members.is_empty(), "set {set} has a share");
        entries += members.len();
    }
    assert_eq!(entries, 40);
    let plain: i64 = rig.redis_says(&["EXISTS", SET]).await;
    assert_eq!(plain, 0);
}

#[tokio::test]
async fn equal_members_of_two_sets_are_two_tasks_if_the_rule_names_the_set() {
    let settings = "timer = 'sorted_set'\nsorted_set = { keys = ['order', 'refund'], member = 'Job@record@{set}@{member}' }\n\
                    sweep.interval = '1h'";
    let rig = with_events(settings).await;
    let daemons = [rig.listening_daemon().await, rig.listening_daemon().await];
    let mut sets = [
        Queue::named(&rig, "order").await,
        Queue::named(&rig, "refund").await,
    ];
    let long = "9".repeat(300);
    let now = seconds(&rig, 0).await;
    for queue in &mut sets {
        for number in 0..40 {
            queue.add(&number.to_string(), now + number % 4).await;
        }
        queue.add(&long, now + 2).await;
        queue.add("moved", now + 3_600).await;
        queue.add("removed", now + 3_600).await;
    }
    for queue in &sets {
        queue.until_acknowledged("moved").await;
        queue.until_acknowledged("removed").await;
    }
    // Only the entry of this set is moved or removed.
    sets[1].add("moved", now + 3).await;
    assert!(sets[1].remove("removed").await);
    rig.until_state("Job@record@refund@removed", State::Cancelled)
        .await;
    rig.until_done(83).await;
    rig.each_ran_once(83).await;
    for (name, due) in [("order", 3_600), ("refund", 3)] {
        let record = rig.record(&format!("Job@record@{name}@moved")).await;
        assert_eq!(record.due_at, due_of(now + due), "{name}");
    }
    assert_eq!(rig.state("Job@record@order@removed").await, State::Pending);
    let left: BTreeSet<String> = sets[0].members().await.into_iter().collect();
    assert_eq!(left, ["moved", "removed"].map(str::to_owned).into());
    sets[1].until_empty().await;
    drop(daemons);
}

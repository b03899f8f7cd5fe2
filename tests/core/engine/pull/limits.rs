//! Limits and rules of the route: pauses, expiry, concurrency, rate, signatures, crashes.

use lapsed::ledger::Ledger;
use lapsed::task::{Reason, Scope, State};
use tokio::time::sleep;

use super::{done, keys, mail, take, take_one, waiting};
use crate::engine::rig::seconds;

#[tokio::test(start_paused = true)]
async fn a_dead_worker_is_noticed_by_its_lease_and_poison_is_buried() {
    let rig = mail("");
    rig.due_now("Mail@send@1").await;
    for crashes in 0..3u8 {
        let before = rig.ledger.clock().now();
        take_one(&rig).await;
        let waited = rig.ledger.clock().now().since(before);
        assert!(waited < seconds(12), "{waited:?} after crash {crashes}");
    }
    // A worker still asks: the task is not given to it.
    let taker = waiting(&rig, 1, seconds(60));
    rig.until("Mail@send@1", State::Dead).await;
    let record = rig.record("Mail@send@1").await;
    assert_eq!(record.reason, Some(Reason::Poison));
    assert!(taker.await.unwrap().tasks().is_empty());
    rig.stop().await;
}

#[tokio::test(start_paused = true)]
async fn a_suspect_is_handed_over_alone() {
    let rig = mail("");
    for _ in 0..2 {
        rig.due_now("Mail@send@bad").await;
        assert_eq!(take_one(&rig).await.task.key().as_str(), "Mail@send@bad");
        sleep(seconds(11)).await;
    }
    for n in 0..6 {
        rig.due_now(&format!("Mail@send@{n}")).await;
    }
    sleep(seconds(3)).await;
    let queues = rig.status.pull();
    let mut seen = 0;
    while seen < 7 {
        let taken = take(&queues, 10).await;
        let has_suspect = keys(&taken).iter().any(|key| key.ends_with("bad"));
        assert!(!has_suspect || taken.len() == 1, "{:?}", keys(&taken));
        seen += taken.len();
    }
    rig.stop().await;
}

#[tokio::test(start_paused = true)]
async fn a_paused_task_is_not_handed_over() {
    let rig = mail("");
    let mail = Scope::class("Mail").unwrap();
    rig.tasks.pause(&mail, "test", "").await.unwrap();
    sleep(seconds(2)).await;
    rig.due_now("Mail@send@1").await;
    let queues = rig.status.pull();
    let taken = queues.take("mail", 1, Some(seconds(20)), "").await.unwrap();
    assert!(taken.tasks().is_empty());
    rig.tasks.resume(&mail).await.unwrap().unwrap();
    take_one(&rig).await;
    rig.stop().await;
}

#[tokio::test(start_paused = true)]
async fn a_task_that_expired_is_not_handed_over() {
    let rig = mail("expire_after = '5s'\n");
    rig.due_now("Mail@send@1").await;
    sleep(seconds(6)).await;
    let queues = rig.status.pull();
    let taken = queues.take("mail", 1, Some(seconds(3)), "").await.unwrap();
    assert!(taken.tasks().is_empty());
    let record = rig.record("Mail@send@1").await;
    assert_eq!(
        (record.state, record.reason),
        (State::Dead, Some(Reason::Expired))
    );
    rig.stop().await;
}

#[tokio::test(start_paused = true)]
async fn a_concurrency_limit_counts_tasks_that_workers_have() {
    let rig = mail("concurrency = 2\n");
    for n in 0..5 {
        rig.due_now(&format!("Mail@send@{n}")).await;
    }
    let queues = rig.status.pull();
    let first = take(&queues, 10).await;
    assert_eq!(first.len(), 2);
    let none = queues.take("mail", 10, Some(seconds(5)), "").await.unwrap();
    assert!(none.tasks().is_empty());
    queues.settle(&first[0].claim, done()).await.unwrap();
    assert_eq!(
        take(&queues, 10).await.len(),
        1,
        "the place of the settled task"
    );
    // Two workers are dead: their places are free when their leases end, and their tasks are given out again.
    sleep(seconds(11)).await;
    assert_eq!(take(&queues, 10).await.len(), 2);
    rig.stop().await;
}

#[tokio::test(start_paused = true)]
async fn a_rate_limit_bounds_what_is_handed_over() {
    let rig = mail("rate = '2/s'\nburst = 2\n");
    for n in 0..20 {
        rig.due_now(&format!("Mail@send@{n}")).await;
    }
    sleep(seconds(10)).await;
    let queues = rig.status.pull();
    let began = rig.ledger.clock().now();
    let mut taken = 0;
    while taken < 10 {
        taken += take(&queues, 10).await.len();
    }
    let took = rig.ledger.clock().now().since(began);
    assert!(took >= seconds(3) && took < seconds(8), "{took:?}");
    rig.stop().await;
}

#[tokio::test(start_paused = true)]
async fn a_signed_route_hands_over_only_signed_tasks() {
    let rig = mail("payload_secret = 'sixteen bytes or'\n");
    rig.due_now("Mail@send@1").await;
    let queues = rig.status.pull();
    let taken = queues.take("mail", 1, Some(seconds(3)), "").await.unwrap();
    assert!(taken.tasks().is_empty());
    assert_eq!(rig.record("Mail@send@1").await.state, State::Dead);
    rig.stop().await;
}

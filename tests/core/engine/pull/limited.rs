//! Workers that may have tasks of some classes only.

use std::time::Duration;

use lapsed::Handlers;
use lapsed::engine::TakenTasks;
use lapsed::task::{ClassGlob, State};
use tokio::task::JoinHandle;
use tokio::time::sleep;

use super::{done, keys, schedule};
use crate::engine::rig::{Rig, seconds, start};

/// An engine with one queue for every class, and these lines for its route.
fn shared(lines: &str) -> Rig {
    let route = "[[routes]]\nmatch = '.'\npull = { queue = 'mail', visibility = '10m' }\n";
    start(&format!("{route}{lines}"), Handlers::new())
}

/// A taker of these classes that waits in a task of its own.
fn waiting(rig: &Rig, classes: &[&str], count: usize) -> JoinHandle<TakenTasks> {
    let classes = classes.iter().map(|class| ClassGlob::parse(class).unwrap());
    let (queues, classes) = (rig.status.pull(), classes.collect::<Vec<_>>());
    tokio::spawn(async move {
        let taken = queues.take_of(&classes, "mail", count, Some(seconds(60)), "");
        taken.await.unwrap()
    })
}

/// Takes tasks of these classes within a minute, and keeps them. Returns their keys in order of the text.
async fn take(rig: &Rig, classes: &[&str], count: usize) -> Vec<String> {
    let taken = waiting(rig, classes, count).await.unwrap().keep();
    let mut keys = keys(&taken);
    keys.sort();
    keys
}

fn claims(rig: &Rig, count: usize) -> bool {
    rig.metric(&format!("lapsed_claims_total{{result=\"won\"}} {count}"))
}

#[tokio::test(start_paused = true)]
async fn a_worker_of_some_classes_gets_their_tasks_and_the_others_stay_for_others() {
    let rig = shared("");
    // The queue is active here, so that due tasks wait in it.
    assert_eq!(take(&rig, &[], 1).await, [""; 0]);
    for n in 0..10 {
        rig.due_now(&format!("Order@close@{n}")).await;
    }
    rig.due_now("Mail@send@1").await;
    rig.due_now("Mail@read@1").await;
    sleep(seconds(3)).await;
    assert_eq!(take(&rig, &["Mail@send*"], 10).await, ["Mail@send@1"]);
    assert_eq!(take(&rig, &["Mail@send*"], 10).await, [""; 0]);
    assert!(claims(&rig, 1), "no other task was claimed");
    let order = rig.record("Order@close@1").await;
    assert_eq!((order.state, order.attempt), (State::Pending, 0));
    assert_eq!(take(&rig, &["Mail", "Post"], 10).await, ["Mail@read@1"]);
    let mut orders = 0;
    while orders < 10 {
        let classes = if orders == 0 { &[][..] } else { &["Order"] };
        orders += take(&rig, classes, 6).await.len();
    }
    assert!(claims(&rig, 12));
    rig.stop().await;
}

#[tokio::test(start_paused = true)]
async fn a_backlog_of_other_classes_hides_no_task() {
    // More than wait in memory.
    const OTHERS: usize = 5_000;
    let rig = shared("");
    for n in 0..OTHERS {
        rig.due_now(&format!("Order@close@{n}")).await;
        if n == OTHERS / 2 {
            rig.due_now("Mail@send@old").await;
        }
    }
    sleep(seconds(5)).await;
    assert_eq!(take(&rig, &["Mail"], 1).await, ["Mail@send@old"]);
    let due = schedule(&rig, "Mail@send@new", seconds(5)).await;
    let taken = waiting(&rig, &["Mail"], 1).await.unwrap().keep();
    assert_eq!(keys(&taken), ["Mail@send@new"]);
    let late = taken[0].task.lateness_ms();
    assert!(late < 100, "due {due}, {late} ms late");
    assert!(claims(&rig, 2));
    rig.stop().await;
}

#[tokio::test(start_paused = true)]
async fn workers_of_a_class_and_of_all_get_its_tasks_in_order_of_arrival() {
    let rig = shared("");
    let takers = [&[][..], &["Mail"], &["Order"], &[]].map(|classes| waiting(&rig, classes, 1));
    sleep(Duration::from_millis(10)).await;
    for (n, class) in (1..).zip(["Mail", "Mail", "Mail", "Order"]) {
        schedule(&rig, &format!("{class}@run@{n}"), seconds(n)).await;
    }
    let mut taken = Vec::new();
    for taker in takers {
        taken.extend(keys(&taker.await.unwrap().keep()));
    }
    let expected = ["Mail@run@1", "Mail@run@2", "Order@run@4", "Mail@run@3"];
    assert_eq!(taken, expected);
    rig.stop().await;
}

#[tokio::test(start_paused = true)]
async fn a_rate_and_a_concurrency_are_those_of_the_whole_route() {
    let rig = shared("rate = '1/s'\nconcurrency = 3\n");
    for n in 0..4 {
        rig.due_now(&format!("Order@close@{n}")).await;
        rig.due_now(&format!("Mail@send@{n}")).await;
    }
    let mut taken = Vec::new();
    for classes in [&["Mail"][..], &["Order"], &["Mail"]] {
        let one = waiting(&rig, classes, 1).await.unwrap().keep();
        assert_eq!(one.len(), 1, "{classes:?}");
        taken.extend(one);
    }
    for classes in [&["Mail"][..], &["Order"], &[]] {
        assert_eq!(take(&rig, classes, 1).await, [""; 0], "{classes:?}");
    }
    let queues = rig.status.pull();
    queues.settle(&taken[0].claim, done()).await.unwrap();
    assert_eq!(take(&rig, &["Order"], 4).await.len(), 1);
    rig.stop().await;
}

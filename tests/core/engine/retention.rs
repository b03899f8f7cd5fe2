//! Redrive, discard and retention of finished tasks.

use std::num::NonZeroU32;
use std::ops::ControlFlow;
use std::sync::Arc;
use std::sync::atomic::AtomicU32;

use lapsed::client::{Pace, Pruning};
use lapsed::ledger::{Admin, ListFilter};
use lapsed::task::{State, TaskKey};
use lapsed::{HandlerError, Handlers};
use tokio::time::Instant;

use crate::engine::rig::{counting, failing, seconds, start, start_on, until};

#[tokio::test(start_paused = true)]
async fn many_dead_tasks_are_redriven_and_discarded_at_a_pace() {
    let rig = start("", failing(|_| Err(HandlerError::permanent("no"))));
    let people = rig.tasks.clone();
    let mut handlers = Handlers::new();
    handlers.on(("Job", "fail"), |_: Vec<String>| async {
        Err(HandlerError::permanent("no"))
    });
    rig.stop().await;
    let rig = start("", handlers);
    for n in 0..250 {
        rig.due_now(&format!("Job@fail@{n}")).await;
    }
    let count = async |filter: &ListFilter| {
        let counted = rig.tasks.count_dead(filter).await.unwrap();
        assert!(!counted.is_part);
        counted.count
    };
    let all = ListFilter::default();
    until("all are dead", async || count(&all).await == 250).await;
    let elsewhere = people.count_dead(&all).await.unwrap();
    assert_eq!(elsewhere.count, 0, "another ledger");
    let ledger = rig.stop().await;
    let rig = start_on(ledger, "", Handlers::new());
    let people = rig.tasks.clone();
    let none = ListFilter {
        class: Some("Other".into()),
        ..all.clone()
    };
    assert_eq!(people.discard_where(&none).await.unwrap(), 0);
    let began = Instant::now();
    let pace = Pace::per_second(NonZeroU32::new(100).unwrap());
    let mut last = 0;
    let some = ListFilter {
        limit: 200,
        ..all.clone()
    };
    let redriven = people.redrive_each(&some, pace, |count| {
        assert!(count > last && count - last <= 10);
        last = count;
        ControlFlow::Continue(())
    });
    assert_eq!(redriven.await.unwrap(), 200);
    let took = began.elapsed().as_secs_f64();
    assert!((1.8..2.2).contains(&took), "{took}");
    assert_eq!(people.count_dead(&all).await.unwrap().count, 50);
    assert_eq!(people.discard_where(&all).await.unwrap(), 50);
    let left = ListFilter {
        limit: 1_000,
        ..all
    };
    assert_eq!(people.list(&left).await.unwrap().tasks.len(), 200);
    rig.stop().await;
}

#[tokio::test(start_paused = true)]
async fn retention_prunes_old_tasks_and_those_beyond_the_maximum() {
    let runs = Arc::new(AtomicU32::new(0));
    let rig = start("retention = { done = '1h', done_max = 4 }", counting(&runs));
    for n in 0..10 {
        rig.due_now(&format!("Job@count@{n}")).await;
        rig.until(&format!("Job@count@{n}"), State::Done).await;
    }
    let key = TaskKey::parse("Job@count@pending").unwrap();
    rig.tasks.create(key, seconds(100_000)).await.unwrap();
    let left = async || {
        let all = ListFilter {
            limit: 100,
            ..ListFilter::default()
        };
        let listed = rig.tasks.list(&all).await.unwrap().tasks;
        let names = listed.iter().map(|task| task.key.to_string());
        names.collect::<Vec<_>>()
    };
    tokio::time::sleep(seconds(30)).await;
    assert_eq!(left().await.len(), 11, "they are too young");
    tokio::time::sleep(seconds(120)).await;
    let newest = [6, 7, 8, 9].map(|n| format!("Job@count@{n}"));
    assert_eq!(left().await[..4], newest);
    tokio::time::sleep(seconds(3700)).await;
    assert_eq!(left().await, ["Job@count@pending"]);
    rig.until_metric("lapsed_pruned_total{state=\"done\"} 10")
        .await;
    rig.stop().await;
}

#[tokio::test(start_paused = true)]
async fn a_state_with_too_many_rows_does_not_block_the_pruning_of_others() {
    let runs = Arc::new(AtomicU32::new(0));
    let mut handlers = counting(&runs);
    handlers.on(("Job", "fail"), |_: Vec<String>| async {
        Err(HandlerError::permanent("no"))
    });
    let rig = start(
        "retention = { done = '60s', dead = '60s', rate = 10 }",
        handlers,
    );
    for n in 0..3 {
        rig.due_now(&format!("Job@fail@{n}")).await;
        rig.until(&format!("Job@fail@{n}"), State::Dead).await;
    }
    for n in 0..2_000 {
        rig.due_now(&format!("Job@count@{n}")).await;
    }
    rig.until_done(2_000).await;
    rig.until_metric("lapsed_prune_behind{state=\"done\"} 1")
        .await;
    assert!(rig.metric("lapsed_prune_behind{state=\"dead\"} 0"));
    let stats = async || rig.ledger.stats().await.unwrap();
    until("the dead are forgotten", async || stats().await.dead == 0).await;
    let left = stats().await.done;
    assert!(left > 200, "{left} are left");
    rig.until_metric("lapsed_prune_behind{state=\"done\"} 0")
        .await;
    assert_eq!(stats().await.done, 0);
    rig.stop().await;
}

#[tokio::test(start_paused = true)]
async fn manual_pruning_counts_first_and_keeps_the_requested_rows() {
    let runs = Arc::new(AtomicU32::new(0));
    let rig = start("", counting(&runs));
    for n in 0..6 {
        rig.due_now(&format!("Job@count@{n}")).await;
        rig.until(&format!("Job@count@{n}"), State::Done).await;
    }
    tokio::time::sleep(seconds(120)).await;
    let people = rig.tasks.clone();
    let pruning = Pruning {
        state: State::Done,
        older_than: None,
        keep: Some(2),
        archive: false,
        dry_run: true,
    };
    let prune = async |pruning| people.prune(pruning, Pace::default()).await.unwrap();
    assert_eq!(prune(pruning).await, 4);
    let real = Pruning {
        dry_run: false,
        ..pruning
    };
    assert_eq!(prune(real).await, 4);
    assert_eq!(prune(real).await, 0);
    let running = Pruning {
        state: State::Pending,
        keep: Some(0),
        ..real
    };
    assert_eq!(prune(running).await, 0);
    let old = Pruning {
        older_than: Some(seconds(100)),
        keep: None,
        ..real
    };
    assert_eq!(prune(old).await, 2);
    rig.stop().await;
}

//! Taking tasks: when they are claimed, who gets them, and what happens to a taker that goes away.

use lapsed::ledger::{Admin, Ledger, Settled};
use lapsed::task::State;
use std::time::Duration;
use tokio::time::sleep;

use super::{done, keys, mail, schedule, take_one, waiting};
use crate::engine::rig::seconds;

#[tokio::test(start_paused = true)]
async fn a_task_is_claimed_only_when_a_worker_asks() {
    let rig = mail("");
    rig.due_now("Mail@send@1").await;
    sleep(seconds(30)).await;
    assert_eq!(rig.record("Mail@send@1").await.state, State::Pending);
    let leased = take_one(&rig).await;
    assert_eq!(leased.task.key().as_str(), "Mail@send@1");
    assert_eq!(leased.task.attempt(), 1);
    let record = rig.record("Mail@send@1").await;
    assert_eq!(record.state, State::Running);
    let settled = rig.status.pull().settle(&leased.claim, done()).await;
    assert_eq!(settled.unwrap(), Settled::Applied);
    assert_eq!(rig.record("Mail@send@1").await.state, State::Done);
    assert!(rig.metric("lapsed_runs_total{route=\"^Mail@\",outcome=\"succeeded\"} 1"));
    rig.stop().await;
}

#[tokio::test(start_paused = true)]
async fn a_worker_is_marked_when_it_comes_takes_and_leaves() {
    let rig = mail("");
    let queues = rig.status.pull();
    let ask = async || queues.take("mail", 1, Some(seconds(1)), "w").await.unwrap();
    ask().await;
    // The daemon has told the others that workers ask.
    sleep(seconds(10)).await;
    let marked = || rig.parts.metrics.marks().members;
    let before = marked();
    assert!(ask().await.tasks().is_empty());
    assert_eq!(marked(), before + 2, "it came and left");
    rig.due_now("Mail@send@1").await;
    assert_eq!(ask().await.tasks().len(), 1);
    assert_eq!(marked(), before + 5, "it came, took and left");
    rig.stop().await;
}

#[tokio::test(start_paused = true)]
async fn a_waiting_worker_gets_a_task_when_it_falls_due() {
    let rig = mail("");
    let taker = waiting(&rig, 10, seconds(60));
    let due = schedule(&rig, "Mail@send@1", seconds(5)).await;
    let taken = taker.await.unwrap().keep();
    assert_eq!(keys(&taken), ["Mail@send@1"]);
    assert!(
        taken[0].task.lateness_ms() < 50,
        "{}",
        taken[0].task.lateness_ms()
    );
    let late = rig.ledger.clock().now().since(due);
    assert!(
        late < Duration::from_millis(50),
        "handed over {late:?} late"
    );
    assert!(rig.metric("lapsed_lateness_seconds_count{route=\"^Mail@\",queue=\"mail\"} 1"));
    rig.stop().await;
}

#[tokio::test(start_paused = true)]
async fn workers_get_tasks_in_order_of_arrival() {
    let rig = mail("");
    let mut takers = Vec::new();
    for _ in 0..4 {
        takers.push(waiting(&rig, 1, seconds(60)));
        sleep(Duration::from_millis(10)).await;
    }
    for n in 0..4 {
        let key = format!("Mail@send@{n}");
        schedule(&rig, &key, seconds(5 + n)).await;
    }
    for (n, taker) in takers.into_iter().enumerate() {
        assert_eq!(
            keys(&taker.await.unwrap().keep()),
            [format!("Mail@send@{n}")]
        );
    }
    rig.stop().await;
}

#[tokio::test(start_paused = true)]
async fn a_take_without_a_task_ends_with_none() {
    let rig = mail("");
    let queues = rig.status.pull();
    for block in [None, Some(Duration::ZERO), Some(seconds(3))] {
        let before = tokio::time::Instant::now();
        let taken = queues.take("mail", 1, block, "").await.unwrap();
        assert!(taken.tasks().is_empty());
        assert!(before.elapsed() >= block.unwrap_or_default());
        assert!(before.elapsed() < block.unwrap_or_default() + seconds(1));
    }
    for (queue, count, worker) in [
        ("post", 1, ""),
        ("mail", 0, ""),
        ("mail", 513, ""),
        ("mail", 1, "a\nb"),
    ] {
        assert!(queues.take(queue, count, None, worker).await.is_err());
    }
    rig.stop().await;
}

#[tokio::test(start_paused = true)]
async fn a_take_that_does_not_block_finds_what_fell_due_while_no_worker_asked() {
    let rig = mail("");
    rig.due_now("Mail@send@1").await;
    sleep(seconds(10)).await;
    let queues = rig.status.pull();
    let taken = queues.take("mail", 10, None, "").await.unwrap();
    assert_eq!(keys(taken.tasks()), ["Mail@send@1"]);
    rig.stop().await;
}

#[tokio::test(start_paused = true)]
async fn a_worker_that_disconnects_loses_no_task() {
    let rig = mail("");
    let taker = waiting(&rig, 10, seconds(600));
    sleep(seconds(1)).await;
    taker.abort();
    rig.due_now("Mail@send@1").await;
    sleep(seconds(20)).await;
    let record = rig.record("Mail@send@1").await;
    assert_eq!(
        record.state,
        State::Pending,
        "nothing is claimed for a taker that is gone"
    );
    // Tasks that were handed over and not kept go back, also when the taker never looked.
    let taken = rig
        .status
        .pull()
        .take("mail", 1, Some(seconds(5)), "")
        .await;
    drop(taken);
    let again = take_one(&rig).await;
    assert_eq!(again.task.attempt(), 1);
    let record = rig.record("Mail@send@1").await;
    assert!(record.history.is_empty(), "{record:?}");
    rig.stop().await;
}

#[tokio::test(start_paused = true)]
async fn workers_that_give_up_during_a_claim_lose_no_task() {
    let rig = mail("");
    for n in 0..300 {
        let due = Duration::from_millis(3_000 + 7 * n);
        schedule(&rig, &format!("Mail@send@{n}"), due).await;
    }
    let queues = rig.status.pull();
    let mut done_keys = std::collections::HashSet::new();
    let mut round = 0u64;
    while done_keys.len() < 300 {
        round += 1;
        // Some give up after a random moment, also between the claim and the hand-over.
        let give_up = Duration::from_millis(round % 11);
        let lost = tokio::time::timeout(give_up, queues.take("mail", 3, Some(seconds(1)), ""));
        drop(lost.await);
        let block = Some(Duration::from_millis(5));
        for leased in queues.take("mail", 3, block, "").await.unwrap().keep() {
            assert_eq!(leased.task.attempt(), 1);
            queues.settle(&leased.claim, done()).await.unwrap();
            assert!(done_keys.insert(leased.task.id()));
        }
    }
    let stats = rig.ledger.stats().await.unwrap();
    assert_eq!((stats.done, stats.pending), (300, 0));
    rig.stop().await;
}

#[tokio::test(start_paused = true)]
async fn a_stop_answers_waiting_workers_with_no_task() {
    let rig = mail("");
    let takers: Vec<_> = (0..100)
        .map(|_| waiting(&rig, 1, seconds(86_400)))
        .collect();
    sleep(seconds(1)).await;
    let queues = rig.status.pull();
    rig.stop().await;
    for taker in takers {
        assert!(taker.await.unwrap().tasks().is_empty());
    }
    let late = queues.take("mail", 1, Some(seconds(60)), "").await.unwrap();
    assert!(late.tasks().is_empty());
}

#[tokio::test(start_paused = true)]
async fn every_task_of_a_burst_is_handed_over_once() {
    let rig = mail("");
    for n in 0..2_000 {
        schedule(&rig, &format!("Mail@send@{n}"), seconds(2)).await;
    }
    let mut workers = Vec::new();
    for _ in 0..16 {
        let queues = rig.status.pull();
        workers.push(tokio::spawn(async move {
            let mut ids = Vec::new();
            loop {
                let taken = queues.take("mail", 10, Some(seconds(5)), "").await;
                let taken = taken.unwrap().keep();
                if taken.is_empty() {
                    return ids;
                }
                for leased in taken {
                    queues.settle(&leased.claim, done()).await.unwrap();
                    ids.push(leased.task.id());
                }
            }
        }));
    }
    let mut ids = Vec::new();
    for worker in workers {
        ids.extend(worker.await.unwrap());
    }
    ids.sort_unstable();
    ids.dedup();
    assert_eq!(ids.len(), 2_000);
    assert_eq!(rig.ledger.stats().await.unwrap().done, 2_000);
    rig.stop().await;
}

//! A producer at full speed.

use std::collections::HashMap;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use lapsed::{Handlers, TaskContext};
use tokio::time::{Instant, sleep_until};

use super::queue::{MAPPED, Queue, SET, seconds, with_events};
use crate::support::wait::until_within;

/// Entries in one tick, and ticks: 5,000 a second for 10 s.
const BATCH: i64 = 250;
const TICKS: u32 = 200;
const TICK: Duration = Duration::from_millis(50);

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn five_thousand_entries_a_second_are_adopted_and_each_runs_once() {
    let rig = with_events(MAPPED).await;
    let ran: Arc<Mutex<HashMap<String, u32>>> = Arc::default();
    let counted = Arc::clone(&ran);
    let mut handlers = Handlers::new();
    handlers.on(
        ("Job", "record"),
        move |task: TaskContext, _: Vec<String>| {
            let name = task.key().as_str().to_owned();
            *counted.lock().unwrap().entry(name).or_default() += 1;
            async { Ok(()) }
        },
    );
    let daemon = rig.daemon_with(handlers);
    daemon.hears_events().await;
    let mut connection = rig.redis_connection().await;
    let due = seconds(&rig, 5).await;
    let began = Instant::now();
    for tick in 0..TICKS {
        sleep_until(began + TICK * tick).await;
        let mut pipeline = redis::pipe();
        for number in 0..BATCH {
            let number = i64::from(tick) * BATCH + number;
            let score = due + i64::from(tick) / 20;
            pipeline.zadd(SET, number, score).ignore();
        }
        pipeline.exec_async(&mut connection).await.unwrap();
    }
    let count = BATCH * i64::from(TICKS);
    let deadline = Duration::from_secs(300);
    until_within(deadline, format!("{count} tasks are done"), async || {
        rig.with_status(1).await == count
    })
    .await;
    let ran = ran.lock().unwrap().clone();
    assert_eq!(ran.len() as i64, count);
    assert!(ran.values().all(|times| *times == 1));
    Queue::of(&rig).await.until_empty().await;
    let rows = rig.number("SELECT COUNT(*) FROM tb_time_limit_task").await;
    assert_eq!(rows, count);
}

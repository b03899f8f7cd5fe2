//! Workers that take tasks from the RESP server of a daemon.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use rand::rngs::StdRng;
use rand::{RngExt as _, SeedableRng as _};
use redis::{FromRedisValue as _, Value};
use tokio::task::JoinSet;
use tokio::time::sleep;

use crate::clients::{RedisClient, Reported};
use crate::history::{Ended, Hits, Window};
use crate::target::{Record, SLOW, ending, now};

/// The first worker, in the numbers of daemons.
pub const FIRST: usize = 1_000;

/// The queue of the route.
pub const QUEUE: &str = "pull";

/// What workers do wrong.
pub type Windows = Arc<Mutex<Vec<Window>>>;

/// A task that a worker has taken.
#[derive(Debug, Default)]
struct Taken {
    id: String,
    key: String,
    claim: String,
    attempt: u64,
    method: String,
}

impl Taken {
    /// Of an array of names and values in turns.
    fn read(value: &Value) -> Option<Self> {
        let Value::Array(members) = value else {
            return None;
        };
        let mut taken = Self::default();
        for pair in members.chunks_exact(2) {
            let name = String::from_redis_value_ref(&pair[0]).ok()?;
            let text = || String::from_redis_value_ref(&pair[1]).unwrap_or_default();
            match name.as_str() {
                "id" => taken.id = text(),
                "key" => taken.key = text(),
                "claim" => taken.claim = text(),
                "method" => taken.method = text(),
                "attempt" => taken.attempt = u64::from_redis_value_ref(&pair[1]).ok()?,
                _ => {}
            }
        }
        Some(taken)
    }
}

/// Takes tasks until it is stopped. Some it forgets, and some it reports after their lease.
pub async fn work(
    number: usize,
    redis: RedisClient,
    record: Record,
    windows: Windows,
    stop: Arc<AtomicBool>,
) {
    let daemon = FIRST + number;
    let mut random = StdRng::seed_from_u64(daemon as u64);
    let mut exceeding = JoinSet::new();
    while !stop.load(Ordering::Relaxed) {
        let mut take = redis::cmd("LAPSED.TAKE");
        take.arg(QUEUE)
            .arg("COUNT")
            .arg(10)
            .arg("BLOCK")
            .arg(2_000)
            .arg("WORKER")
            .arg(format!("worker{number}"));
        let Some(Value::Array(tasks)) = redis.ask(&take).await else {
            sleep(Duration::from_millis(100)).await;
            continue;
        };
        for task in tasks.iter().filter_map(Taken::read) {
            let ended = ending(&task.method, task.attempt);
            let run = record.begin(daemon, &task.key, &task.id, ended);
            let reports = match random.random_range(0..200) {
                0 => true,
                1 => false,
                _ => {
                    report(&redis, &record, &task, run).await;
                    continue;
                }
            };
            let (redis, record, windows) = (redis.clone(), record.clone(), windows.clone());
            // It takes other tasks meanwhile.
            exceeding.spawn(async move {
                let from = now();
                sleep(SLOW).await;
                if reports {
                    report(&redis, &record, &task, run).await;
                }
                let window = Window {
                    name: "worker exceeds its lease".to_owned(),
                    from,
                    to: now(),
                    hits: Hits::Worker(daemon),
                };
                windows.lock().expect("no panic").push(window);
            });
        }
    }
    exceeding.join_all().await;
}

async fn report(redis: &RedisClient, record: &Record, task: &Taken, run: u64) {
    let mut done = redis::cmd("LAPSED.DONE");
    done.arg(&task.claim)
        .arg("RESULT")
        .arg(format!("{{\"run\":{run}}}"));
    if ending(&task.method, task.attempt) == Ended::Failed {
        done = redis::cmd("LAPSED.FAIL");
        done.arg(&task.claim).arg("flaky");
    }
    // Repeated until it is answered: the same report gets the same answer.
    for _ in 0..5 {
        match redis.report(&done).await {
            Some(Reported::Taken) => return,
            Some(Reported::Fenced) => return record.fenced(run),
            None => sleep(Duration::from_millis(200)).await,
        }
    }
}

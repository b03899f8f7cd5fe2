//! Requests for tasks: reading one at a steady rate, and creating them as fast as the daemon answers.

use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;

use anyhow::{Context as _, ensure};
use hyper::StatusCode;
use tokio::sync::mpsc;
use tokio::task::JoinSet;
use tokio::time::{Instant, sleep_until};

use crate::bench::connection::Connection;
use crate::bench::options::arriving;
use crate::bench::samples::{Lateness, Samples};
use crate::bench::tasks::{FAR, task};

/// Delay of created tasks: none falls due during the measurement.
const DUE_IN: &str = "240h";

/// Reads far tasks at this rate, each on a connection that is free. Waiting for a connection counts, too.
pub async fn read(
    address: SocketAddr,
    connections: u32,
    rate: u32,
    span: Duration,
    pending: u32,
) -> anyhow::Result<Samples> {
    let (give_back, mut free) = mpsc::unbounded_channel();
    for _ in 0..connections {
        let connection = Connection::open(address).await?;
        give_back
            .send(connection)
            .ok()
            .context("keep a connection")?;
    }
    let started = Instant::now();
    let count = u32::try_from(arriving(rate, span))?;
    let mut reading = JoinSet::new();
    for number in 0..count {
        let at = started + Duration::from_secs_f64(f64::from(number) / f64::from(rate));
        sleep_until(at).await;
        // Timers are a millisecond late.
        let at = Instant::now();
        let mut connection: Connection = free.recv().await.context("wait for a connection")?;
        let give_back = give_back.clone();
        // Consecutive requests are for rows that are far apart.
        let far = u64::from(number).wrapping_mul(0x9E37_79B9_7F4A_7C15) % u64::from(pending);
        let key = task(FAR + u32::try_from(far)?).key().clone();
        reading.spawn(async move {
            let path = format!("/v1/tasks/{}", key.to_string().replace('@', "%40"));
            let answer = connection.get(&path, false).await?;
            ensure!(
                answer.status == StatusCode::OK,
                "the daemon answered `{path}` with {}",
                answer.status
            );
            let took = at.elapsed();
            let _ = give_back.send(connection);
            anyhow::Ok(micros(took))
        });
    }
    let mut samples = Vec::new();
    while let Some(read) = reading.join_next().await {
        samples.push(Lateness::Started(read.context("read a task")??));
    }
    Ok(Samples::new(samples))
}

/// Creates one task after another on each connection. Returns how long each took.
pub async fn create(
    address: SocketAddr,
    connections: u32,
    span: Duration,
    numbers: &Arc<AtomicU32>,
) -> anyhow::Result<Samples> {
    let mut opened = Vec::new();
    for _ in 0..connections {
        opened.push(Connection::open(address).await?);
    }
    let end = Instant::now() + span;
    let mut creating = JoinSet::new();
    for mut connection in opened {
        let numbers = Arc::clone(numbers);
        creating.spawn(async move {
            let mut took = Vec::new();
            while Instant::now() < end {
                let task = task(numbers.fetch_add(1, Ordering::Relaxed));
                let json = serde_json::json!({ "key": task.key().to_string(), "in": DUE_IN });
                let answer = connection.post("/v1/tasks", json.to_string()).await?;
                ensure!(
                    answer.status == StatusCode::CREATED,
                    "the daemon answered `POST /v1/tasks` with {}",
                    answer.status
                );
                took.push(Lateness::Started(micros(answer.took)));
            }
            anyhow::Ok(took)
        });
    }
    let mut samples = Vec::new();
    while let Some(created) = creating.join_next().await {
        samples.extend(created.context("create tasks")??);
    }
    Ok(Samples::new(samples))
}

fn micros(span: Duration) -> u64 {
    u64::try_from(span.as_micros()).unwrap_or(u64::MAX)
}

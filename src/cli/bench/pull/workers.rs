//! Workers: take tasks at the RESP server and complete them at once.

use std::collections::HashMap;
use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use anyhow::{Context, bail};
use lapsed::clock::LedgerClock;
use redis::aio::MultiplexedConnection;
use redis::io::tcp::TcpSettings;
use redis::{AsyncConnectionConfig, IntoConnectionInfo as _, Value, from_redis_value};
use tokio::task::JoinSet;
use tokio::time::timeout;
use tokio_util::sync::CancellationToken;

use crate::bench::daemon::{StartClock, now_us};
use crate::bench::environment::Environment;
use crate::bench::process::Numbers;
use crate::bench::queues::QUEUE;
use crate::bench::recorder::{Record, Recorder};

/// `BLOCK` of a take, after which a worker looks whether it is to end.
const BLOCK: Duration = Duration::from_millis(500);

/// Time limit of a take, in case the daemon is gone.
const TAKEN_WITHIN: Duration = Duration::from_secs(30);

/// Workers, each in a task of its own.
pub struct Workers {
    workers: JoinSet<anyhow::Result<()>>,
    shared: Arc<Shared>,
    stop: CancellationToken,
}

struct Shared {
    recorder: Recorder,
    completed: AtomicU64,
    clock: Option<LedgerClock>,
}

impl Workers {
    /// Connects workers, which begin to wait for tasks.
    pub async fn start(
        environment: &Environment,
        resp: SocketAddr,
        workers: u32,
        batch: u32,
        tasks: Numbers,
    ) -> anyhow::Result<Self> {
        let clock = match environment.clock() {
            StartClock::Wall => None,
            StartClock::Ledger => Some(environment.adapters.ledger.clock().clone()),
        };
        let base_us = now_us(clock.as_ref()).saturating_sub(60_000_000);
        let shared = Arc::new(Shared {
            recorder: Recorder::new(tasks.first, tasks.count, 0, base_us),
            completed: AtomicU64::new(0),
            clock,
        });
        let mut running = Self {
            workers: JoinSet::new(),
            shared,
            stop: CancellationToken::new(),
        };
        for number in 0..workers {
            let worker = Worker {
                connection: connect(resp).await?,
                name: format!("bench-{number}"),
                batch,
                shared: Arc::clone(&running.shared),
                stop: running.stop.clone(),
            };
            running.workers.spawn(worker.work());
        }
        Ok(running)
    }

    /// Number of tasks whose completion was acknowledged.
    pub fn completed(&self) -> u64 {
        self.shared.completed.load(Ordering::Relaxed)
    }

    /// Fails if a worker has ended.
    pub async fn check(&mut self) -> anyhow::Result<()> {
        match self.workers.try_join_next() {
            None => Ok(()),
            Some(ended) => {
                ended.context("run a worker")??;
                bail!("a worker has ended")
            }
        }
    }

    /// Lets the workers end, and returns when each task was handed over.
    pub async fn stop(mut self) -> anyhow::Result<Record> {
        self.stop.cancel();
        while let Some(ended) = self.workers.join_next().await {
            ended.context("run a worker")??;
        }
        Ok(self.shared.recorder.record())
    }
}

async fn connect(resp: SocketAddr) -> anyhow::Result<MultiplexedConnection> {
    let info = format!("redis://{resp}").into_connection_info()?;
    // Without it, a command may wait 40 ms for the acknowledgement of the one before.
    let settings = TcpSettings::default().set_nodelay(true);
    let client = redis::Client::open(info.set_tcp_settings(settings))?;
    let config = AsyncConnectionConfig::new().set_response_timeout(None);
    let connected = client.get_multiplexed_async_connection_with_config(&config);
    connected.await.context("connect to the RESP server")
}

struct Worker {
    connection: MultiplexedConnection,
    name: String,
    batch: u32,
    shared: Arc<Shared>,
    stop: CancellationToken,
}

impl Worker {
    async fn work(mut self) -> anyhow::Result<()> {
        while !self.stop.is_cancelled() {
            let claims = self.take().await?;
            if claims.is_empty() {
                continue;
            }
            let mut done = redis::pipe();
            for claim in &claims {
                done.cmd("LAPSED.DONE").arg(claim).ignore();
            }
            let done = done.exec_async(&mut self.connection).await;
            done.context("complete tasks")?;
            let count = claims.len() as u64;
            self.shared.completed.fetch_add(count, Ordering::Relaxed);
        }
        Ok(())
    }

    /// Takes tasks and records when. Returns their claims.
    async fn take(&mut self) -> anyhow::Result<Vec<String>> {
        let mut take = redis::cmd("LAPSED.TAKE");
        take.arg(QUEUE).arg("COUNT").arg(self.batch);
        take.arg("BLOCK").arg(BLOCK.as_millis() as u64);
        take.arg("WORKER").arg(&self.name);
        let taken = timeout(TAKEN_WITHIN, take.query_async(&mut self.connection));
        let taken: Vec<HashMap<String, Value>> = taken
            .await
            .context("wait for tasks")?
            .context("take tasks")?;
        let now_us = now_us(self.shared.clock.as_ref());
        let mut claims = Vec::with_capacity(taken.len());
        for mut task in taken {
            let key = task.remove("key").context("a task has no `key`")?;
            let key: String = from_redis_value(key)?;
            let number = key.rsplit('@').next().and_then(|arg| arg.parse().ok());
            self.shared
                .recorder
                .start(number.unwrap_or(u32::MAX), now_us);
            let claim = task.remove("claim").context("a task has no `claim`")?;
            claims.push(from_redis_value(claim)?);
        }
        Ok(claims)
    }
}

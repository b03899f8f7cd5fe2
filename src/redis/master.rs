//! The master that Redis Sentinel names.

use std::collections::HashMap;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Weak};
use std::time::Duration;

use redis::AsyncConnectionConfig;
use redis::aio::MultiplexedConnection;
use tokio::sync::{Mutex, watch};
use tokio::task::JoinSet;
use tokio::time::{Instant, sleep, timeout};

use super::RedisError;
use super::client::client;
use lapsed_core::config::{RedisConfig, SentinelUrl};

/// Time between two questions to the sentinels. A promotion is followed within this time and that of an answer.
const ASK_EVERY: Duration = Duration::from_millis(500);

/// Time for the other answers, once a majority has answered. A sentinel that has just led a failover may be among them.
const STRAGGLERS_WITHIN: Duration = Duration::from_millis(100);

/// Time after which all sentinels know of a failover: each tells the others of its view every 2 s.
const NEWS_REACH_ALL: Duration = Duration::from_secs(10);

/// Host and port.
type Address = (String, u16);

/// Finds the master, and follows it from then on.
pub(super) struct Masters {
    name: String,
    sentinels: Vec<Arc<Sentinel>>,
    /// What the sentinels have said last.
    current: watch::Sender<Option<Answer>>,
    follows: AtomicBool,
}

/// How long the server of a connection is the master.
#[derive(Debug, Clone, Default)]
pub(super) struct Mastership(Option<(Address, watch::Receiver<Option<Answer>>)>);

/// A sentinel, and the connection to it.
struct Sentinel {
    client: redis::Client,
    node: String,
    limits: AsyncConnectionConfig,
    connection: Mutex<Option<MultiplexedConnection>>,
}

/// What a sentinel says about the master.
#[derive(Debug)]
struct Answer {
    /// Grows with each failover.
    epoch: u64,
    address: Address,
    at: Instant,
}

impl Answer {
    fn is_about(answer: Option<&Self>, address: &Address) -> bool {
        answer.is_some_and(|answer| answer.address == *address)
    }
}

impl Masters {
    /// Does no I/O.
    pub fn new(url: &SentinelUrl, config: &RedisConfig) -> Result<Self, RedisError> {
        let sentinels = url.sentinels.iter().map(|url| {
            let client = client(url)?;
            Ok(Arc::new(Sentinel {
                node: client.get_connection_info().addr().to_string(),
                client,
                limits: AsyncConnectionConfig::new()
                    .set_connection_timeout(Some(config.connect_timeout))
                    .set_response_timeout(Some(config.response_timeout)),
                connection: Mutex::new(None),
            }))
        });
        Ok(Self {
            name: url.master.clone(),
            sentinels: sentinels.collect::<Result<_, _>>()?,
            current: watch::Sender::new(None),
            follows: AtomicBool::new(false),
        })
    }

    /// The master and its sentinels, for logs.
    pub fn node(&self) -> String {
        let sentinels: Vec<&str> = self
            .sentinels
            .iter()
            .map(|sentinel| &sentinel.node[..])
            .collect();
        format!("{} of {}", self.name, sentinels.join(","))
    }

    /// Asks the sentinels for the address of the master. Waits for the answers of a majority, or for each sentinel to
    /// answer or fail, and believes the one that knows the latest failover.
    pub async fn find(self: &Arc<Self>) -> Result<(Address, Mastership), RedisError> {
        let address = self.ask().await?;
        self.follow();
        let mastership = Mastership(Some((address.clone(), self.current.subscribe())));
        Ok((address, mastership))
    }

    /// Asks each sentinel by itself. Returns its node and the address of the master that it names.
    pub async fn views(&self) -> Vec<(String, Result<String, RedisError>)> {
        let mut views = Vec::with_capacity(self.sentinels.len());
        for sentinel in &self.sentinels {
            let view = sentinel.ask(&self.name).await;
            let view = view.map(|answer| format!("{}:{}", answer.address.0, answer.address.1));
            views.push((sentinel.node.clone(), view));
        }
        views
    }

    async fn ask(&self) -> Result<Address, RedisError> {
        let mut asked = JoinSet::new();
        for sentinel in &self.sentinels {
            let (sentinel, name) = (Arc::clone(sentinel), self.name.clone());
            asked.spawn(async move { sentinel.ask(&name).await });
        }
        let mut answers = Vec::new();
        let mut failure = RedisError::silence();
        while let Some(answer) = asked.join_next().await {
            match answer {
                Ok(Ok(answer)) => answers.push(answer),
                Ok(Err(error)) => failure = error,
                // The runtime is ending.
                Err(_) => {}
            }
            if answers.len() > self.sentinels.len() / 2 {
                break;
            }
        }
        while let Ok(Some(answer)) = timeout(STRAGGLERS_WITHIN, asked.join_next()).await {
            answers.extend(answer.into_iter().flatten());
        }
        let latest = answers.into_iter().max_by_key(|answer| answer.epoch);
        let latest = latest.ok_or(failure)?;
        self.current.send_if_modified(|current| {
            let Some(before) = current.replace(latest) else {
                return true;
            };
            let named = current.as_mut().expect("it was set above");
            // The other sentinels learn of a failover within seconds from the one that has led it.
            if named.epoch < before.epoch && before.at.elapsed() < NEWS_REACH_ALL {
                *named = before;
                return false;
            }
            let is_another = named.address != before.address;
            if is_another {
                let (host, port) = &named.address;
                tracing::info!(
                    redis.master = self.name,
                    host,
                    port,
                    "another server is the master now"
                );
            }
            is_another
        });
        let current = self.current.borrow();
        Ok(current.as_ref().expect("it was set above").address.clone())
    }

    /// Asks again and again, until the last endpoint of this master is dropped.
    fn follow(self: &Arc<Self>) {
        if self.follows.swap(true, Ordering::Relaxed) {
            return;
        }
        let masters = Arc::downgrade(self);
        tokio::spawn(async move {
            let _ends = Follows(Weak::clone(&masters));
            loop {
                sleep(ASK_EVERY).await;
                let Some(masters) = masters.upgrade() else {
                    return;
                };
                // The next connection attempt reports the error.
                let _ = masters.ask().await;
            }
        });
    }
}

/// Lets another task follow when this one ends, as it does with its runtime.
struct Follows(Weak<Masters>);

impl Drop for Follows {
    fn drop(&mut self) {
        if let Some(masters) = self.0.upgrade() {
            masters.follows.store(false, Ordering::Relaxed);
        }
    }
}

impl Sentinel {
    /// Asks for the master of this name. Fields are named as in the reply of `SENTINEL MASTER`:
    /// <https://redis.io/docs/latest/operate/oss_and_stack/management/sentinel/>.
    async fn ask(&self, name: &str) -> Result<Answer, RedisError> {
        let fields = self.fields(name).await;
        let fields = fields.map_err(|error| RedisError::of("SENTINEL MASTER", error))?;
        let number = |name: &str| fields.get(name)?.parse::<u64>().ok();
        let port = number("port").and_then(|port| u16::try_from(port).ok());
        match (fields.get("ip"), port) {
            (Some(host), Some(port)) => Ok(Answer {
                epoch: number("config-epoch").unwrap_or(0),
                address: (host.clone(), port),
                at: Instant::now(),
            }),
            _ => Err(RedisError::silence()),
        }
    }

    async fn fields(&self, name: &str) -> redis::RedisResult<HashMap<String, String>> {
        // Out of its place while it is used: a failure, and a caller that gives up, drop the connection.
        let mut place = self.connection.lock().await;
        let mut connection = match place.take() {
            Some(connection) => connection,
            None => {
                let limits = self.limits.clone();
                let client = &self.client;
                client
                    .get_multiplexed_async_connection_with_config(&limits)
                    .await?
            }
        };
        let question = redis::cmd("SENTINEL").arg("MASTER").arg(name).take();
        let fields = question.query_async(&mut connection).await?;
        *place = Some(connection);
        Ok(fields)
    }
}

impl Mastership {
    /// True if the sentinels name another master.
    pub fn is_over(&self) -> bool {
        let Self(Some((address, current))) = self else {
            return false;
        };
        !Answer::is_about(current.borrow().as_ref(), address)
    }

    /// Waits until the sentinels name another master.
    pub async fn over(mut self) {
        if let Self(Some((address, current))) = &mut self {
            let changed = current.wait_for(|current| !Answer::is_about(current.as_ref(), address));
            if changed.await.is_ok() {
                return;
            }
        }
        std::future::pending().await
    }
}

//! How pull workers talk to a daemon: commands of RESP, or requests of HTTP.

use std::collections::BTreeMap;
use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use lapsed_core::task::UnixMs;
use redis::aio::MultiplexedConnection;
use redis::{FromRedisValue, RedisError, Value, cmd};
use serde::Deserialize;
use serde_json::json;
use serde_json::value::RawValue;

use crate::http::{Method, StatusCode};
use crate::plan::QUEUE;
use crate::record::Call;
use crate::server::Server;

/// A connection of a worker to a daemon.
#[derive(Clone)]
pub enum Connection {
    Resp(MultiplexedConnection),
    Http(Arc<Server>),
}

/// What a worker says about a claim.
#[derive(Debug, Clone, Copy)]
pub enum Report<'a> {
    Renew,
    Release,
    Done,
    Fail { permanent: bool },
    Snooze { ms: &'a str },
}

/// Why a daemon did not do what a worker asked for.
pub enum Refused {
    /// The claim is lost.
    Fenced,
    Other(String),
}

impl fmt::Display for Refused {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Fenced => f.write_str("the claim is lost"),
            Self::Other(text) => f.write_str(text),
        }
    }
}

impl From<RedisError> for Refused {
    fn from(error: RedisError) -> Self {
        match error.code() {
            Some("FENCED") => Self::Fenced,
            _ => Self::Other(error.to_string()),
        }
    }
}

/// A task as a take returns it.
pub struct Taken {
    pub claim: String,
    pub method: String,
    pub call: Call,
}

impl Connection {
    pub async fn open(server: &Arc<Server>, over_http: bool) -> Result<Self, Refused> {
        Ok(match over_http {
            true => Self::Http(Arc::clone(server)),
            false => Self::Resp(server.connect().await?),
        })
    }

    /// Takes tasks, for which it waits so long.
    pub async fn take(
        &mut self,
        count: u64,
        worker: &str,
        block: Duration,
    ) -> Result<Vec<Taken>, Refused> {
        let block = block.as_millis() as u64;
        match self {
            Self::Resp(connection) => {
                let mut take = cmd("LAPSED.TAKE");
                take.arg(QUEUE).arg("COUNT").arg(count);
                take.arg("BLOCK").arg(block).arg("WORKER").arg(worker);
                let tasks = take.query_async::<Vec<Value>>(connection).await?;
                let taken = tasks.iter().map(Taken::of_resp);
                Ok(taken.map(|taken| taken.expect("a task")).collect())
            }
            Self::Http(server) => {
                let path = format!("/v1/queues/{QUEUE}/take");
                let body =
                    json!({ "count": count, "wait": format!("{block}ms"), "worker": worker });
                let reply = server.request(Method::POST, path, Some(body)).await;
                let reply = reply.map_err(Refused::Other)?;
                if reply.status != StatusCode::OK {
                    return Err(Refused::Other(reply.text()));
                }
                // A daemon that ends meanwhile closes the connection within the answer.
                let answer = serde_json::from_slice::<Answer>(&reply.body);
                let answer = answer.map_err(|error| Refused::Other(error.to_string()))?;
                Ok(answer.tasks.into_iter().map(Taken::of_http).collect())
            }
        }
    }

    /// Reports, and returns what the daemon says if it does as it is told.
    pub async fn report(&mut self, report: Report<'_>, claim: &str) -> Result<String, Refused> {
        match self {
            Self::Resp(connection) => {
                let words: &[&str] = match report {
                    Report::Renew => &["LAPSED.RENEW", claim],
                    Report::Release => &["LAPSED.RELEASE", claim],
                    Report::Done => &["LAPSED.DONE", claim],
                    Report::Fail { permanent: false } => &["LAPSED.FAIL", claim, "not yet"],
                    Report::Fail { permanent: true } => {
                        &["LAPSED.FAIL", claim, "never", "PERMANENT"]
                    }
                    Report::Snooze { ms } => &["LAPSED.SNOOZE", claim, ms],
                };
                let mut command = cmd(words[0]);
                command.arg(&words[1..]);
                let value = command.query_async::<Value>(connection).await?;
                Ok(format!("{value:?}"))
            }
            Self::Http(server) => {
                let (verb, body) = match report {
                    Report::Renew => ("renew", None),
                    Report::Release => ("release", None),
                    Report::Done => ("done", None),
                    Report::Fail { permanent } => {
                        let error = json!({ "error": "not yet", "permanent": permanent });
                        ("fail", Some(error))
                    }
                    Report::Snooze { ms } => ("snooze", Some(json!({ "in": format!("{ms}ms") }))),
                };
                let path = format!("/v1/claims/{claim}/{verb}");
                let reply = server.request(Method::POST, path, body).await;
                let reply = reply.map_err(Refused::Other)?;
                match reply.status {
                    status if status.is_success() => Ok(reply.text()),
                    StatusCode::CONFLICT => Err(Refused::Fenced),
                    _ => Err(Refused::Other(reply.text())),
                }
            }
        }
    }
}

/// The answer to a take over HTTP.
#[derive(Deserialize)]
struct Answer {
    tasks: Vec<TaskOverHttp>,
}

#[derive(Deserialize)]
struct TaskOverHttp {
    claim: String,
    id: String,
    method: String,
    attempt: u16,
    payload: Option<Box<RawValue>>,
}

impl Taken {
    fn of_resp(reply: &Value) -> Option<Self> {
        let members = BTreeMap::<String, Value>::from_redis_value_ref(reply).ok()?;
        let text = |name: &str| String::from_redis_value_ref(members.get(name)?).ok();
        let attempt = u16::from_redis_value_ref(members.get("attempt")?).ok()?;
        Some(Self::new(
            text("claim")?,
            text("id")?,
            text("method")?,
            attempt,
            text("payload"),
        ))
    }

    fn of_http(task: TaskOverHttp) -> Self {
        let payload = task.payload.map(|json| json.get().to_owned());
        Self::new(task.claim, task.id, task.method, task.attempt, payload)
    }

    /// # Panics
    /// If the claim is none of ours.
    fn new(
        claim: String,
        id: String,
        method: String,
        attempt: u16,
        payload: Option<String>,
    ) -> Self {
        let fence = claim.split('.').next().unwrap_or_default();
        let parts: Vec<&str> = fence.split('-').collect();
        let [row, due, owner] = parts[..] else {
            panic!("claim {claim}");
        };
        let owner = u128::from_str_radix(owner, 16).expect("an owner");
        let call = Call {
            id,
            row: row.parse().expect("the id of a row"),
            due: UnixMs(due.parse().expect("a time")),
            attempt,
            payload,
            owner: Some(owner.to_be_bytes()),
        };
        Self {
            claim,
            method,
            call,
        }
    }
}

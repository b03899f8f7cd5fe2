//! Pull workers: programs that take tasks from a RESP server and report how they ended.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, MutexGuard};
use std::time::Duration;

use lapsed_core::clock::LedgerClock;
use lapsed_core::task::UnixMs;
use redis::aio::MultiplexedConnection;
use redis::{FromRedisValue, RedisError, RedisResult, Value, cmd};
use tokio::task::JoinSet;
use tokio::time::{sleep, timeout};

use crate::history::History;
use crate::plan::{FaultKind, QUEUE};
use crate::process::Process;
use crate::programs::Program;
use crate::record::{Call, End};
use crate::server::Server;

/// How long a take waits.
const BLOCK: Duration = Duration::from_secs(2);

/// Time for a reply, after which a worker connects again.
const REPLY_TIME: Duration = Duration::from_secs(10);

/// How often a report is repeated that a server could not carry out.
const REPORTS_MAX: u32 = 8;

/// The servers of the daemons that run, by their numbers.
#[derive(Default)]
pub struct Servers(Mutex<BTreeMap<usize, Arc<Server>>>);

impl Servers {
    pub fn add(&self, number: usize, server: Arc<Server>) {
        self.servers().insert(number, server);
    }

    pub fn remove(&self, number: usize) {
        self.servers().remove(&number);
    }

    /// The first server from this number on.
    fn from(&self, number: usize) -> Option<Arc<Server>> {
        let servers = self.servers();
        let next = servers.range(number..).next();
        next.or_else(|| servers.iter().next())
            .map(|(_, server)| Arc::clone(server))
    }

    fn servers(&self) -> MutexGuard<'_, BTreeMap<usize, Arc<Server>>> {
        self.0.lock().expect("nothing panics while holding it")
    }
}

/// A worker.
pub struct Worker {
    pub number: usize,
    pub process: Arc<Process>,
    pub history: Arc<History>,
    pub servers: Arc<Servers>,
    pub clock: LedgerClock,
    pub lease: Duration,
    pub daemons: usize,
}

/// A task as a take returns it.
struct Taken {
    claim: String,
    method: String,
    call: Call,
}

impl Worker {
    /// Takes tasks, forever.
    pub async fn run(self) {
        let worker = Arc::new(self);
        loop {
            let from = worker.process.draw(0, worker.daemons as u64) as usize;
            match worker.servers.from(from) {
                Some(server) => drop(worker.serve(&server).await),
                None => sleep(Duration::from_millis(300)).await,
            }
            let pause = Duration::from_millis(worker.process.draw(1, 500));
            sleep(pause).await;
        }
    }

    /// Works for a server, until it cannot be reached or the worker tries another.
    async fn serve(self: &Arc<Self>, server: &Arc<Server>) -> Result<(), RedisError> {
        let mut connection = connect(server).await?;
        let mut runs = JoinSet::new();
        for _ in 0..self.process.draw(1, 20) {
            let count = self.process.draw(1, 3);
            let mut take = cmd("LAPSED.TAKE");
            take.arg(QUEUE).arg("COUNT").arg(count);
            take.arg("BLOCK").arg(BLOCK.as_millis() as u64);
            take.arg("WORKER").arg(format!("worker-{}", self.number));
            let taken = take.query_async::<Vec<Value>>(&mut connection);
            let taken = match timeout(BLOCK + REPLY_TIME, taken).await {
                Ok(taken) => taken?,
                Err(_) => return Ok(()),
            };
            for task in taken {
                let taken = Taken::read(&task).expect("the members of a task");
                let (worker, server) = (Arc::clone(self), Arc::clone(server));
                let connection = connection.clone();
                runs.spawn(async move { worker.work(&server, connection, taken).await });
            }
            while runs.join_next().await.is_some() {}
        }
        Ok(())
    }

    /// Runs a task, and reports how it ended.
    async fn work(&self, server: &Server, mut connection: MultiplexedConnection, taken: Taken) {
        let Taken {
            claim,
            method,
            call,
        } = &taken;
        let disturbs = |kind| {
            let strikes = self.process.strikes(kind);
            if strikes {
                // What it has claimed is known to no worker, until its lease ends.
                self.history
                    .judge(|judge| judge.disturbed(server.actor, kind));
            }
            strikes
        };
        self.history.called(server.actor, call, self.clock.now());
        if disturbs(FaultKind::WorkerDies) {
            return;
        }
        let program = Program(method);
        let mut left = program.takes(&self.process);
        let is_late = disturbs(FaultKind::WorkerLate);
        if is_late {
            left += self.lease + Duration::from_millis(self.process.draw(1, 5_000));
        }
        while !left.is_zero() {
            let part = left.min(self.lease / 3);
            sleep(part).await;
            left -= part;
            if !is_late && !left.is_zero() {
                let _ = self.send(&mut connection, &["LAPSED.RENEW", claim]).await;
            }
        }
        let after = self.process.draw(10, 5_000).to_string();
        let report: &[&str] = match self.process.draw(0, 19) {
            0 => &["LAPSED.RELEASE", claim],
            _ => {
                let end = program.ends(call.attempt, &self.process);
                self.history.ended(server.actor, call, end);
                match end {
                    End::Succeeded => &["LAPSED.DONE", claim],
                    End::Failed => &["LAPSED.FAIL", claim, "not yet"],
                    End::FailedForGood => &["LAPSED.FAIL", claim, "never", "PERMANENT"],
                    End::Snoozed => &["LAPSED.SNOOZE", claim, &after],
                }
            }
        };
        self.report(connection, report, call).await;
        if self.process.strikes(FaultKind::WorkerReportsTwice) {
            sleep(Duration::from_millis(self.process.draw(0, 3_000))).await;
            if let Some(other) = self.servers.from(self.process.draw(0, 3) as usize)
                && let Ok(connection) = connect(&other).await
            {
                self.report(connection, report, call).await;
            }
        }
    }

    /// Reports until a server has carried it out or refuses it.
    async fn report(&self, mut connection: MultiplexedConnection, report: &[&str], call: &Call) {
        for attempt in 0..REPORTS_MAX {
            let answer = self.send(&mut connection, report).await;
            let now = self.clock.now();
            match answer {
                Ok(answer) => {
                    self.history.say(format!("{report:?}: {answer:?}"));
                    return self.history.judge(|judge| judge.reported(call, now));
                }
                Err(error) => {
                    self.history.say(format!("{report:?}: {error}"));
                    if error.code() == Some("FENCED") {
                        return;
                    }
                }
            }
            sleep(Duration::from_millis(200)).await;
            let next = self.servers.from(attempt as usize);
            if let Some(server) = next
                && let Ok(other) = connect(&server).await
            {
                connection = other;
            }
        }
    }

    async fn send(&self, to: &mut MultiplexedConnection, words: &[&str]) -> RedisResult<Value> {
        self.process.runs().await;
        let mut command = cmd(words[0]);
        command.arg(&words[1..]);
        let answer = timeout(REPLY_TIME, command.query_async::<Value>(to)).await;
        answer.unwrap_or_else(|_| Err((redis::ErrorKind::Io, "no reply").into()))
    }
}

async fn connect(server: &Server) -> Result<MultiplexedConnection, RedisError> {
    let connected = timeout(REPLY_TIME, server.connect()).await;
    connected.unwrap_or_else(|_| Err((redis::ErrorKind::Io, "no reply").into()))
}

impl Taken {
    /// Reads a task from the reply to a take.
    fn read(reply: &Value) -> Option<Self> {
        let members = BTreeMap::<String, Value>::from_redis_value_ref(reply).ok()?;
        let text = |name: &str| String::from_redis_value_ref(members.get(name)?).ok();
        let claim = text("claim")?;
        let fence = claim.split('.').next()?;
        let mut parts = fence.split('-');
        let row = parts.next()?.parse().ok()?;
        let due = UnixMs(parts.next()?.parse().ok()?);
        let owner = u128::from_str_radix(parts.next()?, 16).ok()?;
        let attempt = members.get("attempt")?;
        let call = Call {
            id: text("id")?,
            row,
            due,
            attempt: u16::from_redis_value_ref(attempt).ok()?,
            payload: text("payload"),
            owner: Some(owner.to_be_bytes()),
        };
        Some(Self {
            method: text("method")?,
            claim,
            call,
        })
    }
}

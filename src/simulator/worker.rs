//! Pull workers: programs that take tasks from a daemon and report how they ended.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, MutexGuard};
use std::time::Duration;

use lapsed_core::clock::LedgerClock;
use tokio::task::JoinSet;
use tokio::time::{sleep, timeout};

use crate::connection::{Connection, Refused, Report, Taken};
use crate::history::History;
use crate::plan::FaultKind;
use crate::process::Process;
use crate::programs::Program;
use crate::record::End;
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

    /// Does not remove the server of a daemon of this number that has started since.
    pub fn remove(&self, number: usize, server: &Arc<Server>) {
        let mut servers = self.servers();
        if servers
            .get(&number)
            .is_some_and(|it| Arc::ptr_eq(it, server))
        {
            servers.remove(&number);
        }
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
    async fn serve(self: &Arc<Self>, server: &Arc<Server>) -> Result<(), Refused> {
        let mut connection = self.open(server).await?;
        let mut runs = JoinSet::new();
        for _ in 0..self.process.draw(1, 20) {
            let count = self.process.draw(1, 3);
            let name = format!("worker-{}", self.number);
            let taken = connection.take(count, &name, BLOCK);
            let taken = match timeout(BLOCK + REPLY_TIME, taken).await {
                Ok(taken) => taken?,
                Err(_) => return Ok(()),
            };
            for task in taken {
                let (worker, server) = (Arc::clone(self), Arc::clone(server));
                let connection = connection.clone();
                runs.spawn(async move { worker.work(&server, connection, task).await });
            }
            while runs.join_next().await.is_some() {}
        }
        Ok(())
    }

    /// Runs a task, and reports how it ended.
    async fn work(&self, server: &Server, mut connection: Connection, taken: Taken) {
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
                let _ = self.send(&mut connection, Report::Renew, claim).await;
            }
        }
        let after = self.process.draw(10, 5_000).to_string();
        let report = match self.process.draw(0, 19) {
            0 => Report::Release,
            _ => {
                let end = program.ends(call.attempt, &self.process);
                self.history.ended(server.actor, call, end);
                match end {
                    End::Succeeded => Report::Done,
                    End::Failed => Report::Fail { permanent: false },
                    End::FailedForGood => Report::Fail { permanent: true },
                    End::Snoozed => Report::Snooze { ms: &after },
                }
            }
        };
        self.report(connection, report, &taken).await;
        if self.process.strikes(FaultKind::WorkerReportsTwice) {
            sleep(Duration::from_millis(self.process.draw(0, 3_000))).await;
            if let Some(other) = self.servers.from(self.process.draw(0, 3) as usize)
                && let Ok(connection) = self.open(&other).await
            {
                self.report(connection, report, &taken).await;
            }
        }
    }

    /// Reports until a server has carried it out or refuses it.
    async fn report(&self, mut connection: Connection, report: Report<'_>, taken: &Taken) {
        let Taken { claim, call, .. } = taken;
        for attempt in 0..REPORTS_MAX {
            let answer = self.send(&mut connection, report, claim).await;
            let now = self.clock.now();
            match answer {
                Ok(answer) => {
                    self.history.say(format!("{report:?} {claim}: {answer}"));
                    return self.history.judge(|judge| judge.reported(call, now));
                }
                Err(refused) => {
                    self.history.say(format!("{report:?} {claim}: {refused}"));
                    if matches!(refused, Refused::Fenced) {
                        return;
                    }
                }
            }
            sleep(Duration::from_millis(200)).await;
            let next = self.servers.from(attempt as usize);
            if let Some(server) = next
                && let Ok(other) = self.open(&server).await
            {
                connection = other;
            }
        }
    }

    async fn send(
        &self,
        to: &mut Connection,
        report: Report<'_>,
        claim: &str,
    ) -> Result<String, Refused> {
        self.process.runs().await;
        in_time(to.report(report, claim)).await
    }

    /// Every second worker speaks HTTP.
    async fn open(&self, server: &Arc<Server>) -> Result<Connection, Refused> {
        in_time(Connection::open(server, self.number % 2 == 1)).await
    }
}

async fn in_time<T>(answer: impl Future<Output = Result<T, Refused>>) -> Result<T, Refused> {
    let answer = timeout(REPLY_TIME, answer).await;
    answer.unwrap_or_else(|_| Err(Refused::Other("no reply".to_owned())))
}

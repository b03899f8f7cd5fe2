//! Carries out faults on daemons, servers and the ways between them.

use std::process::Stdio;
use std::time::Duration;

use anyhow::Context as _;
use lapsed::UnixMs;
use rand::RngExt as _;
use sqlx::{Connection as _, Executor as _};
use tokio::sync::oneshot;
use tokio::time::{sleep, timeout};

use super::{LEASE_MS, MysqlRig, Ways};
use crate::history::{Hits, Op, Source, Step, Story, Window};
use crate::plan::{CRASH_POINTS, Death, Fault, Net, PRODUCER_POINTS, Plan, Point, Server, Who};
use crate::proxy::{Mode, Place, Proxy, Trap};
use crate::target::now;

/// How long a trap waits for its statement.
const TRAP: Duration = Duration::from_secs(8);

/// What came of a fault.
pub struct Carried {
    pub windows: Vec<Window>,
    /// What producers did that belong to the fault.
    pub stories: Vec<(String, Story)>,
    /// False if what it waits for did not come.
    pub happened: bool,
}

impl MysqlRig {
    /// Carries out a fault, and ends it.
    ///
    /// # Errors
    /// If a server or daemon does not come back.
    pub async fn carry_out(&mut self, fault: Fault, plan: &mut Plan) -> anyhow::Result<Carried> {
        let from = now();
        let daemon = plan.random.random_range(self.spared..self.daemons.len());
        let mut happened = true;
        let hits = match fault {
            Fault::Way(server, net, who) => {
                let one = (who == Who::OneDaemon).then_some(daemon);
                self.disturb(server, net, one, plan).await;
                hits_of(server, one)
            }
            Fault::ServerKilled(Server::Redis) => {
                self.redis[0].kill();
                sleep(plan.time(200, 3_000)).await;
                self.redis[0].start_again().await?;
                Hits::Redis
            }
            Fault::ServerKilled(Server::Ledger) => {
                self.maria.kill();
                sleep(plan.time(200, 3_000)).await;
                self.maria.restart().await?;
                Hits::Ledger(None)
            }
            Fault::ServerFrozen(Server::Redis) => {
                self.redis[0].stop_process()?;
                sleep(plan.time(500, 5_000)).await;
                self.redis[0].continue_process()?;
                Hits::Redis
            }
            Fault::ServerFrozen(Server::Ledger) => {
                self.maria.stop_process()?;
                sleep(plan.time(500, 5_000)).await;
                self.maria.continue_process()?;
                Hits::Ledger(None)
            }
            Fault::ConnectionsKilled(Server::Redis) => {
                self.redis_says(&["CLIENT", "KILL", "TYPE", "normal"])
                    .await?;
                self.redis_says(&["CLIENT", "KILL", "TYPE", "pubsub"])
                    .await?;
                Hits::Redis
            }
            Fault::ConnectionsKilled(Server::Ledger) => {
                self.kill_connections().await?;
                Hits::Ledger(None)
            }
            Fault::RedisFlushed => {
                self.redis_says(&["FLUSHALL"]).await?;
                Hits::Redis
            }
            Fault::EventsOff => {
                self.redis_says(&["CONFIG", "SET", "notify-keyspace-events", ""])
                    .await?;
                sleep(plan.time(1_000, 4_000)).await;
                Hits::Redis
            }
            Fault::Failover => {
                self.redis.swap(0, 1);
                let port = self.redis[0].port();
                self.ways
                    .iter()
                    .chain([&self.producers])
                    .for_each(|ways| ways.redis.lead_to(port));
                // Empty the next time, too.
                self.redis[1].restart().await?;
                Hits::Redis
            }
            Fault::ReadOnly => {
                self.sql.execute("SET GLOBAL read_only = 1").await?;
                sleep(plan.time(1_000, 4_000)).await;
                self.sql.execute("SET GLOBAL read_only = 0").await?;
                Hits::Ledger(None)
            }
            Fault::RowsLocked | Fault::Deadlocks => {
                self.lock_rows(fault == Fault::Deadlocks).await?;
                Hits::Ledger(None)
            }
            Fault::DaemonKilled => {
                self.daemons[daemon].kill();
                sleep(plan.time(0, 4_000)).await;
                Hits::Daemon(Some(daemon))
            }
            Fault::AllKilled => {
                self.daemons
                    .iter_mut()
                    .for_each(crate::daemon::Daemon::kill);
                sleep(plan.time(0, 3_000)).await;
                Hits::Daemon(None)
            }
            Fault::RestartStorm => {
                for _ in 0..3 {
                    self.daemons
                        .iter_mut()
                        .for_each(crate::daemon::Daemon::kill);
                    self.daemons
                        .iter_mut()
                        .try_for_each(crate::daemon::Daemon::start)?;
                    sleep(plan.time(50, 1_000)).await;
                }
                Hits::Daemon(None)
            }
            Fault::DaemonStopped => {
                self.until_started(daemon).await;
                self.daemons[daemon].stop().await?;
                Hits::Daemon(Some(daemon))
            }
            Fault::DaemonFrozen => {
                self.daemons[daemon].freeze();
                sleep(plan.time(300, LEASE_MS.cast_unsigned() / 2)).await;
                self.daemons[daemon].thaw();
                Hits::Pause(daemon)
            }
            Fault::DaemonFrozenBeyondItsLease => {
                self.daemons[daemon].freeze();
                let lease = LEASE_MS.cast_unsigned();
                sleep(plan.time(lease + 1_000, lease + 4_000)).await;
                self.daemons[daemon].thaw();
                Hits::Daemon(Some(daemon))
            }
            Fault::KilledMidRun => {
                let daemon = self
                    .until_any_started()
                    .await
                    .filter(|it| *it >= self.spared);
                happened = daemon.is_some();
                let daemon = daemon.unwrap_or(self.spared);
                self.daemons[daemon].kill();
                sleep(plan.time(0, 1_000)).await;
                Hits::Daemon(Some(daemon))
            }
            Fault::TargetsRefuse => {
                self.receiver.refuse(true);
                sleep(plan.time(500, 3_000)).await;
                self.receiver.refuse(false);
                Hits::Targets
            }
            Fault::TargetsCut => {
                self.hooks.set(Mode::NoAnswers);
                sleep(plan.time(100, 1_500)).await;
                self.hooks.cut();
                self.hooks.set(Mode::Pass);
                Hits::Targets
            }
            Fault::CrashPoint(at, death) => {
                let point = &CRASH_POINTS[at];
                let sprung = Self::trap(way(&self.ways[daemon], point.server), point).await;
                happened = sprung.is_some();
                if death == Death::Process {
                    self.daemons[daemon].kill();
                }
                drop(sprung);
                match death {
                    Death::Process => Hits::Daemon(Some(daemon)),
                    Death::Connection => Hits::Ledger(Some(daemon)),
                }
            }
            Fault::ProducerCut(at) => {
                let point = &PRODUCER_POINTS[at];
                happened = Self::trap(way(&self.producers, point.server), point)
                    .await
                    .is_some();
                return Ok(Carried {
                    windows: Vec::new(),
                    stories: Vec::new(),
                    happened,
                });
            }
            Fault::ProducerKilled(at) => {
                return self.kill_producer(&PRODUCER_POINTS[at]).await;
            }
            Fault::RenewalsLost => {
                let renewal = CRASH_POINTS.last().expect("it is the last");
                let way = &self.ways[daemon].ledger;
                happened = Self::trap(way, renewal).await.is_some();
                way.set(Mode::NoQuestions);
                sleep(plan.time(LEASE_MS.cast_unsigned(), LEASE_MS.cast_unsigned() + 3_000)).await;
                way.set(Mode::Pass);
                way.cut();
                Hits::Ledger(Some(daemon))
            }
        };
        let to_start = self.daemons.iter().filter(|daemon| daemon.pid().is_none());
        let to_start: Vec<usize> = to_start.map(|daemon| daemon.number).collect();
        for number in &to_start {
            self.daemons[*number].start()?;
        }
        let windows = vec![Window {
            name: fault.name(),
            from,
            to: now(),
            hits,
        }];
        Ok(Carried {
            windows,
            stories: Vec::new(),
            happened,
        })
    }

    /// Ends by a passing way, whatever it was.
    async fn disturb(&self, server: Server, net: Net, one: Option<usize>, plan: &mut Plan) {
        let ways: Vec<&Proxy> = match one {
            Some(daemon) => vec![way(&self.ways[daemon], server)],
            None => self
                .ways
                .iter()
                .chain([&self.producers])
                .map(|ways| way(ways, server))
                .collect(),
        };
        let Net::Withheld(mode) = net else {
            ways.iter().for_each(|way| way.cut());
            return;
        };
        ways.iter().for_each(|way| way.set(mode));
        sleep(plan.time(500, 5_000)).await;
        ways.iter().for_each(|way| way.set(Mode::Pass));
    }

    async fn redis_says(&self, words: &[&str]) -> anyhow::Result<()> {
        let mut redis = self.redis[0].connect(0).await?;
        let mut command = redis::cmd(words[0]);
        command.arg(&words[1..]);
        let _: redis::Value = command.query_async(&mut redis).await?;
        Ok(())
    }

    /// `KILL` of all sessions but this one.
    async fn kill_connections(&self) -> anyhow::Result<()> {
        let mut sql = self.sql.acquire().await?;
        let query = "SELECT ID FROM information_schema.PROCESSLIST WHERE ID <> CONNECTION_ID() AND DB = 'lapsed'";
        let sessions: Vec<i64> = sqlx::query_scalar(query).fetch_all(&mut *sql).await?;
        for session in sessions {
            // It may have ended.
            let _ = sqlx::query("KILL ?").bind(session).execute(&mut *sql).await;
        }
        Ok(())
    }

    /// Locks rows that fall due, all at once or one after the other, the last first.
    async fn lock_rows(&self, backwards: bool) -> anyhow::Result<()> {
        let mut sql = self.sql.acquire().await?;
        let near = "SELECT id FROM tb_time_limit_task WHERE status = 0 AND sts = 0 AND due_at < UNIX_TIMESTAMP(NOW(3)) + 2 ORDER BY id DESC LIMIT 200";
        let rows: Vec<u64> = sqlx::query_scalar(near).fetch_all(&mut *sql).await?;
        let mut locking = sql.begin().await?;
        for rows in rows.chunks(if backwards { 1 } else { 200 }) {
            for row in rows {
                let lock = "SELECT id FROM tb_time_limit_task WHERE id = ? FOR UPDATE";
                let locked = sqlx::query(lock)
                    .bind(row)
                    .fetch_optional(&mut *locking)
                    .await;
                if locked.is_err() {
                    // It is the one that the server chose to end.
                    return Ok(());
                }
            }
            sleep(Duration::from_millis(if backwards { 10 } else { 3_000 })).await;
        }
        locking.rollback().await?;
        Ok(())
    }

    /// Waits until this daemon has started a run.
    async fn until_started(&mut self, daemon: usize) {
        let started = async { while self.started.recv().await.is_some_and(|it| it != daemon) {} };
        let _ = timeout(TRAP, started).await;
    }

    async fn until_any_started(&mut self) -> Option<usize> {
        while self.started.try_recv().is_ok() {}
        timeout(TRAP, self.started.recv()).await.ok().flatten()
    }

    /// Waits until a connection is stopped at this point. It closes when the result is dropped.
    pub(super) async fn trap(way: &Proxy, point: &Point) -> Option<oneshot::Sender<()>> {
        let (sprung, has_sprung) = oneshot::channel();
        let (hold, release) = oneshot::channel();
        let place: Place = point.place;
        way.set_trap(Some(Trap {
            text: point.text,
            place,
            sprung,
            release,
        }));
        let came = timeout(TRAP, has_sprung).await;
        way.set_trap(None);
        matches!(came, Ok(Ok(()))).then_some(hold)
    }

    /// `lapsed schedule` on ways of its own, killed at this point. Nobody gets an answer.
    async fn kill_producer(&self, point: &Point) -> anyhow::Result<Carried> {
        let ways = Ways::to(&self.maria, &self.redis[0]).await?;
        let path = self.home.path().join("killed.toml");
        std::fs::write(&path, Self::servers(&ways))?;
        let (asked, due) = (now(), now() + 1_500);
        let key = format!("Hook@ok@killed{asked}");
        let mut command = tokio::process::Command::new(self.daemons[0].program());
        command.arg("--config").arg(path).args([
            "schedule",
            &key,
            "--at",
            &UnixMs(due).to_string(),
        ]);
        command.stdout(Stdio::null()).stderr(Stdio::null());
        let mut child = command
            .kill_on_drop(true)
            .spawn()
            .context("start a producer")?;
        let sprung = Self::trap(way(&ways, point.server), point).await;
        child.kill().await?;
        let happened = sprung.is_some();
        let op = Op {
            asked,
            answered: None,
            step: Step::Arm { due, busy: true },
        };
        let story = Story {
            source: Source::Cli,
            ops: vec![op],
            wrong: Vec::new(),
        };
        Ok(Carried {
            windows: Vec::new(),
            stories: vec![(key, story)],
            happened,
        })
    }
}

fn way(ways: &Ways, server: Server) -> &Proxy {
    match server {
        Server::Ledger => &ways.ledger,
        Server::Redis => &ways.redis,
    }
}

fn hits_of(server: Server, one: Option<usize>) -> Hits {
    match server {
        Server::Ledger => Hits::Ledger(one),
        Server::Redis => Hits::Redis,
    }
}

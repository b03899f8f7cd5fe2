//! What tests about behaviour need, whichever ledger it is on.

use std::collections::BTreeSet;
use std::time::Duration;

use lapsed::ledger::TaskRecord;
use lapsed::task::State;
use lapsed::{Config, Handlers, TaskClient, UnixMs};
use tokio::time::sleep;

use crate::support::daemon::Daemon;
use crate::support::file_scene::FileScene;
use crate::support::process::Process;
use crate::support::rig::{Rig, Run};
use crate::support::wait::until;

/// A ledger, daemons on it, and what they have done. A [`Rig`] is one in MySQL.
pub trait Scene {
    fn config(&self) -> Config;

    /// Handlers of `Job@record@..`, which writes down when it ran, and `Job@effect@..`, which completes together with an
    /// effect.
    fn handlers(&self) -> Handlers;

    /// A daemon in a process of its own, with these handlers.
    fn worker(&self) -> Process;

    /// A producer as another program has it.
    async fn producer(&self) -> TaskClient;

    async fn runs(&self) -> Vec<Run>;

    /// The keys of the tasks with effects.
    async fn effects(&self) -> Vec<String>;

    async fn record(&self, name: &str) -> TaskRecord;

    /// How many rows have this status.
    async fn with_status(&self, status: u8) -> i64;

    /// Runs a statement of another program.
    async fn execute(&self, statement: &str);

    /// Makes a task as old as this: it was created then, and due at once. No signal of it is left.
    async fn backdate(&self, name: &str, to: UnixMs);

    /// Milliseconds on the clock that decides.
    async fn now_ms(&self) -> i64;

    /// A daemon in this process that is ready.
    async fn ready_daemon(&self) -> Daemon {
        let daemon = Daemon::start(&self.config(), self.handlers());
        daemon.status.ready().await;
        daemon
    }

    async fn state(&self, name: &str) -> State {
        self.record(name).await.state
    }

    async fn until_state(&self, name: &str, state: State) {
        until(format!("`{name}` is {state}"), async || {
            self.state(name).await == state
        })
        .await;
    }

    async fn until_done(&self, count: usize) {
        until(format!("{count} tasks are done"), async || {
            self.with_status(1).await == count as i64
        })
        .await;
    }

    /// Waits until the deciding clock has passed this.
    async fn until_clock(&self, moment: UnixMs) {
        loop {
            match moment.0 - self.now_ms().await {
                ..0 => return,
                left => sleep(Duration::from_millis(left as u64 + 1)).await,
            }
        }
    }

    async fn runs_of(&self, name: &str) -> Vec<Run> {
        let mut runs = self.runs().await;
        runs.retain(|run| run.name == name);
        runs
    }

    /// Every one of `count` tasks has run, each exactly once, none before its time.
    async fn each_ran_once(&self, count: usize) {
        let runs = self.runs().await;
        let names: BTreeSet<&str> = runs.iter().map(|run| run.name.as_str()).collect();
        assert_eq!((names.len(), runs.len()), (count, count), "names, runs");
        for run in &runs {
            assert!(run.at_ms >= run.due_ms, "early: {run:?}");
            assert_eq!(run.attempt, 1, "{run:?}");
        }
    }

    /// Every one of `count` effects is there exactly once.
    async fn each_effect_once(&self, count: usize) {
        let effects = self.effects().await;
        let names: BTreeSet<&String> = effects.iter().collect();
        assert_eq!((names.len(), effects.len()), (count, count));
    }
}

impl Scene for Rig {
    fn config(&self) -> Config {
        Self::config(self)
    }

    fn handlers(&self) -> Handlers {
        crate::support::handlers::handlers()
    }

    fn worker(&self) -> Process {
        Process::worker(self)
    }

    async fn producer(&self) -> TaskClient {
        self.client().await.into()
    }

    async fn runs(&self) -> Vec<Run> {
        Self::runs(self).await
    }

    async fn effects(&self) -> Vec<String> {
        let names = sqlx::query_scalar("SELECT name FROM effects");
        names.fetch_all(&self.sql).await.unwrap()
    }

    async fn record(&self, name: &str) -> TaskRecord {
        Self::record(self, name).await
    }

    async fn with_status(&self, status: u8) -> i64 {
        Self::with_status(self, status).await
    }

    async fn execute(&self, statement: &str) {
        self.run_sql(statement).await;
    }

    async fn backdate(&self, name: &str, to: UnixMs) {
        let to = to.0;
        self.run_sql(&format!(
            "UPDATE tb_time_limit_task SET start_time = {to} / 1000, end_time = {to} / 1000 WHERE `key` = '{name}'"
        ))
        .await;
        self.redis_says::<i64>(&["DEL", name]).await;
    }

    async fn now_ms(&self) -> i64 {
        Self::now_ms(self).await
    }
}

impl Scene for FileScene {
    fn config(&self) -> Config {
        Self::config(self)
    }

    fn handlers(&self) -> Handlers {
        crate::support::file_scene::handlers()
    }

    fn worker(&self) -> Process {
        Self::worker(self)
    }

    async fn producer(&self) -> TaskClient {
        TaskClient::connect(&Self::config(self)).await.unwrap()
    }

    async fn runs(&self) -> Vec<Run> {
        Self::runs(self)
    }

    async fn effects(&self) -> Vec<String> {
        self.column("SELECT name FROM effects")
    }

    async fn record(&self, name: &str) -> TaskRecord {
        Self::record(self, name).await
    }

    async fn with_status(&self, status: u8) -> i64 {
        let count = format!("SELECT COUNT(*) FROM tb_time_limit_task WHERE status = {status}");
        self.column(&count)[0]
    }

    async fn execute(&self, statement: &str) {
        self.connection().execute_batch(statement).unwrap();
    }

    async fn backdate(&self, name: &str, to: UnixMs) {
        let to = to.0;
        let update = "UPDATE tb_time_limit_task SET start_time = ?1, end_time = ?1 WHERE key = ?2";
        self.connection().execute(update, (to, name)).unwrap();
    }

    async fn now_ms(&self) -> i64 {
        lapsed::clock::wall().0
    }
}

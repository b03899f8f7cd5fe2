//! Daemon processes and servers that are killed, stopped and started, as planned.

use lapsed::task::Scope;
use lapsed::{Engine, Handlers, TaskContext};
use rustix::process::Signal;
use tokio::signal::unix::{SignalKind, signal};

use super::Trial;
use super::disturbances::Event;
use crate::support::handlers::{handlers, write_down};
use crate::support::process::{Process, config_file, config_of_program};
use crate::support::rig::Rig;

/// A daemon that stops gracefully at SIGTERM.
#[tokio::test]
#[ignore = "a program for the other tests to start"]
async fn serve() {
    let config = config_of_program();
    tracing_subscriber::fmt().with_ansi(false).init();
    let mut terminated = signal(SignalKind::terminate()).unwrap();
    let shutdown = async move {
        terminated.recv().await;
    };
    let engine = Engine::new(config, with_model()).unwrap();
    engine.run_until(shutdown).await.unwrap();
}

/// Beside those of every daemon: `Model@record@..` and `Model@pausable@..` write down when they ran.
fn with_model() -> Handlers {
    let mut handlers = handlers();
    for method in ["record", "pausable"] {
        handlers.on(
            ("Model", method),
            |task: TaskContext, _: Vec<String>| async move { write_down(&task).await },
        );
    }
    handlers
}

/// What a daemon logs each time it hears events from then on.
const SUBSCRIBED: &str = "subscribed to expired events";

pub struct Daemons {
    running: Vec<Process>,
}

impl Daemons {
    pub async fn start(rig: &Rig, count: usize) -> Self {
        let running = Vec::new();
        let mut daemons = Self { running };
        for _ in 0..count {
            daemons.join(rig).await;
        }
        daemons
    }

    pub fn count(&self) -> usize {
        self.running.len()
    }

    /// One more, which hears events.
    pub async fn join(&mut self, rig: &Rig) {
        let daemon = Process::program(
            "random_operations::model::daemons::serve",
            config_file(rig),
            &[],
        );
        daemon.until_logged(SUBSCRIBED).await;
        self.running.push(daemon);
    }

    /// SIGKILL for the oldest.
    pub fn kill(&mut self, count: usize) {
        for mut daemon in self.running.drain(..count) {
            daemon.kill();
        }
    }

    /// SIGTERM for the oldest, and waits until they have ended.
    pub async fn stop(&mut self, count: usize) {
        for daemon in &self.running[..count] {
            daemon.signal(Signal::TERM);
        }
        for mut daemon in self.running.drain(..count) {
            let status = daemon.until_ended().await;
            assert!(status.success(), "{status}: {}", daemon.log());
        }
    }

    /// Waits until all hear events of a Redis that was started again.
    pub async fn subscribe_again(&self) {
        for daemon in &self.running {
            daemon
                .until_logged("redis was restarted or is another server")
                .await;
        }
    }
}

/// Pauses are in force 2 s after they were acknowledged; a busy machine has as long again.
const PAUSE_TAKES: i64 = 4_000;

impl Trial {
    /// Has the events of the plan happen.
    pub(super) async fn cause_events(&self, mut daemons: Daemons) -> Daemons {
        let count = self.disturbances.borrow().all.len();
        for index in 0..count {
            let disturbance = self.disturbances.borrow().all[index];
            self.until_planned(disturbance.from - self.began.0).await;
            self.disturbances.borrow_mut().all[index].begun = true;
            let to = disturbance.to - self.began.0;
            self.happen(disturbance.event, to, &mut daemons).await;
            let mut disturbances = self.disturbances.borrow_mut();
            disturbances.all[index].to = self.now();
            disturbances.all[index].over = true;
        }
        daemons
    }

    async fn happen(&self, event: Event, to: i64, daemons: &mut Daemons) {
        match event {
            Event::Join => {
                let rig = self.rig.read().await;
                daemons.join(&rig).await;
                drop(rig);
                self.until_planned(to).await;
                daemons.stop(1).await;
            }
            Event::KillAll | Event::KillOne => {
                let count = match event {
                    Event::KillOne => 1,
                    _ => daemons.count(),
                };
                let before = self.now();
                daemons.kill(count);
                self.kills.borrow_mut().push((before, self.now()));
                self.until_planned(to).await;
                let rig = self.rig.read().await;
                for _ in 0..count {
                    daemons.join(&rig).await;
                }
            }
            Event::StopAll => {
                let count = daemons.count();
                daemons.stop(count).await;
                self.until_planned(to).await;
                let rig = self.rig.read().await;
                for _ in 0..count {
                    daemons.join(&rig).await;
                }
            }
            Event::Flush => {
                let () = self.rig.read().await.redis_says(&["FLUSHALL"]).await;
            }
            Event::RedisKilled => {
                self.rig.write().await.redis.kill();
                self.until_planned(to).await;
                self.rig.write().await.redis.start_again().await.unwrap();
                daemons.subscribe_again().await;
            }
            Event::Pause => {
                let pausable = Scope::method("Model", "pausable").unwrap();
                self.client.pause(&pausable, "the test", "").await.unwrap();
                let from = self.now() + PAUSE_TAKES;
                self.until_planned(to).await;
                self.pauses.borrow_mut().push((from, self.now()));
                self.client.resume(&pausable).await.unwrap();
            }
        }
    }
}

//! A daemon in this process.

use std::cell::Cell;
use std::fmt;
use std::sync::Arc;

use lapsed::client::Receipt;
use lapsed::compose::Adapters;
use lapsed::engine::{DropReason, EngineError, Handle};
use lapsed::handler::Router;
use lapsed::timer::{Cause, Source};
use lapsed::{Config, Handlers, TaskClient};
use tokio::sync::oneshot;
use tokio::task::JoinHandle;
use tokio::time::timeout;

use crate::support::metrics;
use crate::support::tasks::create;
use crate::support::wait::{DEADLINE, until};

/// An engine in this process; dropped, it stops at once as if killed.
pub struct Daemon {
    pub tasks: TaskClient,
    pub status: Handle,
    adapters: Adapters,
    router: Arc<Router>,
    stop: Option<oneshot::Sender<()>>,
    running: JoinHandle<Result<(), EngineError>>,
}

impl Daemon {
    pub fn start(config: &Config, handlers: Handlers) -> Self {
        let adapters = Adapters::new(config).unwrap();
        let engine = adapters.engine(config, handlers);
        let status = engine.handle();
        let router = Arc::clone(&engine.parts().router);
        let (stop, stopped) = oneshot::channel();
        let running = tokio::spawn(engine.run_until(async move {
            let _ = stopped.await;
        }));
        let tasks = adapters.client();
        Self {
            tasks,
            status,
            adapters,
            router,
            stop: Some(stop),
            running,
        }
    }

    pub async fn hears_events(&self) {
        until("the daemon hears events", async || {
            assert!(self.is_alive(), "the daemon has ended: it could not start");
            self.status.is_listening() == Some(true)
        })
        .await;
    }

    /// What it can run.
    pub fn router(&self) -> Arc<Router> {
        Arc::clone(&self.router)
    }

    /// What `/metrics` would serve.
    pub fn metrics(&self) -> String {
        self.adapters.metrics.render()
    }

    /// The value of a counter or gauge that exists; 0 for one that was never touched.
    #[track_caller]
    pub fn metric(&self, name: &str) -> f64 {
        metrics::value(&self.adapters.metrics.render(), name)
    }

    /// Waits until a counter or gauge says so: what the ledger shows is counted a moment later.
    pub async fn until_counted(&self, name: &str, holds: impl Fn(f64) -> bool) {
        let found = Cell::new(f64::NAN);
        let counted = async || {
            found.set(self.metric(name));
            holds(found.get())
        };
        let what = fmt::from_fn(|f| write!(f, "`{name}`, which is {}, has its value", found.get()));
        until(what, counted).await;
    }

    /// Its first audit is over: what happens from now on is seen by nothing that was about the past.
    pub async fn has_audited(&self) {
        let audited = async || {
            self.adapters
                .metrics
                .render()
                .contains("lapsed_audits_total{")
        };
        until("the daemon has audited", audited).await;
    }

    /// The same, and its sweep after the subscription has begun: another comes after `sweep.interval`.
    pub async fn has_swept(&self) {
        self.has_audited().await;
        until("the daemon has swept", async || {
            let tasks = self.status.background();
            let mut sweeps = tasks.iter().filter(|task| task.name == "sweep");
            sweeps.any(|sweep| sweep.passes > 0 && sweep.cause != Some(Cause::Start))
        })
        .await;
    }

    pub fn signals(&self, source: Source) -> f64 {
        let source = source.as_str();
        self.metric(&format!("lapsed_signals_total{{source=\"{source}\"}}"))
    }

    pub async fn until_counted_adopted(&self, reason: &str, holds: impl Fn(f64) -> bool) {
        let name = format!("lapsed_adopted_total{{reason=\"{reason}\"}}");
        self.until_counted(&name, holds).await;
    }

    pub fn dropped(&self, reason: DropReason) -> f64 {
        self.metric(&format!(
            "lapsed_signals_dropped_total{{reason=\"{reason}\"}}"
        ))
    }

    /// A task by name, due after `delay_ms` milliseconds.
    pub async fn create(&self, name: &str, delay_ms: i64) -> Receipt {
        create(&self.tasks, name, delay_ms).await
    }

    /// Stops it gracefully.
    pub async fn stop(mut self) {
        let _ = self.stop.take().expect("stopped once").send(());
        let ended = timeout(DEADLINE, &mut self.running).await;
        ended.expect("the daemon stops").unwrap().unwrap();
    }

    /// Ends it without a word, as SIGKILL would.
    pub fn kill(self) {
        self.running.abort();
    }

    pub fn is_alive(&self) -> bool {
        !self.running.is_finished()
    }
}

impl Drop for Daemon {
    fn drop(&mut self) {
        self.running.abort();
    }
}

//! What every request handler works with.

use std::sync::Arc;
use std::time::Duration;

use axum::http::HeaderValue;
use percent_encoding::{AsciiSet, NON_ALPHANUMERIC, utf8_percent_encode};
use tokio::sync::{OwnedSemaphorePermit, Semaphore};
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;

use super::access::{Access, Caller};
use super::checkup::Checkup;
use super::events::{Events, Topic};
use super::problem::{Problem, ProblemKind};
use super::recent::Recent;
use super::stats_cache::StatsCache;
use crate::net::audit_log::{AuditLog, Change, Source};
use crate::net::room::Room;
use lapsed::client::TaskClient;
use lapsed::config::HttpConfig;
use lapsed::diagnosis::Thresholds;
use lapsed::engine::Handle;
use lapsed::ledger::DetailedStats;
use lapsed::task::{Pause, Paused, TaskKey};
use lapsed_core::telemetry::Metrics;

/// What a task key may have in a path as it is.
const IN_PATH: &AsciiSet = &NON_ALPHANUMERIC
    .remove(b'@')
    .remove(b'-')
    .remove(b'_')
    .remove(b'.')
    .remove(b'~')
    .remove(b':');

/// How long pauses are shared by requests.
const SHARED_FOR: Duration = Duration::from_secs(1);

/// Changes of many tasks that go on at the same time.
const BULK_MAX: usize = 4;

/// Bytes of all bodies that arrive or are used at the same time.
const ROOM_BYTES: usize = 32 << 20;

/// What every request handler works with. Cheap to clone.
#[derive(Clone)]
pub struct AppState {
    /// Creates, moves, cancels and finds tasks.
    pub tasks: TaskClient,
    /// The engine of this daemon.
    pub engine: Handle,
    /// Metrics of the engine.
    pub metrics: Arc<Metrics>,
    /// Who changed what.
    pub audit_log: AuditLog,
    /// Who may do what.
    pub access: Arc<Access>,
    /// What pages show about all tasks.
    pub stats_cache: Arc<StatsCache>,
    /// What `lapsed doctor` finds; `None` for a program without checks.
    pub checkup: Option<Arc<Checkup>>,
    /// From when on something counts as wrong.
    pub thresholds: Arc<Thresholds>,
    /// `[http]`
    pub config: Arc<HttpConfig>,
    /// Hints for open pages.
    pub events: Arc<Events>,
    /// Cancelled when the server stops: streams and long polls end.
    pub stopping: CancellationToken,
    /// Changes of many tasks that go on, also after their client has left.
    pub work: TaskTracker,
    /// The memory that bodies of requests may take together.
    pub room: Arc<Room>,
    recent: Arc<RecentAnswers>,
    bulk: Arc<Semaphore>,
}

/// Answers of the ledger that requests share.
struct RecentAnswers {
    pauses: Recent<Arc<Vec<Pause>>>,
}

impl AppState {
    /// Serves this engine's tasks as `config` says.
    pub fn new(
        config: &HttpConfig,
        tasks: TaskClient,
        engine: Handle,
        metrics: Arc<Metrics>,
    ) -> Self {
        let config = Arc::new(config.clone());
        Self {
            audit_log: AuditLog::new("http", tasks.ledger(), config.audit_kept),
            access: Arc::new(Access::new(
                Arc::clone(&config),
                tasks.ledger(),
                Arc::clone(&metrics),
            )),
            tasks,
            engine,
            metrics,
            stats_cache: Arc::default(),
            config,
            checkup: None,
            thresholds: Arc::default(),
            events: Arc::default(),
            stopping: CancellationToken::new(),
            work: TaskTracker::new(),
            recent: Arc::new(RecentAnswers {
                pauses: Recent::new(SHARED_FOR),
            }),
            room: Room::new(ROOM_BYTES),
            bulk: Arc::new(Semaphore::new(BULK_MAX)),
        }
    }

    /// Shows what these checks find.
    #[must_use]
    pub fn with_checkup(self, checkup: Arc<Checkup>) -> Self {
        Self {
            checkup: Some(checkup),
            ..self
        }
    }

    /// Judges the installation by these thresholds, instead of the defaults.
    #[must_use]
    pub fn with_thresholds(self, thresholds: Thresholds) -> Self {
        Self {
            thresholds: Arc::new(thresholds),
            ..self
        }
    }

    /// Adds a change of many tasks, or of a pause, to the audit log. Call it after the change is committed.
    pub async fn audit(&self, caller: &Caller, change: Change) {
        self.audit_log.add(source(caller), change).await;
        self.events.touch(Topic::Audit);
    }

    /// Adds a change of one task to the audit log. Call it after the change is committed.
    pub fn audit_task(&self, caller: &Caller, verb: &'static str, key: &TaskKey) {
        let changes = std::iter::once((verb, key));
        self.audit_log.add_tasks(source(caller), changes);
        self.events.touch(Topic::Audit);
    }

    /// Pauses and holds, at most a second old.
    ///
    /// # Errors
    /// The ledger fails.
    pub async fn pauses(&self) -> Result<Arc<Vec<Pause>>, Problem> {
        let ask = async { Ok(Arc::new(self.tasks.pauses().await?)) };
        self.recent.pauses.get(ask).await
    }

    /// What is paused, at most a second old.
    ///
    /// # Errors
    /// The ledger fails.
    pub async fn paused(&self) -> Result<Paused, Problem> {
        Ok(Paused::of(&self.pauses().await?))
    }

    /// Has the next request read the pauses again, after a change.
    pub async fn forget_pauses(&self) {
        self.recent.pauses.forget().await;
    }

    /// Counts of tasks, at most two seconds old. Each count is bounded: `at_least` names those that are not complete.
    ///
    /// # Errors
    /// The ledger fails.
    pub async fn stats(&self) -> Result<Arc<DetailedStats>, Problem> {
        let count = self.stats_cache.count(&self.tasks).await?;
        Ok(Arc::clone(&count.stats))
    }

    /// Room for a change of many tasks.
    ///
    /// # Errors
    /// Too many go on.
    pub fn bulk_room(&self) -> Result<OwnedSemaphorePermit, Problem> {
        Arc::clone(&self.bulk).try_acquire_owned().map_err(|_| {
            Problem::of(
                ProblemKind::TooMany,
                format!("{BULK_MAX} changes of many tasks go on in this daemon"),
            )
        })
    }

    /// The URL of a task, for the header `Location`.
    pub fn url_of(&self, key: &TaskKey) -> HeaderValue {
        let key = utf8_percent_encode(key.as_str(), IN_PATH);
        let url = format!("{}/v1/tasks/{key}", self.config.base_path);
        HeaderValue::try_from(url).expect("a base path and an encoded key are ASCII")
    }
}

fn source(caller: &Caller) -> Source<'_> {
    Source {
        caller: &caller.name,
        address: caller.address(),
    }
}

//! A ledger in an SQLite file, and handlers that leave traces in it.

use std::time::Duration;

use lapsed::ledger::sqlite::SqliteLedger;
use lapsed::ledger::{Admin as _, Ledger as _, TaskRecord};
use lapsed::rusqlite::types::FromSql;
use lapsed::rusqlite::{Connection, params};
use lapsed::{Config, HandlerError, Handlers, SqliteTask as _, TaskContext};
use tempfile::{NamedTempFile, TempDir};

use crate::support::process::Process;
use crate::support::rig::Run;
use crate::support::setup::overlay;
use crate::support::tasks::key;

/// What handlers leave behind.
const TRACES: &str = "CREATE TABLE runs (id INTEGER PRIMARY KEY, name TEXT, task TEXT, attempt INTEGER, \
     due_ms INTEGER, at_ms INTEGER) STRICT; \
     CREATE TABLE effects (id INTEGER PRIMARY KEY, name TEXT, task TEXT) STRICT";

/// The ignored test that is a daemon with the handlers of this file.
const WORKER: &str = "end_to_end::worker::serve_a_file";

/// How long a statement waits for the daemon.
const BUSY_TIMEOUT: Duration = Duration::from_secs(30);

/// A file and what is in it. One daemon at a time.
pub struct FileScene {
    directory: TempDir,
    settings: toml::Table,
}

impl FileScene {
    /// With these settings over those of the suite: no HTTP, retries after 200 ms.
    pub async fn new(settings: &str) -> Self {
        // What daemons in this process say is shown if the test fails.
        let log = tracing_subscriber::fmt().with_ansi(false);
        let _ = log.with_test_writer().try_init();
        let directory = tempfile::tempdir().unwrap();
        let file = directory.path().join("lapsed.db");
        let base = format!(
            "http.listen = ''\nretry = {{ ladder = ['200ms'], jitter = 0.0 }}\nledger.url = 'sqlite://{}'",
            file.display()
        );
        let mut table: toml::Table = base.parse().unwrap();
        overlay(&mut table, settings.parse().unwrap());
        let scene = Self {
            directory,
            settings: table,
        };
        let ledger = SqliteLedger::new(&scene.config().ledger).unwrap();
        ledger.migrate(false).await.unwrap();
        scene.connection().execute_batch(TRACES).unwrap();
        scene
    }

    pub fn config(&self) -> Config {
        Config::from_toml(&self.config_text()).unwrap()
    }

    fn config_text(&self) -> String {
        toml::to_string(&self.settings).unwrap()
    }

    pub fn worker(&self) -> Process {
        let file = NamedTempFile::new().unwrap();
        std::fs::write(file.path(), self.config_text()).unwrap();
        Process::program(WORKER, file, &[])
    }

    pub fn connection(&self) -> Connection {
        let connection = Connection::open(self.directory.path().join("lapsed.db")).unwrap();
        connection.busy_timeout(BUSY_TIMEOUT).unwrap();
        connection
    }

    /// The values of the first column.
    pub fn column<T: FromSql>(&self, query: &str) -> Vec<T> {
        let connection = self.connection();
        let mut statement = connection.prepare(query).unwrap();
        let rows = statement.query_map([], |row| row.get(0)).unwrap();
        rows.map(Result::unwrap).collect()
    }

    pub fn runs(&self) -> Vec<Run> {
        let connection = self.connection();
        let query = "SELECT name, task, attempt, due_ms, at_ms FROM runs ORDER BY id";
        let mut statement = connection.prepare(query).unwrap();
        let rows = statement.query_map([], |row| {
            Ok(Run {
                name: row.get(0)?,
                task: row.get(1)?,
                attempt: row.get(2)?,
                due_ms: row.get(3)?,
                at_ms: row.get(4)?,
            })
        });
        rows.unwrap().map(Result::unwrap).collect()
    }

    pub async fn record(&self, name: &str) -> TaskRecord {
        let ledger = SqliteLedger::new(&self.config().ledger).unwrap();
        let found = ledger.find(&key(name)).await.unwrap();
        ledger.close().await;
        found.unwrap_or_else(|| panic!("`{name}` has no row"))
    }
}

/// As the handlers of a [`Rig`](crate::support::rig::Rig).
pub fn handlers() -> Handlers {
    let mut handlers = Handlers::new();
    handlers.on(
        ("Job", "record"),
        |task: TaskContext, _: Vec<String>| async move { write_down(&task).await },
    );
    handlers.on(
        ("Job", "effect"),
        |task: TaskContext, _: Vec<String>| async move {
            let tx = task.begin().await?;
            tx.execute(
                "INSERT INTO effects (name, task) VALUES (?1, ?2)",
                params![task.key().as_str(), task.id()],
            )?;
            task.complete_in(tx).await
        },
    );
    handlers
}

/// Leaves a trace with the ledger's time.
async fn write_down(task: &TaskContext) -> Result<(), HandlerError> {
    let tx = task.begin().await?;
    tx.execute(
        "INSERT INTO runs (name, task, attempt, due_ms, at_ms) VALUES (?1, ?2, ?3, ?4, ?5)",
        params![
            task.key().as_str(),
            task.id(),
            task.attempt(),
            task.due().0,
            lapsed::clock::wall().0,
        ],
    )?;
    tx.commit().await?;
    Ok(())
}

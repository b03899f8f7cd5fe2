//! The ledger in an SQLite file, as one daemon and other programs use it.

mod applications;
mod backlogs;
mod backups;
mod budgets;
mod daemons;
mod faults;
mod foreign_rows;
mod formats;
mod joining;
mod killed;
mod unsignalled_changes;

use std::path::PathBuf;
use std::sync::Arc;

use lapsed::Config;
use lapsed::config::LedgerConfig;
use lapsed::ledger::sqlite::SqliteLedger;
use lapsed::rusqlite::Connection;
use tempfile::TempDir;

/// A directory with a ledger in it.
struct Place {
    directory: TempDir,
}

impl Place {
    fn new() -> Self {
        Self {
            directory: tempfile::tempdir().unwrap(),
        }
    }

    /// With a file that has been migrated.
    async fn migrated() -> (Self, Arc<SqliteLedger>) {
        let place = Self::new();
        let ledger = place.ledger();
        ledger.migrate(false).await.unwrap();
        (place, ledger)
    }

    fn path(&self, name: &str) -> PathBuf {
        self.directory.path().join(name)
    }

    fn file(&self) -> PathBuf {
        self.path("lapsed.db")
    }

    fn config(&self) -> LedgerConfig {
        LedgerConfig {
            url: format!("sqlite://{}", self.file().display()).into(),
            ..Config::default().ledger
        }
    }

    /// A ledger with connections of its own, as another process has.
    fn ledger(&self) -> Arc<SqliteLedger> {
        Arc::new(SqliteLedger::new(&self.config()).unwrap())
    }

    /// A connection of an application.
    fn application(&self) -> Connection {
        Connection::open(self.file()).unwrap()
    }
}

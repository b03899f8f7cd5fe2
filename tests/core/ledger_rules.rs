//! The rules for every ledger, on the ledger in memory and on one in an SQLite file.

use lapsed::Config;
use lapsed::ledger::Ledger as _;
use lapsed::ledger::sqlite::SqliteLedger;

/// Each rule becomes a test of the ledger in memory, and one of the ledger in SQLite.
macro_rules! rules {
    ($($rule:ident)+) => {
        mod in_memory {
            $(#[tokio::test(start_paused = true)]
            async fn $rule() {
                super::$rule(&lapsed::ledger::memory::MemoryLedger::default()).await;
            })+
        }

        mod in_sqlite {
            $(#[tokio::test]
            async fn $rule() {
                let file = crate::ledger_rules::SqliteFile::create().await;
                super::$rule(&file.ledger).await;
            })+
        }
    };
}

/// A ledger in a file of its own.
pub struct SqliteFile {
    pub ledger: SqliteLedger,
    /// Deletes the file.
    _directory: tempfile::TempDir,
}

impl SqliteFile {
    pub async fn create() -> Self {
        let directory = tempfile::tempdir().unwrap();
        let file = directory.path().join("ledger.db");
        let mut config = Config::default().ledger;
        config.url = format!("sqlite://{}", file.display()).into();
        let ledger = SqliteLedger::new(&config).unwrap();
        ledger.migrate(false).await.unwrap();
        ledger.check().await.unwrap();
        Self {
            ledger,
            _directory: directory,
        }
    }
}

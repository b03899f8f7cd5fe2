//! `lapsed backup`: copies a ledger in an SQLite file, while it is used.

use std::path::PathBuf;
use std::process::ExitCode;

use clap::Args;
use lapsed::Config;
use lapsed::ledger::Ledger as _;
use lapsed::ledger::sqlite::SqliteLedger;
use serde_json::json;

use super::output::Output;
use super::usage;

#[derive(Args)]
pub struct Backup {
    /// The file to write, which must not exist
    file: PathBuf,
}

impl Backup {
    pub async fn run(self, config: &Config, output: Output) -> anyhow::Result<ExitCode> {
        if config.ledger.sqlite_file().is_none() {
            return usage(
                "the ledger is on a server: use its own tools, such as `mariadb-dump --single-transaction`",
            );
        }
        let ledger = SqliteLedger::new(&config.ledger)?;
        let backup = ledger.back_up(self.file.clone()).await?;
        ledger.close().await;
        let value = json!({ "file": self.file, "rows": backup.rows, "bytes": backup.bytes });
        let text = format!(
            "`{}` has {} rows in {} bytes",
            self.file.display(),
            backup.rows,
            backup.bytes
        );
        output.print(&value, text)?;
        Ok(ExitCode::SUCCESS)
    }
}

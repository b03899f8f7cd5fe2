//! `lapsed migrate`: creates or adopts the ledger table.

use std::process::ExitCode;

use anyhow::Context;
use clap::Args;
use lapsed::Config;
use lapsed::ledger::migrate::{self, Method, Options, Progress, Step};
use lapsed::ledger::mysql::MysqlLedger;
use lapsed::ledger::{Ledger as _, sqlite::SqliteLedger};
use serde_json::{Value, json};

use super::log::stderr_line;
use super::output::Output;
use super::usage;
use lapsed::task::TableName;

#[derive(Args)]
pub struct Migrate {
    /// Print the planned steps without running them
    #[arg(long)]
    dry_run: bool,
    /// Convert the key column to utf8mb4, so that keys can contain any character
    #[arg(long)]
    utf8mb4: bool,
    /// Do nothing unless the ledger is in an SQLite file, e.g. before each start of the daemon
    #[arg(long)]
    sqlite_only: bool,
}

impl Migrate {
    pub async fn run(self, config: &Config, output: Output) -> anyhow::Result<ExitCode> {
        if config.ledger.sqlite_file().is_some() {
            return self.run_on_file(config, output).await;
        }
        if self.sqlite_only {
            return Ok(ExitCode::SUCCESS);
        }
        let ledger = MysqlLedger::new(&config.ledger)?;
        let table = ledger.table();
        let mut connection = ledger.connection().await.context("connect to the ledger")?;
        let options = Options::default()
            .utf8mb4(self.utf8mb4)
            .archive(config.retention.archive);
        if self.dry_run {
            let plan = migrate::plan_with(&mut connection, table, &options)
                .await
                .context("plan migration")?;
            let steps: Vec<Value> = plan
                .steps
                .iter()
                .map(|step| step_json(step, step.method(), table, false))
                .collect();
            let value = json!({
                "table": table.as_str(), "dry_run": true, "rows_estimate": plan.rows_estimate, "steps": steps,
            });
            output.print(&value, plan.to_string().trim_end())?;
            return Ok(ExitCode::SUCCESS);
        }
        let mut steps = Vec::new();
        let mut report = |progress: Progress<'_>| match progress {
            Progress::Started(step) => stderr_line!("{step} ..."),
            Progress::Done { step, method } => {
                steps.push(step_json(step, method, table, true));
                stderr_line!("  done ({method})");
            }
            Progress::StartedOver(step) => {
                stderr_line!("{step}: rows changed meanwhile, starting over")
            }
            Progress::Skipped(step) => stderr_line!(
                "  skipped: this user may not create it and cannot see whether it exists; if it does not, migrate as a user with {}",
                step.privileges()
            ),
            _ => {}
        };
        migrate::apply(&mut connection, table, &options, &mut report)
            .await
            .context("migrate")?;
        let text = match steps.is_empty() {
            true => format!("table `{table}` is up to date"),
            false => format!("table `{table}` is ready"),
        };
        let value = json!({ "table": table.as_str(), "dry_run": false, "steps": steps });
        output.print(&value, text)?;
        Ok(ExitCode::SUCCESS)
    }
}

impl Migrate {
    /// Creates the file of a ledger in SQLite, and its tables.
    async fn run_on_file(self, config: &Config, output: Output) -> anyhow::Result<ExitCode> {
        if self.utf8mb4 {
            return usage("`--utf8mb4` is for MySQL: a ledger in SQLite takes any character");
        }
        let ledger = SqliteLedger::new(&config.ledger)?;
        let migrated = ledger.migrate(self.dry_run).await.context("migrate")?;
        ledger.close().await;
        let (table, statements) = (&config.ledger.table, migrated.statements);
        let text = match (statements.is_empty(), self.dry_run) {
            (true, _) => format!("table `{table}` is up to date"),
            (false, true) => statements.join(";\n") + ";",
            (false, false) => format!("table `{table}` is ready"),
        };
        let steps: Vec<Value> = statements
            .iter()
            .map(|statement| json!({ "sql": statement, "done": !self.dry_run }))
            .collect();
        let value = json!({ "table": table, "dry_run": self.dry_run, "steps": steps });
        output.print(&value, text)?;
        Ok(ExitCode::SUCCESS)
    }
}

/// Creates or upgrades the ledger if it is in an SQLite file, as `lapsed migrate --sqlite-only` does, without a word.
pub async fn create_file(config: &Config) -> anyhow::Result<()> {
    if config.ledger.sqlite_file().is_some() {
        let ledger = SqliteLedger::new(&config.ledger)?;
        ledger.migrate(false).await.context("create the ledger")?;
        ledger.close().await;
    }
    Ok(())
}

/// A step as JSON.
fn step_json(step: &Step, method: Method, table: &TableName, done: bool) -> Value {
    json!({
        "step": step.to_string(), "sql": step.statement(table), "algorithm": method.algorithm(),
        "lock": method.lock(), "done": done,
    })
}

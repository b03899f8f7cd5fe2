//! `lapsed migrate`

use std::process::ExitCode;

use anyhow::Context;
use clap::Args;
use lapsed::Config;
use lapsed::ledger::migrate::{self, Options, Progress};
use lapsed::ledger::mysql::MysqlLedger;

use super::output::say;

#[derive(Args)]
pub struct Migrate {
    /// Print what would be done, and do nothing
    #[arg(long)]
    dry_run: bool,
}

impl Migrate {
    pub async fn run(self, config: &Config) -> anyhow::Result<ExitCode> {
        let ledger = MysqlLedger::new(&config.ledger)?;
        let mut connection = ledger.connection().await.context("connect to the ledger")?;
        if self.dry_run {
            let plan = migrate::plan(&mut connection, ledger.table())
                .await
                .context("plan migration")?;
            say(plan.to_string().trim_end())?;
            return Ok(ExitCode::SUCCESS);
        }
        let mut done = 0;
        let mut tell = |progress: Progress<'_>| match progress {
            Progress::Begun(step) => eprintln!("{step} ..."),
            Progress::Done { step: _, method } => {
                done += 1;
                eprintln!("  done ({method})");
            }
            Progress::StartedOver(step) => {
                eprintln!("{step}: rows changed meanwhile, starting over")
            }
            _ => {}
        };
        let table = ledger.table();
        migrate::apply(&mut connection, table, &Options::default(), &mut tell)
            .await
            .context("migrate")?;
        match done {
            0 => say(&format!("table `{table}` is up to date"))?,
            _ => say(&format!("table `{table}` is ready"))?,
        }
        Ok(ExitCode::SUCCESS)
    }
}

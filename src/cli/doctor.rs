//! `lapsed doctor`: diagnoses the installation.

use std::process::ExitCode;

use clap::Args;
use lapsed::Config;
use lapsed::config::ConfigSource;
use lapsed_doctor::{self as doctor, Severity};

use super::EXIT_SICK;
use super::output::Output;

#[derive(Args)]
pub struct Doctor {
    /// Fix what can be fixed without risk
    #[arg(long)]
    fix: bool,
}

impl Doctor {
    pub async fn run(
        self,
        config: &Config,
        source: &ConfigSource,
        output: Output,
    ) -> anyhow::Result<ExitCode> {
        let mut report = if self.fix {
            doctor::fix(config).await
        } else {
            doctor::examine(config).await
        };
        report.findings.insert(0, doctor::configuration(source));
        report
            .findings
            .extend(doctor::examine_secrets(config, source.file()));
        output.print(&report, report.to_string().trim_end())?;
        Ok(match report.worst() {
            Severity::Error => ExitCode::from(EXIT_SICK),
            Severity::Ok | Severity::Note | Severity::Warning => ExitCode::SUCCESS,
        })
    }
}

//! `lapsed sweep`: one sweep and one audit, without running anything.

use std::process::ExitCode;

use lapsed::{Config, Engine, Handlers};
use serde_json::json;

use super::EXIT_FAILED;
use super::log::stderr_line;
use super::output::Output;

pub async fn run(config: Config, output: Output) -> anyhow::Result<ExitCode> {
    let (sweep, audit) = Engine::new(config, Handlers::new())?.reconcile().await?;
    let value = json!({ "sweep": sweep, "audit": audit });
    output.print(
        &value,
        format!(
            "{} overdue, {} pending ahead, {} keys armed again, {} deleted rows revived, {} keys adopted",
            sweep.overdue, audit.pending, audit.rearmed, audit.revived, audit.adopted
        ),
    )?;
    if audit.complete {
        return Ok(ExitCode::SUCCESS);
    }
    stderr_line!("error: the audit did not finish: some keys were not checked");
    Ok(EXIT_FAILED.into())
}

//! `lapsed healthcheck`: asks the daemon whether it is healthy, for containers without a shell.

use std::process::ExitCode;

use anyhow::{Context as _, bail};
use clap::Args;
use lapsed::Config;

use super::output::Output;
use super::usage;

#[derive(Args)]
pub struct Healthcheck {
    /// Ask whether tasks start, as /readyz says, and not only whether the daemon answers
    #[arg(long)]
    ready: bool,
}

impl Healthcheck {
    pub async fn run(self, config: &Config, output: Output) -> anyhow::Result<ExitCode> {
        let Some(address) = config.http.listen else {
            return usage("`lapsed healthcheck` asks over HTTP: set `http.listen`");
        };
        let path = if self.ready { "/readyz" } else { "/healthz" };
        let asked = lapsed_doctor::probe(address, path).await;
        let (status, body) =
            asked.with_context(|| format!("ask the daemon at `{address}` (`http.listen`)"))?;
        if status != 200 {
            bail!("the daemon at `{address}` is not healthy: {path} answers {status}: {body}");
        }
        let value = serde_json::json!({ "healthy": true, "address": address.to_string() });
        output.print(&value, format!("the daemon at {address} is healthy"))?;
        Ok(ExitCode::SUCCESS)
    }
}

//! `lapsed schedule`: creates one task from options. `bulk` creates many from a file.

use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::time::Duration;

use anyhow::{Context, bail};
use clap::{ArgGroup, Args};
use lapsed::client::{CreateResult, NotArmed};
use lapsed::compose::Adapters;
use lapsed::config::Secret;
use lapsed::task::{SECRET_BYTES_MIN, TaskKey, UnixMs};
use lapsed::{Config, Receipt};
use lapsed_core::format::duration;
use serde_json::json;

use super::log::stderr_line;
use super::output::Output;
use super::pauses::stays_pending_now;
use super::task_args::TaskArgs;
use super::{bulk, chain, times, usage};

#[derive(Args)]
#[command(group = ArgGroup::new("what").required(true).args(["key", "class", "file"]))]
pub struct Schedule {
    #[command(flatten)]
    task: TaskArgs,
    /// Sign the task with the secret on the first line of this file
    #[arg(long, value_name = "FILE")]
    sign_with: Option<PathBuf>,
    /// Create many tasks, one JSON object per line, with the members of `POST /v1/tasks`: {"key": .., "in"|"at": .., "payload",
    /// "tag", "unique", "every"|"cron", "tz", ..}; - reads stdin
    #[arg(long, value_name = "FILE", conflicts_with_all = ["in", "at"])]
    file: Option<PathBuf>,
}

impl Schedule {
    pub async fn run(self, config: &Config, output: Output) -> anyhow::Result<ExitCode> {
        let secret = match self.sign_with.as_deref().map(read_secret).transpose() {
            Ok(secret) => secret,
            Err(error) => return usage(&chain(&error)),
        };
        if let Some(file) = &self.file {
            return bulk::schedule(file, secret, config, output).await;
        }
        let due = self.task.due();
        let spec = match self.task.spec() {
            Ok(spec) => spec,
            Err(error) => return usage(&chain(&error)),
        };
        // Invalid options are reported before connecting.
        if let Err(error) = spec.clone().resolve_at(due, UnixMs(1)) {
            return usage(&error.to_string());
        }
        let adapters = Adapters::new(config)?;
        adapters.ledger.check().await?;
        let tasks = adapters.client();
        let now = tasks.now().await?;
        let request = spec.resolve_at(due, now)?;
        let request = match secret {
            Some(secret) => request.sign(secret),
            None => request,
        };
        let key = request.key().clone();
        let made = request.create(&tasks).await?;
        print_receipt(&adapters, &key, &made, output).await?;
        let late = now.since(made.due());
        if due.is_some() && late >= LONG_AGO {
            stderr_line!("note: due now: the time has passed {} ago", duration(late));
        }
        if !config.routes.is_empty() && !config.routes.iter().any(|route| route.fits(&key)) {
            stderr_line!(
                "note: no route of this configuration matches `{key}`: only a program with a handler for it runs it"
            );
        }
        Ok(ExitCode::SUCCESS)
    }
}

/// A task that is due for longer was given a time in the past, maybe by mistake.
const LONG_AGO: Duration = Duration::from_secs(60);

/// Prints the result of creating a task.
async fn print_receipt(
    adapters: &Adapters,
    key: &TaskKey,
    made: &Receipt,
    output: Output,
) -> anyhow::Result<()> {
    let (id, state) = (made.id(), made.state());
    let (kept_back, but) = stays_pending_now(adapters, key, made.due()).await;
    let kept = made.result() == CreateResult::Kept;
    let value = json!({
        "id": id, "key": key.as_str(), "due": made.due().to_string(), "state": state, "kept": kept,
        "armed": made.armed, "not_armed": made.not_armed(), "older_run": made.older_run(),
        "kept_back": kept_back,
    });
    let was_there = if kept { ", unchanged" } else { "" };
    output.print(
        &value,
        format!(
            "{key} is {state}, due {} (id {id}){was_there}{but}",
            times::shown(made.due())
        ),
    )?;
    if made.not_armed() == Some(NotArmed::Unreachable) {
        stderr_line!(
            "warning: the task is in the ledger, but Redis did not accept its key; the daemon finds it in the ledger"
        );
    }
    Ok(())
}

fn read_secret(file: &Path) -> anyhow::Result<Secret> {
    let lines =
        Secret::lines_of(file).with_context(|| format!("read secret `{}`", file.display()))?;
    let first = lines.into_iter().next();
    let secret = first.with_context(|| {
        format!(
            "`{}` is empty, expected a secret in its first line",
            file.display()
        )
    })?;
    if secret.len() < SECRET_BYTES_MIN {
        bail!(
            "the secret in `{}` has {} bytes, expected at least {SECRET_BYTES_MIN}",
            file.display(),
            secret.len()
        );
    }
    Ok(Secret::from(secret))
}

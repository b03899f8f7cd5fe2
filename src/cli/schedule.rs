//! `lapsed schedule`: creates one task from options. `bulk` creates many from a file.

use std::io::Read;
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::time::Duration;

use anyhow::{Context, bail};
use clap::{ArgGroup, Args};
use lapsed::client::{CreateResult, NotArmed};
use lapsed::compose::Adapters;
use lapsed::config::Secret;

use lapsed::format::duration;
use lapsed::task::{Due, PAYLOAD_BYTES_MAX, SECRET_BYTES_MIN, TaskKey, Traceparent, UnixMs};
use lapsed::{Config, IfPending, Receipt, Task};
use serde_json::json;

use super::log::stderr_line;
use super::output::Output;
use super::pauses::stays_pending_now;
use super::recurrence_options::RecurrenceOptions;
use super::task_options::TaskOptions;
use super::{bulk, chain, usage};

#[derive(Args)]
#[command(group = ArgGroup::new("what").required(true).args(["key", "class", "file"]))]
pub struct Schedule {
    /// Task key: Class@method[@argument]*
    key: Option<TaskKey>,
    /// Class, instead of a whole key
    #[arg(long, requires = "method", conflicts_with = "key")]
    class: Option<String>,
    /// Method, with --class
    #[arg(long, requires = "class")]
    method: Option<String>,
    /// Argument, with --class; repeat the option for each one
    #[arg(long = "arg", requires = "class", allow_hyphen_values = true)]
    args: Vec<String>,
    #[command(flatten)]
    when: When,
    #[command(flatten)]
    recurrence: RecurrenceOptions,
    /// JSON payload, @FILE to read it from a file, or - to read it from stdin
    #[arg(long, conflicts_with = "file")]
    payload: Option<String>,
    /// Tag for listing and cancelling tasks in bulk
    #[arg(long, conflicts_with = "file")]
    tag: Option<String>,
    /// Maximum number of runs, including the first
    #[arg(long, conflicts_with = "file", value_parser = clap::value_parser!(u16).range(1..))]
    max_attempts: Option<u16>,
    /// W3C trace context: 00-<32 hex digits>-<16>-<2>
    #[arg(long, conflicts_with = "file")]
    traceparent: Option<Traceparent>,
    /// Sign the task with the secret on the first line of this file
    #[arg(long, value_name = "FILE")]
    sign_with: Option<PathBuf>,
    /// If an unfinished task has this key: `move` it (default), `keep` it as it is, or `refuse` the new one
    #[arg(
        long,
        value_name = "POLICY",
        default_value = "move",
        conflicts_with = "file",
        hide_default_value = true
    )]
    if_pending: IfPending,
    /// Make the key unique by appending ~ and 26 characters
    #[arg(long, conflicts_with = "file")]
    unique_suffix: bool,
    /// Create many tasks, one JSON object per line: {"key": .., "in"|"at": .., "payload", "tag", "max_attempts", "if_pending",
    /// "unique", "traceparent", "every"|"cron", "tz", ..}; - reads stdin
    #[arg(long, value_name = "FILE", conflicts_with_all = ["in", "at"])]
    file: Option<PathBuf>,
}

#[derive(Args)]
pub struct When {
    /// Delay, e.g. 30m or 1500ms; of a recurring task, until the first run (with --cron: the first run is not earlier)
    #[arg(long, value_name = "DUR", value_parser = Due::parse_delay, allow_hyphen_values = true, conflicts_with = "at")]
    r#in: Option<Due>,
    /// Due time, e.g. 2026-11-21T20:00:00.250Z; of a recurring task, as --in
    #[arg(long, value_name = "RFC3339", value_parser = Due::parse_moment)]
    at: Option<Due>,
}

impl When {
    pub fn due(&self) -> Option<Due> {
        self.r#in.or(self.at)
    }
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
        let (due, options) = (self.when.due(), self.recurrence.clone());
        let task = match self.task(secret) {
            Ok(task) => task,
            Err(problem) => return usage(&problem),
        };
        // Invalid options are reported before connecting.
        if let Err(problem) = options.clone().resolve(due, UnixMs(1)) {
            return usage(&problem);
        }
        let key = task.key().clone();
        let adapters = Adapters::new(config)?;
        adapters.ledger.check().await?;
        let tasks = adapters.client();
        let now = tasks.now().await?;
        let recurrence = options.resolve(due, now);
        let made = match (recurrence.map_err(anyhow::Error::msg)?, due) {
            (Some(recurrence), _) => tasks.create_recurring(task, recurrence).await?,
            (None, due) => tasks.create(task, due.unwrap_or(Due::NOW)).await?,
        };
        tell(&adapters, &key, &made, output).await?;
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

    /// Builds the task from the options.
    fn task(self, secret: Option<Secret>) -> Result<Task, String> {
        if self.when.due().is_none() && !self.recurrence.is_recurring() {
            return Err("schedule needs `--in DUR` or `--at RFC3339`, or `--every DUR` or `--cron EXPR` for a recurring task".to_owned());
        }
        let key = match (self.key, &self.class, &self.method) {
            (Some(key), _, _) => key,
            (None, Some(class), Some(method)) => {
                TaskKey::build(class, method, &self.args).map_err(|error| error.to_string())?
            }
            _ => return Err("schedule needs a key".to_owned()),
        };
        let payload = self.payload.as_deref().map(read_payload).transpose();
        let options = TaskOptions {
            key,
            payload: payload.map_err(|error| chain(&error))?,
            tag: self.tag,
            max_attempts: self.max_attempts,
            if_pending: self.if_pending,
            unique: self.unique_suffix,
            traceparent: self.traceparent.map(|trace| trace.to_string()),
        };
        options.task(secret)
    }
}

/// A task that is due for longer was given a time in the past, maybe by mistake.
const LONG_AGO: Duration = Duration::from_secs(60);

/// Prints the result of creating a task.
async fn tell(
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
            made.due()
        ),
    )?;
    if made.not_armed() == Some(NotArmed::Unreachable) {
        stderr_line!(
            "warning: the task is in the ledger, but Redis did not accept its key; the daemon finds it in the ledger"
        );
    }
    Ok(())
}

fn read_payload(payload: &str) -> anyhow::Result<String> {
    match payload.strip_prefix('@') {
        Some(file) => {
            let open = std::fs::File::open(file);
            let open = open.with_context(|| format!("open payload `{file}`"))?;
            let bytes = open.metadata().map(|metadata| metadata.len()).ok();
            read_some(open, bytes).with_context(|| format!("read payload `{file}`"))
        }
        None if payload == "-" => {
            read_some(std::io::stdin(), None).context("read payload from stdin")
        }
        None => Ok(payload.to_owned()),
    }
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

/// Reads at most the maximum size of a payload.
fn read_some(from: impl Read, bytes: Option<u64>) -> anyhow::Result<String> {
    let limit = PAYLOAD_BYTES_MAX as u64;
    let mut text = String::new();
    from.take(limit + 1).read_to_string(&mut text)?;
    match bytes {
        _ if text.len() <= PAYLOAD_BYTES_MAX => Ok(text.trim_end().to_owned()),
        Some(bytes) => bail!("payload has {bytes} bytes, expected at most {limit}"),
        None => bail!("payload has more than {limit} bytes, expected at most {limit}"),
    }
}

//! The commands that make, move and end tasks.

use std::io::Read;
use std::path::{Path, PathBuf};
use std::process::ExitCode;

use anyhow::{Context, bail};
use clap::{ArgGroup, Args};
use lapsed::client::{NotArmed, Stands};
use lapsed::compose::Adapters;
use lapsed::config::Secret;
use lapsed::ledger::{Catalog, Ledger, NudgeAnswer, PAYLOAD_BYTES_MAX, Pauses, RescheduleAnswer};
use lapsed::task::{Due, Paused, SECRET_BYTES_MIN, ScheduleError, TaskKey, Traceparent, UnixMs};
use lapsed::{Config, IfPending, Task, TaskClient};
use serde::Serialize;
use serde_json::json;

use super::output::{Listed, Output, say, task_lines};
use super::pauses::kept_back;
use super::recur::Recur;
use super::{EXIT_FAILED, bulk, chain, pauses, recur};

#[derive(Args)]
#[command(group = ArgGroup::new("what").required(true).args(["key", "class", "file"]))]
pub struct Schedule {
    /// Class@method[@argument]*
    key: Option<TaskKey>,
    /// The class, instead of a whole key
    #[arg(long, requires = "method", conflicts_with = "key")]
    class: Option<String>,
    /// The method
    #[arg(long, requires = "class")]
    method: Option<String>,
    /// An argument; once for each
    #[arg(long = "arg", requires = "class", allow_hyphen_values = true)]
    args: Vec<String>,
    #[command(flatten)]
    when: When,
    #[command(flatten)]
    recur: Recur,
    /// JSON, or @FILE with JSON in it, or - for JSON on stdin
    #[arg(long, conflicts_with = "file")]
    payload: Option<String>,
    /// For looking up and cancelling many
    #[arg(long, conflicts_with = "file")]
    tag: Option<String>,
    /// Runs, not retries
    #[arg(long, conflicts_with = "file", value_parser = clap::value_parser!(u16).range(1..))]
    max_attempts: Option<u16>,
    /// The trace it belongs to: W3C, 00-<32 hex digits>-<16>-<2>
    #[arg(long, conflicts_with = "file")]
    traceparent: Option<Traceparent>,
    /// Sign it with the secret that is the first line of this file
    #[arg(long, value_name = "FILE")]
    sign_with: Option<PathBuf>,
    /// What becomes of a task of this key that has not finished: `move` it, `keep` it as it is, or `refuse` this one
    #[arg(
        long,
        value_name = "POLICY",
        default_value = "move",
        conflicts_with = "file",
        hide_default_value = true
    )]
    if_pending: IfPending,
    /// One of many with this key: it gets a suffix, ~ and 26 characters
    #[arg(long, conflicts_with = "file")]
    unique_suffix: bool,
    /// Many tasks, one JSON object to a line: {"key": .., "in"|"at": .., "payload", "tag", "max_attempts", "if_pending",
    /// "unique", "traceparent", "every"|"cron", "tz", ..}; - is stdin
    #[arg(long, value_name = "FILE", conflicts_with_all = ["in", "at"])]
    file: Option<PathBuf>,
}

#[derive(Args)]
pub struct When {
    /// After this delay, such as 30m or 1500ms; of what comes again, the first time (of a cron expression: not before)
    #[arg(long, value_name = "DUR", value_parser = Due::parse_delay, allow_hyphen_values = true, conflicts_with = "at")]
    r#in: Option<Due>,
    /// At this moment, such as 2026-11-21T20:00:00.250Z; of what comes again, as --in
    #[arg(long, value_name = "RFC3339", value_parser = Due::parse_moment)]
    at: Option<Due>,
}

impl When {
    fn due(&self) -> Option<Due> {
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
        let due = self.when.due();
        if due.is_none() && !self.recur.is_asked_for() {
            return usage(
                "schedule needs `--in DUR` or `--at RFC3339`, or `--every DUR` or `--cron EXPR` for a task that comes again",
            );
        }
        let key = match (&self.key, &self.class, &self.method) {
            (Some(key), _, _) => key.clone(),
            (None, Some(class), Some(method)) => match TaskKey::build(class, method, &self.args) {
                Ok(key) => key,
                Err(error) => return usage(&error.to_string()),
            },
            _ => return usage("schedule needs a key"),
        };
        let payload = match self.payload.as_deref().map(read_payload).transpose() {
            Ok(payload) => payload,
            Err(error) => return usage(&chain(&error)),
        };
        let mut task = Task::from(key).if_pending(self.if_pending);
        if self.unique_suffix {
            task = match task.unique() {
                Ok(task) => task,
                Err(error) => return usage(&error.to_string()),
            };
        }
        let key = task.key().clone();
        if let Some(payload) = payload {
            task = task.payload(payload);
        }
        if let Some(tag) = self.tag {
            task = task.tag(tag);
        }
        if let Some(runs) = self.max_attempts {
            task = task.max_attempts(runs);
        }
        if let Some(trace) = self.traceparent {
            task = task.traceparent(&trace.to_string())?;
        }
        if let Some(secret) = secret {
            task = task.sign(secret);
        }
        // What cannot be is said before anything is connected.
        if let Err(problem) = self.recur.clone().recurrence(due, UnixMs(1)) {
            return usage(&problem);
        }
        let adapters = Adapters::new(config)?;
        adapters.ledger.check().await?;
        let tasks = adapters.client();
        let recurrence = self.recur.recurrence(due, tasks.now().await?);
        let made = match (recurrence.map_err(anyhow::Error::msg)?, due) {
            (Some(recurrence), _) => tasks.create_recurring(task, recurrence).await?,
            (None, due) => tasks.create_task(task, due.unwrap_or(Due::NOW)).await?,
        };
        let (id, state) = (made.id(), made.state());
        let (kept_back, but) = stays_pending(&adapters, &key, made.due()).await;
        let kept = made.stands() == Stands::Kept;
        let value = json!({
            "id": id, "key": key.as_str(), "due": made.due().to_string(), "state": state, "kept": kept,
            "armed": made.armed, "not_armed": made.not_armed(), "older_run": made.older_run(),
            "kept_back": kept_back,
        });
        let was_there = if kept { ", as it was before" } else { "" };
        output.print(
            &value,
            format!(
                "{key} is {state}, due {} (id {id}){was_there}{but}",
                made.due()
            ),
        )?;
        if made.not_armed() == Some(NotArmed::Unreachable) {
            eprintln!(
                "warning: the task is in the ledger, but Redis did not take its key; the daemon finds it all the same"
            );
        }
        Ok(ExitCode::SUCCESS)
    }
}

pub fn usage(message: &str) -> anyhow::Result<ExitCode> {
    eprintln!("error: {message}");
    Ok(ExitCode::from(super::EXIT_USAGE))
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

/// No more than a payload may have, however much there is.
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

#[derive(Args)]
pub struct Reschedule {
    /// Class@method[@argument]*
    key: TaskKey,
    #[command(flatten)]
    when: When,
}

impl Reschedule {
    pub async fn run(self, config: &Config, output: Output) -> anyhow::Result<ExitCode> {
        let Some(due) = self.when.due() else {
            return usage("reschedule needs `--in DUR` or `--at RFC3339`");
        };
        let adapters = Adapters::new(config)?;
        adapters.ledger.check().await?;
        let tasks = adapters.client();
        let due = match due.resolve_checked(tasks.now().await?) {
            Ok(due) => due,
            Err(error) => return usage(&error.to_string()),
        };
        match adapters.ledger.reschedule(&self.key, due).await? {
            RescheduleAnswer::Moved(arming) => {
                let not_armed = tasks.arm_again(&self.key, arming).await;
                let (kept_back, but) = stays_pending(&adapters, &self.key, arming.due).await;
                let value = json!({
                    "key": self.key.as_str(), "id": arming.to_string(), "due": arming.due.to_string(),
                    "armed": not_armed.is_none(), "not_armed": not_armed, "kept_back": kept_back,
                });
                output.print(&value, format!("{} is due {}{but}", self.key, arming.due))?;
                Ok(ExitCode::SUCCESS)
            }
            RescheduleAnswer::Running => bail!("`{}` is being run and cannot be moved", self.key),
            RescheduleAnswer::Finished(state) => bail!(
                "`{}` is {state} and cannot be moved; schedule it anew",
                self.key
            ),
            RescheduleAnswer::Unknown => bail!("there is no task `{}`", self.key),
        }
    }
}

/// What `redrive` does, in words and as a field.
const REDRIVEN: &str = "redriven";

#[derive(Args)]
pub struct OneKey {
    /// Class@method[@argument]*
    key: TaskKey,
}

impl From<TaskKey> for OneKey {
    fn from(key: TaskKey) -> Self {
        Self { key }
    }
}

impl OneKey {
    pub async fn ttl(self, config: &Config, output: Output) -> anyhow::Result<ExitCode> {
        const NO_SUCH_TASK: i64 = -2;
        let left = TaskClient::connect(config).await?.pttl(&self.key).await?;
        let left = left.map_or(NO_SUCH_TASK, |ms| i64::try_from(ms).unwrap_or(i64::MAX));
        output.print(&json!({ "ttl_ms": left }), left)?;
        Ok(ExitCode::SUCCESS)
    }

    pub async fn show(self, config: &Config, output: Output) -> anyhow::Result<ExitCode> {
        let adapters = Adapters::new(config)?;
        match adapters.ledger.find(&self.key).await? {
            Some(task) => {
                let pauses = adapters.ledger.all().await?;
                let listed = Listed::new(&task, &Paused::of(&pauses));
                let mut text = task_lines(&task);
                if listed.is_kept_back()
                    && let (_, Some(why)) = kept_back(&pauses, &task.key, task.due)
                {
                    text += &format!("\n{:<13} {why}", "kept back");
                }
                output.print(&Shown::new(&listed), text)?;
                Ok(ExitCode::SUCCESS)
            }
            None => {
                if output.json {
                    say("null")?;
                }
                eprintln!("error: there is no task `{}`", self.key);
                Ok(ExitCode::from(EXIT_FAILED))
            }
        }
    }

    pub async fn run_now(self, config: &Config, output: Output) -> anyhow::Result<ExitCode> {
        let adapters = Adapters::new(config)?;
        let answer = adapters.ledger.run_now(&self.key).await?;
        self.tell_due(&adapters, answer, "run", output).await
    }

    pub async fn redrive(self, config: &Config, output: Output) -> anyhow::Result<ExitCode> {
        let adapters = Adapters::new(config)?;
        let answer = adapters.ledger.redrive(&self.key).await?;
        self.tell_due(&adapters, answer, REDRIVEN, output).await
    }

    async fn tell_due(
        &self,
        adapters: &Adapters,
        answer: NudgeAnswer,
        verb: &str,
        output: Output,
    ) -> anyhow::Result<ExitCode> {
        match answer {
            NudgeAnswer::Due(arming) => {
                adapters.client().arm_again(&self.key, arming).await;
                let (kept_back, but) = stays_pending(adapters, &self.key, arming.due).await;
                let mut value = json!({ "id": arming.to_string(), "key": self.key.as_str(), "kept_back": kept_back });
                if verb == REDRIVEN {
                    value[REDRIVEN] = json!(1);
                    value["dry_run"] = json!(false);
                }
                output.print(
                    &value,
                    format!("{} is due now (id {arming}){but}", self.key),
                )?;
                Ok(ExitCode::SUCCESS)
            }
            NudgeAnswer::Refused(state) => bail!("`{}` is {state} and cannot be {verb}", self.key),
            NudgeAnswer::Unknown => bail!("there is no task `{}`", self.key),
        }
    }
}

/// What will keep a task from starting, for programs and for people. Who only creates tasks need not be allowed to read what is
/// paused: then nothing is said.
async fn stays_pending(
    adapters: &Adapters,
    key: &TaskKey,
    due: UnixMs,
) -> (serde_json::Value, String) {
    let pauses = adapters.ledger.all().await.unwrap_or_default();
    let now = adapters.ledger.now().await.unwrap_or(due);
    pauses::stays_pending(&pauses, key, due, now)
}

/// A task as JSON, and if it comes again, when.
#[derive(Serialize)]
struct Shown<'a> {
    #[serde(flatten)]
    listed: &'a Listed<'a>,
    #[serde(skip_serializing_if = "Option::is_none")]
    occurrences: Option<Vec<String>>,
}

impl<'a> Shown<'a> {
    fn new(listed: &'a Listed<'a>) -> Self {
        let occurrences = listed.task.recurrence.is_some().then(|| {
            let occurrences = recur::occurrences(listed.task);
            occurrences.iter().map(ToString::to_string).collect()
        });
        Self {
            listed,
            occurrences,
        }
    }
}

/// The due time of a bulk line, if it has one.
pub fn due_of(delay: Option<&str>, moment: Option<&str>) -> Result<Option<Due>, String> {
    let due: Result<Due, ScheduleError> = match (delay, moment) {
        (Some(delay), None) => Due::parse_delay(delay),
        (None, Some(moment)) => Due::parse_moment(moment),
        (None, None) => return Ok(None),
        (Some(_), Some(_)) => return Err("has both `in` and `at`".to_owned()),
    };
    due.map(Some).map_err(|error| error.to_string())
}

//! `lapsed schedule --file`: a task to a line.

use std::path::Path;
use std::process::ExitCode;

use anyhow::Context;
use indicatif::{ProgressBar, ProgressStyle};
use lapsed::client::{NotArmed, Stands};
use lapsed::config::Secret;
use lapsed::task::{Due, TaskKey, UnixMs};
use lapsed::{Config, IfPending, Recurrence, Task, TaskClient};
use serde::Deserialize;
use serde_json::value::RawValue;
use serde_json::{Value, json};
use tokio::io::{AsyncBufRead, AsyncBufReadExt, BufReader};

use super::output::Output;
use super::recur::{CatchUpArg, OverlapArg, Recur};
use super::tasks::{due_of, usage};
use super::{EXIT_FAILED, chain};

/// Tasks of one statement.
const BATCH: usize = 500;

/// Longest line that is read: a payload, escaped, and some.
const LINE_BYTES_MAX: usize = 512 * 1024;

/// One line of the file.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Line {
    key: String,
    r#in: Option<String>,
    at: Option<String>,
    /// As it is written: a number may have more digits than any type here.
    payload: Option<Box<RawValue>>,
    tag: Option<String>,
    max_attempts: Option<u16>,
    traceparent: Option<String>,
    if_pending: Option<String>,
    #[serde(default)]
    unique: bool,
    every: Option<String>,
    cron: Option<String>,
    tz: Option<String>,
    until: Option<String>,
    times: Option<u32>,
    catch_up: Option<CatchUpArg>,
    catch_up_max: Option<u32>,
    overlap: Option<OverlapArg>,
}

#[derive(Default)]
struct Tally {
    scheduled: u64,
    kept: u64,
    refused: u64,
    unarmed: u64,
}

/// Tasks that wait for company on their way to the ledger.
struct Batch<'a> {
    tasks: &'a TaskClient,
    bar: &'a ProgressBar,
    waiting: Vec<(Task, Due)>,
    /// Which line each is from, and its key.
    places: Vec<(u64, TaskKey)>,
    tally: Tally,
}

impl Batch<'_> {
    /// Takes what line `number` asks for. Lines take effect in their order: the last one about a key is the one that stands.
    async fn take(&mut self, wanted: Wanted, number: u64) -> anyhow::Result<()> {
        match wanted {
            Wanted::Once(task, due) => {
                self.places.push((number, task.key().clone()));
                self.waiting.push((task, due));
                if self.waiting.len() == BATCH {
                    self.write(number).await?;
                }
            }
            Wanted::Series(task, recurrence) => {
                self.write(number).await?;
                let made = self.tasks.create_recurring(task, recurrence).await;
                let made = made.with_context(|| self.stopped(number))?;
                self.tally.scheduled += 1;
                self.tally.unarmed += u64::from(made.not_armed() == Some(NotArmed::Unreachable));
            }
        }
        Ok(())
    }

    /// Writes what waits.
    async fn write(&mut self, number: u64) -> anyhow::Result<()> {
        if self.waiting.is_empty() {
            return Ok(());
        }
        let made = self.tasks.create_many(std::mem::take(&mut self.waiting));
        let made = made.await.with_context(|| self.stopped(number))?;
        for (made, (number, key)) in made.iter().zip(self.places.drain(..)) {
            match made.stands() {
                Stands::Asked => self.tally.scheduled += 1,
                Stands::Kept => self.tally.kept += 1,
                Stands::Refused => {
                    self.tally.refused += 1;
                    let exists = made.exists(key);
                    self.bar.suspend(|| eprintln!("line {number}: {exists}"));
                }
            }
            self.tally.unarmed += u64::from(made.not_armed() == Some(NotArmed::Unreachable));
        }
        Ok(())
    }

    fn stopped(&self, number: u64) -> String {
        format!(
            "stopped at line {number}, {} tasks written; scheduling the file again changes nothing about those of them that have `at`",
            self.tally.scheduled
        )
    }
}

/// Schedules every line that can be; says which ones cannot, and why.
pub async fn schedule(
    file: &Path,
    secret: Option<Secret>,
    config: &Config,
    output: Output,
) -> anyhow::Result<ExitCode> {
    let (mut lines, bytes) = match open(file).await {
        Ok(open) => open,
        Err(error) => return usage(&chain(&error)),
    };
    let tasks = TaskClient::connect(config).await?;
    let bar = progress(bytes);
    let mut batch = Batch {
        tasks: &tasks,
        bar: &bar,
        waiting: Vec::with_capacity(BATCH),
        places: Vec::with_capacity(BATCH),
        tally: Tally::default(),
    };
    let (mut line, mut number) = (Vec::new(), 0u64);
    loop {
        line.clear();
        let read = lines
            .read_until(b'\n', &mut line)
            .await
            .with_context(|| format!("read `{}`", file.display()))?;
        number += u64::from(read > 0);
        bar.inc(read as u64);
        let text = line.trim_ascii();
        if !text.is_empty() {
            match parse(text, secret.as_ref(), &tasks, tasks.now().await?) {
                Ok(wanted) => batch.take(wanted, number).await?,
                Err(problem) => {
                    batch.tally.refused += 1;
                    bar.suspend(|| eprintln!("line {number}: {problem}"));
                }
            }
        }
        if read == 0 {
            break;
        }
    }
    batch.write(number).await?;
    bar.finish_and_clear();
    let Tally {
        scheduled,
        kept,
        refused,
        unarmed,
    } = batch.tally;
    let value =
        json!({ "scheduled": scheduled, "kept": kept, "refused": refused, "unarmed": unarmed });
    let were_there = match kept {
        0 => String::new(),
        kept => format!(", {kept} kept as they were"),
    };
    output.print(
        &value,
        format!("{scheduled} scheduled{were_there}, {refused} refused"),
    )?;
    if unarmed > 0 {
        eprintln!(
            "warning: Redis did not take the keys of {unarmed} tasks; the daemon finds them in the ledger all the same"
        );
    }
    Ok(if refused == 0 {
        ExitCode::SUCCESS
    } else {
        ExitCode::from(EXIT_FAILED)
    })
}

/// What a line asks for.
enum Wanted {
    Once(Task, Due),
    Series(Task, Recurrence),
}

fn parse(
    text: &[u8],
    secret: Option<&Secret>,
    tasks: &TaskClient,
    now: UnixMs,
) -> Result<Wanted, String> {
    if text.len() > LINE_BYTES_MAX {
        return Err(format!(
            "has {} bytes, expected at most {LINE_BYTES_MAX}",
            text.len()
        ));
    }
    let line: Line = serde_json::from_slice(text).map_err(|error| not_a_task(text, &error))?;
    let Line {
        key,
        r#in,
        at,
        payload,
        tag,
        max_attempts,
        traceparent,
        if_pending,
        unique,
        every,
        cron,
        tz,
        until,
        times,
        catch_up,
        catch_up_max,
        overlap,
    } = line;
    let key = TaskKey::parse(&key).map_err(|error| error.to_string())?;
    let due = due_of(r#in.as_deref(), at.as_deref())?;
    let mut task = Task::from(key);
    if let Some(payload) = payload {
        task = task.payload(payload.get());
    }
    if let Some(tag) = tag {
        task = task.tag(tag);
    }
    if let Some(runs) = max_attempts {
        task = task.max_attempts(runs);
    }
    if let Some(policy) = if_pending {
        let policy: IfPending = policy
            .parse()
            .map_err(|error| format!("`if_pending`: {error}"))?;
        task = task.if_pending(policy);
    }
    if unique {
        task = task.unique().map_err(|error| error.to_string())?;
    }
    if let Some(trace) = traceparent {
        task = task
            .traceparent(&trace)
            .map_err(|error| error.to_string())?;
    }
    if let Some(secret) = secret {
        task = task.sign(secret);
    }
    let recur = Recur {
        every,
        cron,
        tz,
        until,
        times,
        catch_up,
        catch_up_max,
        overlap,
    };
    if let Some(recurrence) = recur.recurrence(due, now)? {
        tasks
            .check_recurring(&task, &recurrence)
            .map_err(|error| error.to_string())?;
        return Ok(Wanted::Series(task, recurrence));
    }
    let due = due.ok_or("has neither `in` nor `at`, nor `every` or `cron`")?;
    tasks.check(&task, due).map_err(|error| error.to_string())?;
    Ok(Wanted::Once(task, due))
}

/// Why a line is none, by the name of the field if it is one that does not fit.
fn not_a_task(text: &[u8], error: &serde_json::Error) -> String {
    const TEXTS: [&str; 10] = [
        "key",
        "in",
        "at",
        "tag",
        "traceparent",
        "if_pending",
        "every",
        "cron",
        "tz",
        "until",
    ];
    const NUMBERS: [(&str, u64); 3] = [
        ("max_attempts", u16::MAX as u64),
        ("times", u32::MAX as u64),
        ("catch_up_max", u32::MAX as u64),
    ];
    const WORDS: [(&str, &[&str]); 2] = [
        ("catch_up", &["skip", "once", "all"]),
        ("overlap", &["skip", "allow"]),
    ];
    let Ok(Value::Object(fields)) = serde_json::from_slice(text) else {
        return format!(
            "expected a JSON object such as {{\"key\": \"Order@close@42\", \"in\": \"30m\"}}: {error}"
        );
    };
    let value = |name: &str| fields.get(name).filter(|value| !value.is_null());
    let not_text = TEXTS
        .iter()
        .find(|name| value(name).is_some_and(|value| !value.is_string()));
    let not_number = NUMBERS.iter().find(|(name, most)| {
        let fits = |value: &Value| value.as_u64().is_some_and(|number| number <= *most);
        value(name).is_some_and(|value| !fits(value))
    });
    let not_word = WORDS.iter().find(|(name, words)| {
        let fits = |value: &Value| value.as_str().is_some_and(|word| words.contains(&word));
        value(name).is_some_and(|value| !fits(value))
    });
    match (not_text, not_number, not_word) {
        (Some(name), _, _) => format!("`{name}`: expected a text"),
        (_, Some((name, most)), _) => format!("`{name}`: expected a whole number up to {most}"),
        (_, _, Some((name, words))) => {
            format!("`{name}`: expected one of `{}`", words.join("`, `"))
        }
        _ if value("unique").is_some_and(|value| !value.is_boolean()) => {
            "`unique`: expected true or false".to_owned()
        }
        _ => error.to_string(),
    }
}

async fn open(file: &Path) -> anyhow::Result<(Box<dyn AsyncBufRead + Unpin>, Option<u64>)> {
    if file == Path::new("-") {
        return Ok((Box::new(BufReader::new(tokio::io::stdin())), None));
    }
    let open = tokio::fs::File::open(file)
        .await
        .with_context(|| format!("open `{}`", file.display()))?;
    let bytes = open.metadata().await.map(|metadata| metadata.len()).ok();
    Ok((Box::new(BufReader::new(open)), bytes))
}

/// Shown on stderr, and only to a person.
fn progress(bytes: Option<u64>) -> ProgressBar {
    let template = "{bar:40} {bytes}/{total_bytes} {eta}";
    let style = ProgressStyle::with_template(template).expect("the template is constant");
    match bytes {
        Some(bytes) => ProgressBar::new(bytes).with_style(style),
        None => ProgressBar::no_length(),
    }
}

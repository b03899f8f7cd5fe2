//! `lapsed schedule --file`: a task to a line.

use std::path::Path;
use std::process::ExitCode;

use anyhow::Context;
use indicatif::{ProgressBar, ProgressStyle};
use lapsed::client::{NotArmed, Stands};
use lapsed::config::Secret;
use lapsed::task::{CatchUp, Due, Overlap, TaskKey, UnixMs};
use lapsed::{Config, IfPending, Recurrence, Task, TaskClient};
use serde::Deserialize;
use serde_json::json;
use serde_json::value::RawValue;
use tokio::io::{AsyncBufRead, AsyncBufReadExt, BufReader};

use super::EXIT_FAILED;
use super::output::Output;
use super::recur::RecurFields;
use super::tasks::due_of;

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
    catch_up: Option<CatchUp>,
    catch_up_max: Option<u32>,
    overlap: Option<Overlap>,
}

#[derive(Default)]
struct Tally {
    scheduled: u64,
    kept: u64,
    refused: u64,
    unarmed: u64,
}

/// Schedules every line that can be; says which ones cannot, and why.
pub async fn schedule(
    file: &Path,
    secret: Option<Secret>,
    config: &Config,
    output: Output,
) -> anyhow::Result<ExitCode> {
    let tasks = TaskClient::connect(config).await?;
    let (mut lines, bytes) = open(file).await?;
    let bar = progress(bytes);
    let mut tally = Tally::default();
    let (mut batch, mut number) = (Vec::with_capacity(BATCH), 0u64);
    // Which line each task of the batch is from, and its key.
    let mut places = Vec::with_capacity(BATCH);
    let mut line = Vec::new();
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
                Ok(Wanted::Once(task, due)) => {
                    places.push((number, task.key().clone()));
                    batch.push((task, due));
                }
                Ok(Wanted::Series(task, recurrence)) => {
                    let made = tasks.create_recurring(task, recurrence).await;
                    let made = made.with_context(|| format!("stopped at line {number}"))?;
                    tally.scheduled += 1;
                    tally.unarmed += u64::from(made.not_armed() == Some(NotArmed::Unreachable));
                }
                Err(problem) => {
                    tally.refused += 1;
                    bar.suspend(|| eprintln!("line {number}: {problem}"));
                }
            }
        }
        if batch.len() == BATCH || (read == 0 && !batch.is_empty()) {
            let made = tasks.create_many(std::mem::take(&mut batch)).await.with_context(|| {
                format!("stopped at line {number}, after {} tasks; scheduling the file again changes nothing about them", tally.scheduled)
            })?;
            for (made, (number, key)) in made.iter().zip(places.drain(..)) {
                match made.stands() {
                    Stands::Asked => tally.scheduled += 1,
                    Stands::Kept => tally.kept += 1,
                    Stands::Refused => {
                        tally.refused += 1;
                        let exists = made.exists(key);
                        bar.suspend(|| eprintln!("line {number}: {exists}"));
                    }
                }
                tally.unarmed += u64::from(made.not_armed() == Some(NotArmed::Unreachable));
            }
        }
        if read == 0 {
            break;
        }
    }
    bar.finish_and_clear();
    let Tally {
        scheduled,
        kept,
        refused,
        unarmed,
    } = tally;
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
    let line: Line = serde_json::from_slice(text).map_err(|error| error.to_string())?;
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
    let fields = RecurFields {
        every,
        cron,
        tz,
        until,
        times,
        catch_up,
        catch_up_max,
        overlap,
    };
    if let Some(recurrence) = fields.recurrence(due, now)? {
        tasks
            .check_recurring(&task, &recurrence)
            .map_err(|error| error.to_string())?;
        return Ok(Wanted::Series(task, recurrence));
    }
    let due = due.ok_or("has neither `in` nor `at`, nor `every` or `cron`")?;
    tasks.check(&task, due).map_err(|error| error.to_string())?;
    Ok(Wanted::Once(task, due))
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

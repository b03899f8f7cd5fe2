//! `lapsed schedule --file`: a task to a line.

use std::path::Path;
use std::process::ExitCode;

use anyhow::Context;
use indicatif::{ProgressBar, ProgressStyle};
use lapsed::config::Secret;
use lapsed::task::{Due, TaskKey};
use lapsed::{Config, Task, TaskClient};
use serde::Deserialize;
use serde_json::json;
use tokio::io::{AsyncBufRead, AsyncBufReadExt, BufReader};

use super::EXIT_FAILED;
use super::output::Output;
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
    payload: Option<serde_json::Value>,
    tag: Option<String>,
    max_attempts: Option<u16>,
    traceparent: Option<String>,
}

#[derive(Default)]
struct Tally {
    scheduled: u64,
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
            match parse(text, secret.as_ref(), &tasks) {
                Ok(task) => batch.push(task),
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
            tally.scheduled += made.len() as u64;
            tally.unarmed += made.iter().filter(|made| !made.armed).count() as u64;
        }
        if read == 0 {
            break;
        }
    }
    bar.finish_and_clear();
    let Tally {
        scheduled,
        refused,
        unarmed,
    } = tally;
    let value = json!({ "scheduled": scheduled, "refused": refused, "unarmed": unarmed });
    output.print(&value, format!("{scheduled} scheduled, {refused} refused"))?;
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

fn parse(text: &[u8], secret: Option<&Secret>, tasks: &TaskClient) -> Result<(Task, Due), String> {
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
    } = line;
    let key = TaskKey::parse(&key).map_err(|error| error.to_string())?;
    let due = due_of(r#in.as_deref(), at.as_deref())?;
    let mut task = Task::from(key);
    if let Some(payload) = payload {
        task = task.payload(payload.to_string());
    }
    if let Some(tag) = tag {
        task = task.tag(tag);
    }
    if let Some(runs) = max_attempts {
        task = task.max_attempts(runs);
    }
    if let Some(trace) = traceparent {
        task = task
            .traceparent(&trace)
            .map_err(|error| error.to_string())?;
    }
    if let Some(secret) = secret {
        task = task.sign(secret);
    }
    tasks.check(&task, due).map_err(|error| error.to_string())?;
    Ok((task, due))
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

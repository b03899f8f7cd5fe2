//! `lapsed schedule --file`: creates one task per line.

use std::path::Path;
use std::process::ExitCode;

use anyhow::Context;
use indicatif::{ProgressBar, ProgressStyle};
use lapsed::client::{ClientError, CreateResult, NotArmed};
use lapsed::config::{RouteConfig, Secret};
use lapsed::contract::{TaskRequest, TaskSpec};
use lapsed::task::{Due, TaskKey, UnixMs};
use lapsed::{Config, Task, TaskClient};
use serde_json::json;
use tokio::io::{AsyncBufRead, AsyncBufReadExt, BufReader};

use super::log::stderr_line;
use super::output::Output;
use super::{EXIT_FAILED, chain, usage};

/// Byte order mark, which some programs write at the start of a UTF-8 file.
const BYTE_ORDER_MARK: &[u8] = "\u{feff}".as_bytes();

/// Maximum length of a line: an escaped payload and the other members.
const LINE_BYTES_MAX: usize = 512 * 1024;

/// Tasks per statement.
const BATCH: usize = 500;

#[derive(Default)]
struct Tally {
    scheduled: u64,
    kept: u64,
    refused: u64,
    unarmed: u64,
    /// Tasks that no configured route matches.
    unrouted: u64,
    first_unrouted: Option<TaskKey>,
}

/// Tasks that are collected for one statement.
struct Batch<'a> {
    tasks: &'a TaskClient,
    bar: &'a ProgressBar,
    waiting: Vec<(Task, Due)>,
    /// Line number and key of each.
    places: Vec<(u64, TaskKey)>,
    tally: Tally,
    routes: &'a [RouteConfig],
}

impl Batch<'_> {
    /// Adds the task of line `number`. Lines take effect in their order: the last line of a key wins.
    async fn take(&mut self, request: TaskRequest, number: u64) -> anyhow::Result<()> {
        self.note_route(request.key());
        match request {
            TaskRequest::Once(task, due) => {
                self.places.push((number, task.key().clone()));
                self.waiting.push((task, due));
                if self.waiting.len() == BATCH {
                    self.write(number).await?;
                }
            }
            TaskRequest::Recurring(task, recurrence) => {
                self.write(number).await?;
                let made = self.tasks.create_recurring(task, recurrence).await;
                let made = made.with_context(|| self.stopped(number))?;
                self.tally.scheduled += 1;
                self.tally.unarmed += u64::from(made.not_armed() == Some(NotArmed::Unreachable));
            }
        }
        Ok(())
    }

    /// Counts the key if routes are configured and none matches it.
    fn note_route(&mut self, key: &TaskKey) {
        if self.routes.is_empty() || self.routes.iter().any(|route| route.fits(key)) {
            return;
        }
        self.tally.unrouted += 1;
        self.tally.first_unrouted.get_or_insert_with(|| key.clone());
    }

    /// Writes the waiting tasks to the ledger.
    async fn write(&mut self, number: u64) -> anyhow::Result<()> {
        if self.waiting.is_empty() {
            return Ok(());
        }
        let made = self.tasks.create_many(std::mem::take(&mut self.waiting));
        let made = made.await.with_context(|| self.stopped(number))?;
        for (made, (number, key)) in made.iter().zip(self.places.drain(..)) {
            match made.result() {
                CreateResult::Written => self.tally.scheduled += 1,
                CreateResult::Kept => self.tally.kept += 1,
                CreateResult::Refused => {
                    self.tally.refused += 1;
                    let exists = made.exists(key);
                    self.bar.suspend(|| stderr_line!("line {number}: {exists}"));
                }
            }
            self.tally.unarmed += u64::from(made.not_armed() == Some(NotArmed::Unreachable));
        }
        Ok(())
    }

    fn stopped(&self, number: u64) -> String {
        format!(
            "stopped at line {number} after writing {} tasks; scheduling the file again does not change those with `at`",
            self.tally.scheduled
        )
    }
}

/// Schedules the valid lines, and reports the invalid ones with their number.
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
        routes: &config.routes,
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
        let text = line.strip_prefix(BYTE_ORDER_MARK).filter(|_| number == 1);
        let text = text.unwrap_or(&line).trim_ascii();
        if !text.is_empty() {
            match parse(text, secret.as_ref(), &tasks, tasks.now().await?) {
                Ok(request) => batch.take(request, number).await?,
                Err(problem) => {
                    batch.tally.refused += 1;
                    bar.suspend(|| stderr_line!("line {number}: {problem}"));
                }
            }
        }
        if read == 0 {
            break;
        }
    }
    batch.write(number).await?;
    bar.finish_and_clear();
    batch.tally.print(output)
}

/// Parses a line and checks its task, or says what is wrong with it.
fn parse(
    text: &[u8],
    secret: Option<&Secret>,
    tasks: &TaskClient,
    now: UnixMs,
) -> Result<TaskRequest, String> {
    if text.len() > LINE_BYTES_MAX {
        return Err(format!(
            "has {} bytes, expected at most {LINE_BYTES_MAX}",
            text.len()
        ));
    }
    let checked = || {
        let request = TaskSpec::from_json(text)?.resolve(now)?;
        let request = match secret {
            Some(secret) => request.sign(secret.clone()),
            None => request,
        };
        request.check(tasks)?;
        Ok(request)
    };
    checked().map_err(|error: ClientError| error.to_string())
}

impl Tally {
    fn print(self, output: Output) -> anyhow::Result<ExitCode> {
        let Self {
            scheduled,
            kept,
            refused,
            unarmed,
            unrouted,
            first_unrouted,
        } = self;
        let value =
            json!({ "scheduled": scheduled, "kept": kept, "refused": refused, "unarmed": unarmed });
        let were_there = match kept {
            0 => String::new(),
            kept => format!(", {kept} unchanged"),
        };
        output.print(
            &value,
            format!("{scheduled} scheduled{were_there}, {refused} refused"),
        )?;
        if unarmed > 0 {
            stderr_line!(
                "warning: Redis did not accept the keys of {unarmed} tasks; the daemon finds them in the ledger"
            );
        }
        if let Some(key) = first_unrouted {
            stderr_line!(
                "note: no route of this configuration matches {unrouted} of these tasks, the first is `{key}`: only a program with a handler for them runs them"
            );
        }
        Ok(if refused == 0 {
            ExitCode::SUCCESS
        } else {
            ExitCode::from(EXIT_FAILED)
        })
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

/// Progress bar on stderr, only on a terminal.
fn progress(bytes: Option<u64>) -> ProgressBar {
    let template = "{bar:40} {bytes}/{total_bytes} {eta}";
    let style = ProgressStyle::with_template(template).expect("the template is constant");
    match bytes {
        Some(bytes) => ProgressBar::new(bytes).with_style(style),
        None => ProgressBar::no_length(),
    }
}

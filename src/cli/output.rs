//! Data on stdout, for people or for programs.

use std::fmt::Display;
use std::io::Write;

use comfy_table::{Table, presets};
use lapsed::ledger::TaskRecord;
use lapsed::task::{Hindrance, Paused, State};
use serde::Serialize;

/// How data is printed.
#[derive(Clone, Copy)]
pub struct Output {
    /// As JSON, a value to a line.
    pub json: bool,
}

impl Output {
    /// One value: as JSON, or as its text for people.
    pub fn print<T: Serialize>(self, value: &T, text: impl Display) -> anyhow::Result<()> {
        let line = if self.json {
            serde_json::to_string(value)?
        } else {
            text.to_string()
        };
        say(&line)
    }

    /// Many tasks, and what keeps them from starting: JSON lines, or a table.
    pub fn tasks(self, tasks: &[TaskRecord], paused: &Paused) -> anyhow::Result<()> {
        let tasks = tasks.iter().map(|task| Listed::new(task, paused));
        if self.json {
            return tasks
                .into_iter()
                .try_for_each(|task| say(&serde_json::to_string(&task)?));
        }
        let mut table = Table::new();
        table.load_style(presets::NOTHING);
        table.set_header(["KEY", "STATE", "DUE", "ATTEMPT", "TAG", "LAST ERROR"]);
        for Listed { task, kept_back } in tasks {
            let state = match kept_back {
                None => task.state.to_string(),
                Some(hindrance) => format!("{}, {}", task.state, hindrance.as_str()),
            };
            table.add_row([
                task.key.to_string(),
                state,
                task.due_at.to_string(),
                task.attempt.to_string(),
                task.tag.clone().unwrap_or_default(),
                task.last_error
                    .as_deref()
                    .map(first_line)
                    .unwrap_or_default(),
            ]);
        }
        say(&table.trim_fmt())
    }
}

/// A task, and what keeps it from starting.
#[derive(Serialize)]
pub struct Listed<'a> {
    #[serde(flatten)]
    task: &'a TaskRecord,
    kept_back: Option<Hindrance>,
}

impl<'a> Listed<'a> {
    /// Nothing keeps back what runs or has finished.
    pub fn new(task: &'a TaskRecord, paused: &Paused) -> Self {
        let waits = matches!(task.state, State::Pending | State::Waiting);
        let kept_back = paused.hinders(&task.key, task.due).filter(|_| waits);
        Self { task, kept_back }
    }

    /// Whether something does.
    pub fn is_kept_back(&self) -> bool {
        self.kept_back.is_some()
    }
}

/// One task, a field to a line; what is not set is left out.
pub fn task_lines(task: &TaskRecord) -> String {
    let TaskRecord {
        id,
        key,
        state,
        due,
        due_at,
        created,
        attempt,
        crashes,
        max_attempts,
        daemon,
        cancel_requested,
        tag,
        payload,
        traceparent,
        last_error,
        finished,
        adopted,
    } = task;
    let fields = [
        ("key", Some(key.to_string())),
        ("id", Some(id.clone())),
        ("state", Some(state.to_string())),
        ("due", Some(due.to_string())),
        ("retry at", (due_at != due).then(|| due_at.to_string())),
        ("created", Some(created.to_string())),
        ("finished", finished.map(|finished| finished.to_string())),
        ("attempt", Some(attempt.to_string())),
        ("max attempts", max_attempts.map(|runs| runs.to_string())),
        ("crashes", (*crashes > 0).then(|| crashes.to_string())),
        ("daemon", (!daemon.is_empty()).then(|| daemon.clone())),
        (
            "cancellation",
            cancel_requested.then(|| "waits for the run to end".to_owned()),
        ),
        ("tag", tag.clone()),
        (
            "adopted",
            adopted.then(|| "from a key that a program armed".to_owned()),
        ),
        ("payload", payload.clone()),
        ("traceparent", traceparent.map(|trace| trace.to_string())),
        ("last error", last_error.clone()),
    ];
    let lines = fields
        .into_iter()
        .filter_map(|(name, value)| Some(format!("{name:<13} {}", value?)));
    lines.collect::<Vec<_>>().join("\n")
}

fn first_line(text: &str) -> String {
    const CHARS_MAX: usize = 80;
    text.lines()
        .next()
        .unwrap_or_default()
        .chars()
        .take(CHARS_MAX)
        .collect()
}

/// A line on stdout; a reader that has gone away (`| head`) is no error worth a word.
pub fn say(line: &str) -> anyhow::Result<()> {
    match writeln!(std::io::stdout(), "{line}") {
        Err(error) if error.kind() == std::io::ErrorKind::BrokenPipe => std::process::exit(0),
        result => Ok(result?),
    }
}

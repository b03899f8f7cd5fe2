//! Output of data on stdout, as text or JSON.

use std::fmt::Display;
use std::io::Write;

use comfy_table::{Table, presets};
use lapsed::Recurrence;
use lapsed::contract::TaskView;
use lapsed::ledger::{MalformedRow, TaskRecord};
use lapsed::task::{
    After, AttemptError, HISTORY_ERROR_BYTES_MAX, Paused, is_invisible, on_one_line,
};
use serde::Serialize;

use super::times;

/// Output format.
#[derive(Clone, Copy)]
pub struct Output {
    /// JSON, one value per line.
    pub json: bool,
}

impl Output {
    /// Prints one value: as JSON, or as text.
    pub fn print<T: Serialize>(self, value: &T, text: impl Display) -> anyhow::Result<()> {
        let line = if self.json {
            visible_json(&serde_json::to_string(value)?)
        } else {
            text.to_string()
        };
        say(&line)
    }

    /// Prints tasks, whether they are paused or held, and rows with a malformed key: as JSON lines or a table.
    pub fn tasks(
        self,
        tasks: &[TaskRecord],
        malformed: &[MalformedRow],
        paused: &Paused,
    ) -> anyhow::Result<()> {
        let come_again = tasks.iter().any(|task| task.recurrence.is_some());
        let mut tasks = tasks.iter().map(|task| TaskView::listed(task, paused));
        if self.json {
            tasks.try_for_each(|task| say(&visible_json(&serde_json::to_string(&task)?)))?;
            let mut malformed = malformed.iter().map(Malformed::new);
            return malformed.try_for_each(|row| say(&visible_json(&serde_json::to_string(&row)?)));
        }
        let mut table = Table::new();
        table.load_style(presets::NOTHING);
        let mut header = vec!["KEY", "STATE", "DUE", "ATTEMPT", "TAG", "LAST ERROR"];
        if come_again {
            header.extend(["LATEST ENDED", "RECURRENCE"]);
        }
        table.set_header(header);
        for TaskView {
            task, kept_back, ..
        } in tasks
        {
            let state = match kept_back {
                None => task.state.to_string(),
                Some(blocked_by) => format!("{}, {}", task.state, blocked_by.as_str()),
            };
            let mut row = vec![
                shown(Some(task.key.as_str())),
                state,
                times::shown(task.due_at),
                task.attempt.to_string(),
                shown(task.tag.as_deref()),
                task.last_error
                    .as_deref()
                    .map(first_line)
                    .unwrap_or_default(),
            ];
            if come_again {
                let latest = task.latest_occurrence.as_ref();
                let latest =
                    latest.map(|latest| format!("{} {}", times::shown(latest.due), latest.outcome));
                row.push(latest.unwrap_or_default());
                let summary = task.recurrence.as_deref().map(recurrence_summary);
                row.push(summary.unwrap_or_default());
            }
            table.add_row(row);
        }
        for row in malformed {
            let state = format!("{}, malformed", row.state);
            table.add_row([shown(Some(&row.key)), state, times::shown(row.due_at)]);
        }
        say(&table.trim_fmt())
    }

    /// Prints dead tasks, with the columns that matter for them.
    pub fn dead(self, tasks: &[TaskRecord]) -> anyhow::Result<()> {
        if self.json {
            return self.tasks(tasks, &[], &Paused::default());
        }
        let mut table = Table::new();
        table.load_style(presets::NOTHING);
        table.set_header(["KEY", "REASON", "DIED", "ATTEMPT", "TAG", "ERROR"]);
        for task in tasks {
            let died = task.finished.map(times::shown);
            let error = task.last_error.as_deref().map(first_line);
            table.add_row([
                shown(Some(task.key.as_str())),
                task.reason
                    .map(|reason| reason.to_string())
                    .unwrap_or_default(),
                died.unwrap_or_default(),
                task.attempt.to_string(),
                shown(task.tag.as_deref()),
                error.unwrap_or_default(),
            ]);
        }
        say(&table.trim_fmt())
    }
}

/// A row with a malformed key, marked as such.
#[derive(Serialize)]
pub struct Malformed<'a> {
    #[serde(flatten)]
    row: &'a MalformedRow,
    malformed: bool,
}

impl<'a> Malformed<'a> {
    pub fn new(row: &'a MalformedRow) -> Self {
        Self {
            row,
            malformed: true,
        }
    }

    /// Formats one field per line.
    pub fn lines(&self) -> String {
        let MalformedRow {
            id,
            key,
            state,
            due_at,
        } = self.row;
        let fields = [
            ("key", shown(Some(key))),
            ("id", id.clone()),
            (
                "state",
                format!("{state}, malformed: a row with such a key never runs"),
            ),
            ("due", times::shown(*due_at)),
        ];
        let lines = fields.map(|(name, value)| format!("{name:<13} {value}"));
        lines.join("\n")
    }
}

/// A text of another program in a table.
pub fn shown(text: Option<&str>) -> String {
    text.map(on_one_line).unwrap_or_default().into_owned()
}

/// Formats a task, one field per line; unset fields are left out.
pub fn task_lines(view: &TaskView<'_>) -> String {
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
        lease_until: _,
        started,
        progress,
        cancel_requested,
        tag,
        after,
        payload,
        traceparent,
        recurrence,
        latest_occurrence,
        last_error,
        reason,
        history,
        result,
        finished,
        adopted,
        archived,
    } = view.task;
    let occurrences = view.occurrences.as_ref().map_or(0, Vec::len);
    let occurrences = view.task.occurrences(occurrences).into_iter();
    let occurrences = occurrences.map(times::shown).collect::<Vec<_>>().join(", ");
    let fields = [
        ("key", Some(key.to_string())),
        ("id", Some(id.clone())),
        ("state", Some(state.to_string())),
        ("archived", archived.then(|| "yes".to_owned())),
        ("due", Some(times::shown(*due))),
        (
            "retry at",
            (due_at != due && !state.is_finished()).then(|| times::shown(*due_at)),
        ),
        ("created", Some(times::shown(*created))),
        ("started", started.map(times::shown)),
        ("finished", finished.map(times::shown)),
        ("attempt", Some(attempt.to_string())),
        ("max attempts", max_attempts.map(|runs| runs.to_string())),
        ("crashes", (*crashes > 0).then(|| crashes.to_string())),
        // A task that has not started since it was scheduled still has the one of an earlier run.
        (
            "daemon",
            (*attempt > 0 && !daemon.is_empty()).then(|| daemon.clone()),
        ),
        ("progress", progress.as_ref().map(ToString::to_string)),
        (
            "cancellation",
            cancel_requested.then(|| "requested, waits for the run to end".to_owned()),
        ),
        ("tag", tag.clone()),
        ("after", after.as_ref().map(After::summary)),
        (
            "adopted",
            adopted.then(|| "from a key that a program set".to_owned()),
        ),
        ("payload", payload.clone()),
        ("traceparent", traceparent.map(|trace| trace.to_string())),
        ("result", result.clone()),
        ("dead because", reason.map(|reason| reason.to_string())),
        ("recurrence", recurrence.as_deref().map(recurrence_summary)),
        (
            "occurrences",
            Some(occurrences).filter(|list| !list.is_empty()),
        ),
        (
            "latest ended",
            latest_occurrence
                .as_ref()
                .map(|latest| format!("{} {latest}", times::shown(latest.due))),
        ),
        ("last error", last_error.clone()),
    ];
    let lines = fields
        .into_iter()
        .filter_map(|(name, value)| Some(format!("{name:<13} {}", on_one_line(&value?))));
    let titles = ["history"].into_iter().chain(std::iter::repeat(""));
    let history = titles.zip(history);
    let history = history
        .map(|(title, attempt_error)| format!("{title:<13} {}", attempt_error_line(attempt_error)));
    lines.chain(history).collect::<Vec<_>>().join("\n")
}

/// Formats an entry of the history in one line.
fn attempt_error_line(attempt_error: &AttemptError) -> String {
    let AttemptError {
        how,
        attempt,
        started: _,
        at,
        error,
        daemon,
        crashes,
        snoozes,
    } = attempt_error;
    let run = match how.was_run() {
        true => format!("attempt {attempt}"),
        false => "not run".to_owned(),
    };
    let at_text = times::shown(*at);
    let mut line = format!("{at_text}  {run}  {}", how.as_str());
    match *snoozes {
        0 => {}
        1 => line += " once",
        _ => line += &format!(" {snoozes} times"),
    }
    match *crashes {
        0 => {}
        1 => line += " after 1 crash",
        _ => line += &format!(" after {crashes} crashes"),
    }
    // Some errors start with the same word: `expired: ..`.
    let error = error
        .strip_prefix(how.as_str())
        .map_or(&error[..], |rest| rest.strip_prefix(": ").unwrap_or(error));
    if !error.is_empty() {
        line += &format!(": {}", beginning(error));
    }
    on_one_line(&format!("{line}  ({daemon})")).into_owned()
}

/// Describes a stored recurrence; if it is invalid, the reason.
fn recurrence_summary(stored: &str) -> String {
    match stored.parse::<Recurrence>() {
        Ok(recurrence) => recurrence.summary(),
        Err(error) => error.to_string(),
    }
}

/// The first line of an error in the history, marked if it was cut.
fn beginning(text: &str) -> String {
    /// Maximum bytes of a character, less one: the ledger cuts at a character boundary.
    const SPARE: usize = 3;
    let first = text.lines().next().unwrap_or_default();
    let was_cut = text.len() + SPARE >= HISTORY_ERROR_BYTES_MAX;
    match was_cut || first.len() < text.trim_end().len() {
        true => format!("{first}.."),
        false => first.to_owned(),
    }
}

/// The first line of an error, as much as fits into a table.
fn first_line(text: &str) -> String {
    const CHARS_MAX: usize = 80;
    let first = text.lines().next().unwrap_or_default();
    on_one_line(first).chars().take(CHARS_MAX).collect()
}

/// JSON that a terminal shows as it is: the characters that JSON allows in texts and a terminal obeys are escaped.
fn visible_json(json: &str) -> String {
    let mut visible = String::with_capacity(json.len());
    for c in json.chars() {
        match is_invisible(c) {
            true => visible += &format!("\\u{:04x}", u32::from(c)),
            false => visible.push(c),
        }
    }
    visible
}

/// Prints a line on stdout. A closed pipe (`| head`) ends the program silently.
pub fn say(line: &str) -> anyhow::Result<()> {
    match writeln!(std::io::stdout(), "{line}") {
        Err(error) if error.kind() == std::io::ErrorKind::BrokenPipe => std::process::exit(0),
        result => Ok(result?),
    }
}

/// As [`say`], for a daemon: an error of writing is ignored.
pub fn try_say(line: &str) {
    let _ = writeln!(std::io::stdout(), "{line}");
}

#[cfg(test)]
mod tests;

//! A task as a row of a list.

use super::frame::Frame;
use super::moment::Moment;
use lapsed::ledger::{Progress, TaskRecord};
use lapsed::task::{BlockedBy, Paused, TaskKey, UnixMs};

/// A task as a row of a list. Payload, history and result are left out.
pub struct Row {
    /// Its key.
    pub key: TaskKey,
    /// Address of its page.
    pub href: String,
    /// Its state, as a word.
    pub state: &'static str,
    /// Class of its mark: the state, `overdue` or `kept`.
    pub mark: &'static str,
    /// Why it does not start, if it is kept back.
    pub kept_back: Option<BlockedBy>,
    /// When it may start; if it has finished, when it did.
    pub at: Moment,
    /// If it runs: the daemon, and when its lease ends.
    pub lease: Option<(String, Moment)>,
    /// If it runs, and says: how far it is.
    pub progress: Option<Progress>,
    /// Runs started.
    pub attempt: u16,
    /// Its tag.
    pub tag: String,
    /// The first line of the latest error.
    pub error: String,
    /// True if it recurs.
    pub is_recurring: bool,
}

impl Row {
    /// Shows a task.
    pub fn of(task: TaskRecord, paused: &Paused, f: &Frame) -> Self {
        let waits = task.state.is_pending();
        let kept_back = paused.blocks(&task.key, task.due).filter(|_| waits);
        let mark = match kept_back {
            Some(_) => "kept",
            None if waits && is_overdue(task.due_at, f.now) => "overdue",
            None => task.state.as_str(),
        };
        let at = task.finished.unwrap_or(task.due_at);
        Self {
            href: f.task_href(&task),
            key: task.key,
            state: task.state.as_str(),
            mark,
            kept_back,
            at: f.relative(&at),
            lease: task
                .lease_until
                .map(|until| (task.daemon, f.relative(&until))),
            progress: task.progress,
            attempt: task.attempt,
            tag: task.tag.unwrap_or_default(),
            error: first_line(task.last_error.as_deref().unwrap_or_default()),
            is_recurring: task.recurrence.is_some(),
        }
    }
}

/// True if a task that may start at this time should have started.
pub fn is_overdue(due_at: UnixMs, now: UnixMs) -> bool {
    /// A task that fell due in this moment is about to start.
    const GRACE_MS: i64 = 1_000;
    due_at.0.saturating_add(GRACE_MS) < now.0
}

/// The first line of a text, at most 160 characters.
pub fn first_line(text: &str) -> String {
    const CHARS_MAX: usize = 160;
    let line = text.lines().next().unwrap_or_default();
    let mut short: String = line.chars().take(CHARS_MAX).collect();
    if short.len() < text.trim_end().len() {
        short.push('…');
    }
    short
}

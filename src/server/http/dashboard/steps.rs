//! What has happened to a task, step by step: created, due, each run with its start and its end.

use std::time::Duration;

use super::frame::Frame;
use super::moment::Moment;
use super::texts::texts;
use lapsed::ledger::TaskRecord;
use lapsed::task::{AttemptError, State as TaskState, UnixMs};

texts! {
    /// Texts of the steps.
    StepTexts {
        created: "Created", "创建";
        due: "Due", "到期";
        attempt_started: "Attempt {} started", "第 {} 次开始执行";
        attempt_ended: "Attempt {}: {}", "第 {} 次：{}";
        not_run: "Not run: {}", "未执行：{}";
        times: "{} times", "{} 次";
        on_time: "on time", "准时";
        late: "{} late", "延迟 {}";
        ran: "ran {}", "执行 {}";
        after_due: "{} after it fell due", "到期后 {}";
        may_start: "May start", "最早开始时间";
        lease: "Lease ends", "租约到期";
    }
}

/// A step.
pub struct Step {
    /// Class in the style sheet: the mark of a state.
    pub class: &'static str,
    /// What happened, or will.
    pub name: String,
    /// When.
    pub at: Moment,
    /// How late it was, or how long it took.
    pub detail: Option<String>,
    /// How long ago it was, or will be, if that matters.
    pub relative: Option<Moment>,
}

/// Returns the steps of a task, oldest first. A row does not say when a task of an earlier version started.
pub fn steps(task: &TaskRecord, f: &Frame) -> Vec<Step> {
    let t = StepTexts::of(f.language());
    let step = |class, name: &str, at: UnixMs| Step {
        class,
        name: name.to_owned(),
        at: f.clock(&at),
        detail: None,
        relative: None,
    };
    let mut steps = vec![step("", t.created, task.created), step("", t.due, task.due)];
    let (newest, oldest) = (0, task.history.len().saturating_sub(1));
    for (index, entry) in task.history.iter().enumerate().rev() {
        let could_start = match index {
            // The run of which it died is the latest.
            _ if index == newest && task.state == TaskState::Dead && task.started.is_some() => {
                Some(task.due_at)
            }
            _ if index == oldest && entry.attempt == 1 => Some(task.due),
            _ => None,
        };
        steps.extend(of_entry(
            entry,
            could_start.map(|at| at.max(task.created)),
            f,
        ));
    }
    let state = task.state.as_str();
    let name = f.state(state);
    match (task.state, task.started) {
        (TaskState::Pending, _) => {}
        (TaskState::Waiting, _) => steps.push(Step {
            relative: Some(f.relative(&task.due_at)),
            ..step("", t.may_start, task.due_at)
        }),
        (TaskState::Running, started) => {
            steps.extend(started.map(|at| Step {
                detail: Some(late(at.since(task.due_at.max(task.created)), f)),
                relative: Some(f.relative(&at)),
                ..step("running", &attempt(t.attempt_started, task.attempt, f), at)
            }));
            steps.extend(task.lease_until.map(|until| Step {
                relative: Some(f.relative(&until)),
                ..step("", t.lease, until)
            }));
        }
        (TaskState::Done, Some(at)) => {
            steps.push(Step {
                detail: Some(late(at.since(task.due_at.max(task.created)), f)),
                ..step("running", &attempt(t.attempt_started, task.attempt, f), at)
            });
            steps.extend(task.finished.map(|finished| Step {
                detail: Some(took(t.ran, finished.since(at), f)),
                ..step(state, name, finished)
            }));
        }
        (TaskState::Done, None) => steps.extend(task.finished.map(|finished| Step {
            detail: Some(took(t.after_due, finished.since(task.due), f)),
            ..step(state, name, finished)
        })),
        (TaskState::Dead | TaskState::Cancelled, _) => {
            steps.extend(task.finished.map(|at| step(state, name, at)));
        }
    }
    steps
}

/// Start and end of a run that did not succeed. `could_start` is when it could, if that is known.
fn of_entry(entry: &AttemptError, could_start: Option<UnixMs>, f: &Frame) -> Vec<Step> {
    let t = StepTexts::of(f.language());
    let how = f.state(entry.how.as_str());
    let how = match entry.snoozes {
        0 | 1 => how.to_owned(),
        times => format!("{how}, {}", f.fill(t.times, &[&times.to_string()])),
    };
    let name = match entry.how.was_run() {
        true => f.fill(t.attempt_ended, &[&entry.attempt.to_string(), &how]),
        false => f.fill(t.not_run, &[&how]),
    };
    let start = entry.started.map(|at| Step {
        class: "running",
        name: attempt(t.attempt_started, entry.attempt, f),
        at: f.clock(&at),
        detail: could_start.map(|could_start| late(at.since(could_start), f)),
        relative: None,
    });
    let end = Step {
        class: "waiting",
        name,
        at: f.clock(&entry.at),
        detail: entry.started.map(|at| took(t.ran, entry.at.since(at), f)),
        relative: None,
    };
    start.into_iter().chain([end]).collect()
}

fn attempt(text: &str, number: u16, f: &Frame) -> String {
    f.fill(text, &[&number.to_string()])
}

fn late(late: Duration, f: &Frame) -> String {
    let t = StepTexts::of(f.language());
    match late.is_zero() {
        true => t.on_time.to_owned(),
        false => took(t.late, late, f),
    }
}

fn took(text: &str, time: Duration, f: &Frame) -> String {
    let ms = u64::try_from(time.as_millis()).unwrap_or(u64::MAX);
    f.fill(text, &[&f.took(&ms)])
}

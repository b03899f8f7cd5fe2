//! One task: its state, attempts and errors, and what can be done with it.

use askama::Template;
use axum::Router;
use axum::extract::{Query, State};
use axum::response::Response;
use axum::routing::get;
use serde::Deserialize;

use super::frame::{Frame, Place, encoded};
use super::indented::indented;
use super::panel::Panel;
use super::reasons::{self, Reason};
use super::row::is_overdue;
use super::series::{Latest, latest, words};
use super::steps::{Step, steps};
use super::texts::texts;
use super::{PanelContent, panel, panel_route};
use crate::http::app_state::AppState;
use crate::http::listing;
use crate::http::named::TaskInPath;
use crate::http::problem::Problem;
use crate::http::why;
use lapsed::diagnosis::{Why, WhyCause, WhyFacts};
use lapsed::ledger::TaskRecord;
use lapsed::task::{Recurrence, State as TaskState, UnixMs};

/// Number of occurrences of a recurring task that are shown.
const OCCURRENCES: usize = 5;

/// Routes of the page and its panel.
pub fn routes() -> Router<AppState> {
    Router::new()
        .route("/task", get(page))
        .merge(panel_route::<Details>())
}

texts! {
    /// Texts of the page of a task.
    TaskTexts {
        title: "Task", "任务";
        run: "Run now", "立即执行";
        move_it: "Move…", "改期…";
        cancel: "Cancel…", "取消…";
        redrive: "Redrive", "重新投递";
        discard: "Discard…", "丢弃…";
        copy_key: "Copy the key", "复制键";
        copy_command: "Copy the command", "复制命令";
        cancel_requested: "It is cancelled as soon as its run ends.", "本次执行结束后将被取消。";
        due_at: "May start", "最早开始时间";
        steps: "What has happened", "经过";
        attempts: "Attempts", "尝试次数";
        of_max: "{} of {}", "{} / {}";
        crashes: "Crashes", "崩溃次数";
        daemon: "Daemon", "守护进程";
        progress: "Progress", "进度";
        tag: "Tag", "标签";
        after: "Starts after", "开始条件";
        after_tag: "all tasks with tag", "标签全部结束：";
        or_dead: ", done or dead", "（含死信）";
        class: "Class@method", "类@方法";
        args: "Arguments", "参数";
        origin: "Origin", "来源";
        adopted: "A key that another program set", "其他程序设置的键";
        id: "Id of this arming", "本次调度编号";
        trace: "Trace", "追踪";
        error: "Latest error", "最近错误";
        history: "Earlier failures", "失败历史";
        history_note: "Newest first, at most ten", "最新在前，最多十条";
        attempt: "Attempt", "尝试";
        when: "When", "时间";
        how: "How it ended", "结果";
        not_run: "not run", "未执行";
        after_crashes: "after {} crashes", "崩溃 {} 次后";
        times: "{} times", "{} 次";
        payload: "Payload", "载荷";
        result: "Result", "结果";
        series: "Recurrence", "周期";
        latest: "Latest occurrence: ", "上一次执行：";
        next: "Next occurrences", "接下来的执行";
        not_found: "There is no task with this key", "没有此键的任务";
        not_found_detail: "Retention may have deleted it, or the key is wrong.", "可能已按保留期删除，或键有误。";
        bad_key: "This is not a task key", "这不是任务键";
        archived: "Archived: retention has moved it here, and nothing changes it any more.", "已归档：已按保留期移入归档，不再变化。";
        similar: "Show tasks that begin with it", "查看以此开头的任务";
    }
}

/// The task of the address: by its key, or by the id that a list has.
#[derive(Deserialize)]
struct Wanted {
    #[serde(default)]
    key: String,
    #[serde(default)]
    id: String,
    /// Not empty for a task of the archive.
    #[serde(default)]
    archived: String,
}

impl Wanted {
    fn text(&self) -> &str {
        match self.id.is_empty() {
            true => &self.key,
            false => &self.id,
        }
    }
}

#[derive(Template)]
#[template(path = "task.html")]
struct Page<'a> {
    f: &'a Frame,
    key: &'a str,
    details: Panel,
}

async fn page(State(app): State<AppState>, frame: Frame, Query(wanted): Query<Wanted>) -> Response {
    let f = frame.at(Place::Tasks);
    let details = panel::<Details>(&app, &f, &wanted).await;
    f.page(&Page {
        f: &f,
        key: wanted.text(),
        details,
    })
}

impl PanelContent for Details<'_> {
    const NAME: &'static str = "task";
    const SHOWS: &'static str = "tasks stats pauses";
    type Query = Wanted;
    type Content<'a> = Details<'a>;

    fn address(query: &Wanted) -> String {
        let task = match query.id.is_empty() {
            true => format!("key={}", encoded(&query.key)),
            false => format!("id={}", encoded(&query.id)),
        };
        match query.archived.is_empty() {
            true => task,
            false => task + "&archived=true",
        }
    }

    async fn load<'a>(
        app: &'a AppState,
        f: &'a Frame,
        query: &'a Wanted,
    ) -> Result<Details<'a>, Problem> {
        let key = query.text();
        let wanted = TaskInPath::parse(key);
        let is_key = matches!(wanted, Ok(TaskInPath::Key(_)));
        let found = match wanted {
            Ok(wanted) if !query.archived.is_empty() => archived(app, f, wanted).await?,
            Ok(TaskInPath::Key(key)) => {
                f.caller.require_key(&key)?;
                let (task, facts) = tokio::join!(app.tasks.find(&key), why::facts(app, &f.caller));
                let facts = facts?;
                match task? {
                    Some(mut task) => {
                        task.mask(&f.caller.masks);
                        Some(found(app, task, key.to_string(), &facts, f))
                    }
                    None if app.engine.archives() => archived(app, f, TaskInPath::Key(key)).await?,
                    None => None,
                }
            }
            // A moved task stays in its row, so the page goes on showing it.
            Ok(TaskInPath::Row(row, _)) => {
                let task = listing::task_in_row(app, &f.caller, row, false);
                let (task, facts) = tokio::try_join!(task, why::facts(app, &f.caller))?;
                task.map(|mut task| {
                    task.mask(&f.caller.masks);
                    let shown = f.caller.masks.shown(&task.key);
                    let mut found = found(app, task, row.to_string(), &facts, f);
                    found.task.key = shown;
                    found
                })
            }
            Err(_) => None,
        };
        Ok(Details {
            f,
            t: TaskTexts::of(f.language()),
            key,
            is_key,
            found,
        })
    }
}

/// Finds an archived task, without what is masked.
async fn archived(app: &AppState, f: &Frame, wanted: TaskInPath) -> Result<Option<Found>, Problem> {
    let task = wanted.archived(app, &f.caller);
    let (task, facts) = tokio::try_join!(task, why::facts(app, &f.caller))?;
    Ok(task.map(|task| {
        let id = task.id.clone();
        found(app, task, id, &facts, f)
    }))
}

/// What can be done with a task now.
#[derive(Debug, Clone, Copy, Default)]
struct Actions {
    run: bool,
    reschedule: bool,
    cancel: bool,
    redrive: bool,
    discard: bool,
}

impl Actions {
    fn of(task: &TaskRecord, f: &Frame) -> Self {
        if task.archived {
            return Self::default();
        }
        let waits = matches!(task.state, TaskState::Pending | TaskState::Waiting);
        Self {
            run: waits && f.may_operate(),
            reschedule: waits && f.may_schedule(),
            cancel: !task.state.is_finished() && !task.cancel_requested && f.may_schedule(),
            redrive: task.state == TaskState::Dead && f.may_operate(),
            discard: task.state == TaskState::Dead && f.may_operate(),
        }
    }
}

/// The content of the panel: the task, or that there is none.
#[derive(Template)]
#[template(path = "task_details.html")]
struct Details<'a> {
    f: &'a Frame,
    t: &'static TaskTexts,
    key: &'a str,
    is_key: bool,
    found: Option<Found>,
}

struct Found {
    task: TaskRecord,
    /// What names it in the API: its key or its row.
    named: String,
    actions: Actions,
    kept_back: bool,
    is_overdue: bool,
    /// Why it has not run, and what would hinder it.
    why: Vec<Reason>,
    /// What has happened to it.
    steps: Vec<Step>,
    /// What the series does, and its next occurrences.
    series: Option<(String, Vec<UnixMs>)>,
    /// What became of the latest occurrence of the series.
    latest: Option<Latest>,
}

impl Found {
    /// True if an undone cancellation would bring the same task back.
    fn is_series(&self) -> bool {
        self.series.is_some()
    }

    /// The command that shows it.
    fn command(&self) -> String {
        let archived = if self.task.archived {
            "--archived "
        } else {
            ""
        };
        let named = self.named.replace('\'', "'\\''");
        format!("lapsed show {archived}'{named}'")
    }

    /// Its payload and its result, to be read.
    fn read(&self, json: &str) -> String {
        indented(json)
    }

    /// Its arguments, each as it is.
    fn args(&self) -> Vec<&str> {
        self.task.key.args().collect()
    }

    /// Class of the mark before its state.
    fn mark(&self) -> &'static str {
        match self.kept_back {
            true => "kept",
            false if self.is_overdue => "overdue",
            false => self.task.state.as_str(),
        }
    }
}

fn found(app: &AppState, task: TaskRecord, named: String, facts: &WhyFacts, f: &Frame) -> Found {
    let waits = matches!(task.state, TaskState::Pending | TaskState::Waiting);
    let Why { cause, then } = why::of_task(app, &f.caller, facts, &task);
    Found {
        actions: Actions::of(&task, f),
        kept_back: cause.is_kept_back() || then.as_ref().is_some_and(WhyCause::is_kept_back),
        is_overdue: waits && is_overdue(task.due_at, f.now),
        // The page says the state, and when it may start.
        why: [waits.then_some(cause).filter(is_said), then]
            .into_iter()
            .flatten()
            .map(|cause| reasons::reason(&cause, f))
            .collect(),
        steps: steps(&task, f),
        series: series(&task, f),
        latest: latest(&task, f),
        named,
        task,
    }
}

/// True if the cause is more than the state and the time that the page shows.
fn is_said(cause: &WhyCause) -> bool {
    !matches!(cause, WhyCause::NotDue(_) | WhyCause::Starting)
}

fn series(task: &TaskRecord, f: &Frame) -> Option<(String, Vec<UnixMs>)> {
    let recurrence = match task.recurrence.as_deref()?.parse::<Recurrence>() {
        Ok(recurrence) => recurrence,
        Err(error) => return Some((error.to_string(), Vec::new())),
    };
    let mut occurrences = Vec::new();
    if !task.state.is_finished() {
        occurrences.push(task.due);
        let mut last = recurrence.continues_after(task.due);
        while occurrences.len() < OCCURRENCES
            && let Some(next) = recurrence.next(last)
        {
            occurrences.push(next);
            last = next;
        }
    }
    Some((words(&recurrence, f), occurrences))
}

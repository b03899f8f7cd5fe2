//! Recurring tasks: their schedules and next occurrences.

use askama::Template;
use serde::Deserialize;

use super::frame::{Frame, Place, encoded};
use super::moment::Moment;
use super::reasons::{self, Reason};
use super::row::first_line;
use super::series::{self, Latest};
use super::texts::{Language, texts};
use super::{Head, Page, PanelContent, parameter};
use crate::http::app_state::AppState;
use crate::http::listing;
use crate::http::problem::Problem;
use crate::http::why;
use lapsed::diagnosis::WhyFacts;
use lapsed::ledger::{ListFilter, StateFilter, TaskRecord};
use lapsed::task::{Paused, Recurrence, State as TaskState};

/// Tasks of a page.
const LIMIT: u32 = 50;

/// Occurrences that are shown of each.
const OCCURRENCES: usize = 3;

texts! {
    /// Texts of the recurring tasks.
    RecurringTexts {
        title: "Recurring", "周期任务";
        lead: "Tasks with a schedule, the next to fall due first. Times of a cron expression are in its own zone, those below in yours.", "具有周期的任务，最先到期的在前。cron 表达式使用其自身时区，下列时间使用您的时区。";
        none: "No task recurs. Schedule one with `lapsed schedule KEY --cron`, or in the configuration.", "没有周期任务。可用 `lapsed schedule KEY --cron` 或配置文件创建。";
        key: "Key", "键";
        schedule: "Schedule", "周期";
        next: "Next", "下一次";
        then: "Then", "之后";
        state: "State", "状态";
        latest: "Latest", "上一次";
        error: "Latest error", "最近错误";
        configured: "from the configuration", "来自配置";
        unreadable: "cannot be read by this version", "此版本无法读取";
        ends: "the last one", "最后一次";
        searched: "The search stopped after {} rows. Go on with the next page.", "查找了 {} 行后停止。请继续下一页。";
        by_page: "There is more than one page: each page is sorted by itself, and the oldest tasks are on the first.", "共有多页：每页各自排序，最早创建的任务在第一页。";
        first: "First page", "第一页";
        next_page: "Next page", "下一页";
        ended: "Ended series", "已结束的周期任务";
    }
}

/// Where the page begins.
#[derive(Debug, Default, Deserialize)]
pub struct Wanted {
    #[serde(default)]
    cursor: String,
}

/// A series as it is shown.
struct Row {
    key: String,
    href: String,
    /// When it occurs, in words.
    schedule: String,
    /// The same, as the command line says it.
    summary: String,
    is_configured: bool,
    state: &'static str,
    mark: &'static str,
    next: Moment,
    /// The occurrences after that. Empty: `next` is the last one.
    then: Vec<Moment>,
    is_readable: bool,
    /// What became of the occurrence before.
    latest: Option<Latest>,
    /// What would keep its next occurrence from starting.
    why: Option<Reason>,
    error: String,
}

#[derive(Template)]
#[template(path = "recurring_list.html")]
pub struct List<'a> {
    f: &'a Frame,
    t: &'static RecurringTexts,
    rows: Vec<Row>,
    is_first: bool,
    next: Option<String>,
    searched: Option<u64>,
}

impl PanelContent for List<'_> {
    const NAME: &'static str = "recurring";
    const SHOWS: &'static str = "tasks pauses";
    type Query = Wanted;
    type Content<'a> = List<'a>;

    fn address(query: &Wanted) -> String {
        parameter("cursor", &query.cursor)
    }

    async fn load<'a>(
        app: &'a AppState,
        f: &'a Frame,
        wanted: &'a Wanted,
    ) -> Result<List<'a>, Problem> {
        let cursor = Some(wanted.cursor.as_str()).filter(|text| !text.is_empty());
        let filter = ListFilter {
            recurring: true,
            // Those that have ended are many, and in the list of all tasks.
            states: [TaskState::Pending, TaskState::Waiting, TaskState::Running]
                .map(StateFilter::Is)
                .to_vec(),
            limit: LIMIT,
            ..ListFilter::default()
        };
        let (mut page, paused, facts) = tokio::try_join!(
            listing::list(app, &f.caller, filter, cursor),
            app.paused(),
            why::facts(app, &f.caller)
        )?;
        page.tasks.sort_by_key(|task| task.due_at);
        Ok(List {
            f,
            t: RecurringTexts::of(f.language()),
            rows: page
                .tasks
                .iter()
                .map(|task| Row {
                    why: blocked_by(app, &facts, task, f),
                    ..row(task, &paused, f)
                })
                .collect(),
            is_first: wanted.cursor.is_empty(),
            next: page.next.map(|next| encoded(&next)),
            searched: page.searched,
        })
    }
}

impl Page for List<'_> {
    const PLACE: Place = Place::Recurring;

    fn head(language: Language) -> Head {
        let t = RecurringTexts::of(language);
        Head::new(t.title, t.lead).link("/tasks?state=done,dead,cancelled&recurring=true", t.ended)
    }
}

fn blocked_by(app: &AppState, facts: &WhyFacts, task: &TaskRecord, f: &Frame) -> Option<Reason> {
    let then = why::of_task(app, &f.caller, facts, task).then?;
    then.is_trouble().then(|| reasons::reason(&then, f))
}

fn row(task: &TaskRecord, paused: &Paused, f: &Frame) -> Row {
    let stored = task.recurrence.as_deref();
    let recurrence: Option<Recurrence> = stored.and_then(|text| text.parse().ok());
    let mut then = Vec::new();
    let mut after = task.due;
    while let Some(next) = recurrence.as_ref().and_then(|rule| rule.next(after))
        && then.len() < OCCURRENCES
    {
        then.push(f.clock(&next));
        after = next;
    }
    let waits = task.state != TaskState::Running;
    let kept = paused.blocks(&task.key, task.due).filter(|_| waits);
    Row {
        key: task.key.to_string(),
        href: f.task_href(task),
        schedule: recurrence
            .as_ref()
            .map_or_else(String::new, |recurrence| series::words(recurrence, f)),
        summary: recurrence
            .as_ref()
            .map_or_else(String::new, Recurrence::summary),
        is_configured: recurrence.as_ref().is_some_and(Recurrence::is_configured),
        is_readable: recurrence.is_some(),
        state: kept.map_or(task.state.as_str(), |kept| kept.as_str()),
        mark: match kept {
            Some(_) => "kept",
            None => task.state.as_str(),
        },
        next: f.relative(&task.due_at),
        then,
        latest: series::latest(task, f),
        why: None,
        error: first_line(task.last_error.as_deref().unwrap_or_default()),
    }
}

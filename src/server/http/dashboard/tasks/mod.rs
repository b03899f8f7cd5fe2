//! The list of tasks, with its filters in the address.

mod query;

use std::time::Duration;

use askama::Template;
use axum::Router;
use axum::extract::{Query, State};
use axum::response::{IntoResponse, Redirect, Response};
use axum::routing::get;
use tokio::time::timeout;

use self::query::{STATES, TaskQuery, UNFINISHED};
use super::frame::{Frame, Place, encoded};
use super::panel::{Panel, Source};
use super::row::Row;
use super::texts::texts;
use crate::http::app_state::AppState;
use crate::http::listing;
use crate::http::named::TaskInPath;
use crate::http::problem::Problem;
use lapsed::ledger::{ListFilter, MalformedRow, StateFilter};
use lapsed::task::{Reason, State as TaskState, TaskKey};

/// Routes of the page and its panel.
pub fn routes() -> Router<AppState> {
    Router::new()
        .route("/tasks", get(page))
        .route("/panels/tasks", get(panel_alone))
        .route("/find", get(find))
}

texts! {
    /// Texts of the list.
    TasksTexts {
        title: "Tasks", "任务";
        states: "States", "状态";
        unfinished: "Unfinished", "未完成";
        all: "All", "全部";
        archived: "Archived", "已归档";
        only_archived: "Archived tasks instead", "改为已归档的任务";
        read_only: "Archived tasks can only be read.", "已归档的任务只能查看。";
        newest: "Newest first.", "最新的在前。";
        prefix: "Key begins with", "键的开头";
        class: "Class", "类";
        method: "Method", "方法";
        tag: "Tag", "标签";
        error: "Error contains", "错误包含";
        error_kind: "Kind of error (# is any number)", "错误类别（# 表示任意数字）";
        reason: "Dead because", "死信原因";
        any: "any", "不限";
        due_after: "Due from", "到期时间从";
        due_before: "Due before", "到期时间早于";
        recurring: "Only recurring tasks", "仅周期任务";
        more: "More filters", "更多筛选";
        copy_command: "Copy as a command", "复制为命令";
        apply: "Filter", "筛选";
        clear: "Clear", "清除";
        key: "Key", "键";
        state: "State", "状态";
        due: "Due or ended", "到期或结束";
        attempt: "Attempt", "尝试";
        latest: "Latest error", "最近错误";
        none: "No task matches.", "没有匹配的任务。";
        none_at_all: "There are no tasks yet.", "还没有任务。";
        searched: "The search stopped after {} rows. Go on with the next page, or set more filters.", "查找了 {} 行后停止。请继续下一页，或增加筛选条件。";
        next: "Next page", "下一页";
        first: "First page", "第一页";
        shown: "{} on this page", "本页 {} 个";
        malformed: "Rows with an invalid key: nothing can run them", "键无效的行：无法执行";
        all_that_match: "All that match", "所有匹配的任务";
        cancel_all: "Cancel all that match…", "取消所有匹配的任务…";
        redrive_all: "Redrive all that match…", "重新投递所有匹配的任务…";
        discard_all: "Discard all that match…", "丢弃所有匹配的任务…";
        change_needs: "To cancel many tasks, choose states of unfinished ones only. To redrive or discard many, choose the state dead only.", "要批量取消，请仅选择未完成的状态；要批量重新投递或丢弃，请仅选择死信状态。";
        schedule: "Schedule a task", "新建任务";
    }
}

#[derive(Template)]
#[template(path = "tasks.html")]
struct Page<'a> {
    f: &'a Frame,
    t: &'static TasksTexts,
    q: &'a TaskQuery,
    /// True if there may be archived tasks.
    has_archive: bool,
    reasons: [Reason; 5],
    states: [&'static str; 7],
    /// The same list as a command.
    command: Option<String>,
    /// False if a filter does not fit: then nothing can be done with those that match.
    fits: bool,
    /// The filter as the API takes it.
    body: String,
    list: Panel,
}

type Parameters = Query<Vec<(String, String)>>;

async fn page(State(app): State<AppState>, frame: Frame, Query(query): Parameters) -> Response {
    let (f, q) = (frame.at(Place::Tasks), TaskQuery::of(query));
    let list = panel(&app, &f, &q).await;
    f.page(&Page {
        f: &f,
        t: TasksTexts::of(f.language()),
        q: &q,
        has_archive: q.archived || app.engine.archives(),
        reasons: Reason::ALL,
        states: STATES,
        command: q.command(&f.preferences.zone),
        fits: q.filter(f.now, &f.preferences.zone).is_ok(),
        body: q.body(&f.preferences.zone),
        list,
    })
}

/// A link to the same list of other states.
struct Tab {
    name: String,
    href: String,
    /// How many tasks of the state there are in all, if that is known now.
    count: Option<String>,
    is_here: bool,
}

fn capitalized(text: &str) -> String {
    let mut chars = text.chars();
    let first = chars.next().into_iter().flat_map(char::to_uppercase);
    first.chain(chars).collect()
}

/// Links to the list of each state, with the number of its tasks if no other filter is set.
async fn tabs(app: &AppState, f: &Frame, q: &TaskQuery) -> Vec<Tab> {
    const PATIENCE: Duration = Duration::from_millis(500);
    let count = timeout(PATIENCE, app.stats_cache.count(&app.tasks)).await;
    let count = count.ok().and_then(Result::ok).filter(|_| !q.has_others());
    let stats = count
        .as_ref()
        .and_then(|it| it.stats.seen_by(&f.caller).ok());
    let number = |state: &str| {
        let stats = stats.as_ref()?;
        let counts = &stats.counts;
        let number = match state {
            "overdue" => counts.overdue,
            "pending" => counts.pending,
            "waiting" => counts.waiting,
            "running" => counts.running,
            "done" => counts.done,
            "dead" => counts.dead,
            "cancelled" => counts.cancelled,
            _ => return None,
        };
        Some(f.counted(&number, &stats.at_least.contains(&state)))
    };
    let tab = |name: &str, states: &[&str]| {
        let of = q.with_states(states);
        Tab {
            name: capitalized(name),
            href: format!("{}/tasks?{}", f.base, of.address("")),
            count: states
                .first()
                .filter(|_| states.len() == 1)
                .and_then(|it| number(it)),
            is_here: q.states == of.states && !q.archived,
        }
    };
    let t = TasksTexts::of(f.language());
    let of_state = STATES.iter().map(|state| tab(f.state(state), &[*state]));
    let mut tabs = vec![tab(t.unfinished, &UNFINISHED)];
    tabs.extend(of_state);
    tabs.push(tab(t.all, &[]));
    if q.archived || app.engine.archives() {
        tabs.push(Tab {
            name: t.archived.to_owned(),
            href: format!("{}/tasks?{}", f.base, q.in_archive().address("")),
            count: None,
            is_here: q.archived,
        });
    }
    tabs
}

#[derive(Template)]
#[template(path = "tasks_list.html")]
struct List<'a> {
    f: &'a Frame,
    t: &'static TasksTexts,
    q: &'a TaskQuery,
    tabs: Vec<Tab>,
    is_newest_first: bool,
    rows: Vec<Row>,
    malformed: Vec<MalformedRow>,
    next: Option<String>,
    searched: Option<u64>,
}

async fn panel_alone(State(app): State<AppState>, f: Frame, Query(query): Parameters) -> Panel {
    panel(&app, &f, &TaskQuery::of(query)).await
}

async fn panel(app: &AppState, f: &Frame, q: &TaskQuery) -> Panel {
    let source = Source {
        name: "tasks",
        query: q.address(&q.cursor),
        shows: "tasks stats pauses",
    };
    Panel::load(f, source, list(app, f, q)).await
}

async fn list<'a>(app: &AppState, f: &'a Frame, q: &'a TaskQuery) -> Result<List<'a>, Problem> {
    let mut filter = q.filter(f.now, &f.preferences.zone)?;
    if !filter.archived && is_running_only(&filter) && is_large(app).await {
        // A search among all that are pending would not end in time. What runs has been due.
        filter.due_before = Some(f.now.plus(Duration::from_secs(1)));
    }
    let cursor = Some(q.cursor.as_str()).filter(|text| !text.is_empty());
    let is_newest_first = filter.is_newest_first();
    let (page, paused, tabs) = tokio::try_join!(
        listing::list(app, &f.caller, filter, cursor),
        app.paused(),
        async { Ok(tabs(app, f, q).await) }
    )?;
    let tasks = page.tasks.into_iter();
    Ok(List {
        f,
        t: TasksTexts::of(f.language()),
        q,
        tabs,
        is_newest_first,
        rows: tasks.map(|task| Row::of(task, &paused, f)).collect(),
        malformed: page.malformed,
        next: page.next,
        searched: page.searched,
    })
}

/// True if running tasks are asked for, whenever they were due.
fn is_running_only(filter: &ListFilter) -> bool {
    filter.states == [StateFilter::Is(TaskState::Running)] && filter.due_before.is_none()
}

/// True if not all unfinished tasks are looked at when they are counted.
async fn is_large(app: &AppState) -> bool {
    let count = app.stats_cache.count(&app.tasks).await;
    count.is_ok_and(|count| count.stats.methods_of.is_some())
}

/// True if the page of this key shows a task, be it an archived one.
async fn is_there(app: &AppState, key: &TaskKey) -> bool {
    match app.tasks.find(key).await {
        Ok(None) if app.engine.archives() => {
            matches!(app.tasks.find_archived(key).await, Ok(Some(_)))
        }
        found => matches!(found, Ok(Some(_))),
    }
}

#[derive(serde::Deserialize)]
struct Wanted {
    #[serde(default)]
    q: String,
}

/// Goes to what a text means: the task of this key or id, else the list of those with this tag, with keys that begin with the
/// text, of this class, or with a latest error that contains it. The first that has a task counts.
async fn find(
    State(app): State<AppState>,
    f: Frame,
    Query(Wanted { q }): Query<Wanted>,
) -> Response {
    let text = q.trim();
    let to = |path: String| Redirect::to(&path).into_response();
    match TaskInPath::parse(text) {
        Ok(TaskInPath::Key(key)) => {
            if f.caller.require_key(&key).is_ok() && is_there(&app, &key).await {
                return to(f.key_href(&key));
            }
        }
        Ok(TaskInPath::Row(row, _)) => {
            if let Ok(Some(_)) = listing::task_in_row(&app, &f.caller, row, false).await {
                return to(format!("{}/task?id={}", f.base, encoded(text)));
            }
        }
        Err(_) => {}
    }
    let owned = || text.to_owned();
    let meanings = [
        ("tag", ListFilter::tag(owned())),
        ("prefix", ListFilter::prefix(owned())),
        ("class", ListFilter::class(owned())),
        (
            "error",
            ListFilter {
                error: Some(owned()),
                ..ListFilter::default()
            },
        ),
    ];
    let list = |name: &str| format!("{}/tasks?{name}={}", f.base, encoded(text));
    for (name, filter) in meanings {
        let filter = ListFilter { limit: 1, ..filter };
        let found = listing::list(&app, &f.caller, filter, None).await;
        if found.is_ok_and(|found| !found.tasks.is_empty()) {
            return to(list(name));
        }
    }
    to(list("prefix"))
}

//! What falls due next.

use askama::Template;
use axum::Router;
use axum::extract::{Query, State};
use axum::response::Response;
use axum::routing::get;
use serde::Deserialize;

use super::frame::{Frame, Place, encoded};
use super::panel::Panel;
use super::row::Row;
use super::texts::texts;
use super::timeline::Timeline;
use super::{NoQuery, PanelContent, panel, panel_route, parameter};
use crate::http::app_state::AppState;
use crate::http::listing;
use crate::http::problem::Problem;
use lapsed::ledger::{ListFilter, StateFilter, TaskRecord};
use lapsed::task::{Paused, State as TaskState};

/// Tasks on the page.
const LIMIT: u32 = 100;

/// Routes of the page and its panel.
pub fn routes() -> Router<AppState> {
    Router::new()
        .route("/upcoming", get(page))
        .merge(panel_route::<List>())
        .merge(panel_route::<Ahead>())
}

texts! {
    /// Texts of the page.
    UpcomingTexts {
        title: "Upcoming", "即将到期";
        lead: "What falls due next, soonest first.", "接下来到期的任务，最早的在前。";
        class: "Only class", "仅类";
        apply: "Show", "显示";
        clear: "Clear", "清除";
        key: "Key", "键";
        state: "State", "状态";
        due: "Due", "到期";
        attempt: "Attempt", "尝试";
        latest: "Latest error", "最近错误";
        tag: "Tag", "标签";
        minute: "Within a minute", "一分钟内";
        ten_minutes: "Within ten minutes", "十分钟内";
        hour: "Within an hour", "一小时内";
        day: "Within a day", "一天内";
        later: "Later", "更晚";
        none: "Nothing falls due: there are no pending tasks.", "没有待执行的任务。";
        overdue: "Overdue tasks are not shown here.", "此处不显示逾期任务。";
        show_overdue: "Show overdue tasks", "查看逾期任务";
        more: "The next {} tasks. There are more.", "接下来的 {} 个任务，后面还有更多。";
        ahead: "How many fall due when", "到期分布";
        ahead_all: "Within a day: {}", "一天内：{} 个";
        ahead_part: "Until {}: {}. Later ones were not counted.", "至 {}：{} 个，之后的未统计。";
        ahead_unknown: "Not counted", "未统计";
        ahead_bar: "{} from {}", "{} 个，起始 {}";
        ahead_scale: "Most in {}: {}", "每 {} 最多 {} 个";
        ahead_none: "Nothing falls due within a day.", "一天内没有到期的任务。";
        show_more: "Show later ones", "查看更晚的任务";
    }
}

#[derive(Deserialize)]
struct Wanted {
    #[serde(default)]
    class: String,
}

#[derive(Template)]
#[template(path = "upcoming.html")]
struct Page<'a> {
    f: &'a Frame,
    t: &'static UpcomingTexts,
    class: &'a str,
    ahead: Option<Panel>,
    list: Panel,
}

async fn page(State(app): State<AppState>, frame: Frame, Query(wanted): Query<Wanted>) -> Response {
    let f = frame.at(Place::Upcoming);
    let ahead = async {
        // The forecast is of all classes.
        match wanted.class.is_empty() {
            true => Some(panel::<Ahead>(&app, &f, &NoQuery {}).await),
            false => None,
        }
    };
    let (ahead, list) = tokio::join!(ahead, panel::<List>(&app, &f, &wanted));
    f.page(&Page {
        f: &f,
        t: UpcomingTexts::of(f.language()),
        class: &wanted.class,
        ahead,
        list,
    })
}

#[derive(Template)]
#[template(path = "upcoming_ahead.html")]
struct Ahead<'a> {
    f: &'a Frame,
    t: &'static UpcomingTexts,
    timeline: Option<Timeline>,
}

impl PanelContent for Ahead<'_> {
    const NAME: &'static str = "ahead";
    const SHOWS: &'static str = "tasks stats";
    const IS_PER_CLASS: bool = false;
    type Query = NoQuery;
    type Content<'a> = Ahead<'a>;

    async fn load<'a>(
        app: &'a AppState,
        f: &'a Frame,
        _: &'a NoQuery,
    ) -> Result<Ahead<'a>, Problem> {
        let ahead = app.stats_cache.ahead(&app.tasks).await?;
        Ok(Ahead {
            f,
            t: UpcomingTexts::of(f.language()),
            timeline: Timeline::of(&ahead),
        })
    }
}

/// Tasks that fall due within the same length of time from now.
struct Group {
    name: &'static str,
    rows: Vec<Row>,
}

#[derive(Template)]
#[template(path = "upcoming_list.html")]
struct List<'a> {
    f: &'a Frame,
    t: &'static UpcomingTexts,
    groups: Vec<Group>,
    /// The address of those that come later, and the number of those that are shown.
    later: Option<(String, usize)>,
}

impl PanelContent for List<'_> {
    const NAME: &'static str = "upcoming";
    const SHOWS: &'static str = "tasks stats pauses";
    type Query = Wanted;
    type Content<'a> = List<'a>;

    fn address(query: &Wanted) -> String {
        parameter("class", &query.class)
    }

    async fn load<'a>(
        app: &'a AppState,
        f: &'a Frame,
        query: &'a Wanted,
    ) -> Result<List<'a>, Problem> {
        let class = &query.class;
        let filter = ListFilter {
            states: vec![
                StateFilter::Is(TaskState::Pending),
                StateFilter::Is(TaskState::Waiting),
            ],
            class: (!class.is_empty()).then(|| class.to_owned()),
            due_after: Some(f.now),
            limit: LIMIT,
            ..ListFilter::default()
        };
        let (page, paused) =
            tokio::try_join!(listing::list(app, &f.caller, filter, None), app.paused())?;
        let later = page.next.is_some().then(|| {
            let from = page.tasks.last().map_or(f.now, |task| task.due_at);
            let class = encoded(class);
            let from = encoded(&from.to_string());
            let query = format!("state=pending,waiting&class={class}&due_after={from}");
            (format!("{}/tasks?{query}", f.base), page.tasks.len())
        });
        Ok(List {
            f,
            t: UpcomingTexts::of(f.language()),
            groups: groups(page.tasks, &paused, f),
            later,
        })
    }
}

fn groups(tasks: Vec<TaskRecord>, paused: &Paused, f: &Frame) -> Vec<Group> {
    let t = UpcomingTexts::of(f.language());
    let ends = [
        (60_000, t.minute),
        (600_000, t.ten_minutes),
        (3_600_000, t.hour),
        (86_400_000, t.day),
        (i64::MAX, t.later),
    ];
    let mut groups: Vec<Group> = Vec::new();
    for task in tasks {
        let ahead = task.due_at.0.saturating_sub(f.now.0);
        let end = ends.iter().find(|(end, _)| ahead < *end);
        let (_, name) = end.unwrap_or(&ends[ends.len() - 1]);
        let row = Row::of(task, paused, f);
        match groups.last_mut() {
            Some(group) if group.name == *name => group.rows.push(row),
            _ => groups.push(Group {
                name,
                rows: vec![row],
            }),
        }
    }
    groups
}

//! The overview: is it on time?

mod counts;
mod history;
mod methods;
mod parts;
mod state;
mod verdict;

pub use self::state::worst;
pub use self::verdict::Shown;
use askama::Template;
use axum::Router;
use axum::extract::{Query, State};
use axum::response::Response;
use axum::routing::get;

use super::frame::{Frame, Place};
use super::panel::{Panel, Source};
use super::texts::texts;
use crate::http::app_state::AppState;

/// Routes of the page and its panels.
pub fn routes() -> Router<AppState> {
    Router::new()
        .route("/", get(page))
        .route("/panels/verdict", get(state::alone))
        .route("/panels/counts", get(counts::alone))
        .route("/panels/history", get(history::alone))
        .route("/panels/methods", get(methods::alone))
        .route("/panels/parts", get(parts::alone))
}

texts! {
    /// Texts of the overview.
    OverviewTexts {
        title: "Overview", "总览";
        verdict: "State of the installation", "运行状态";
        counts: "Tasks by state", "按状态统计";
        at_least: "at least", "至少";
        counted_before: "Counted", "统计时间：";
        methods: "By class and method", "按类与方法";
        methods_part: "Of the {} unfinished tasks that fall due first: there are more, also of other classes", "仅统计最先到期的 {} 个未完成任务，实际更多，也可能有其他类";
        no_methods: "No unfinished tasks.", "没有未完成的任务。";
        class_method: "Class@method", "类@方法";
        pending: "Pending", "待执行";
        running: "Running", "执行中";
        waiting: "Waiting", "等待重试";
        overdue: "Overdue", "已逾期";
        dead: "Dead", "死信";
        done: "Done", "已完成";
        cancelled: "Cancelled", "已取消";
        oldest: "oldest {}", "最久 {}";
        due_to_done: "Due to done, p50 / p99 of the latest 1,000 done", "到期至完成 p50 / p99（最近完成的 1,000 个）";
        parts: "Parts of this daemon", "此守护进程的组成";
        ledger: "Ledger", "账本";
        answers: "answers", "响应正常";
        no_answer: "does not answer", "没有响应";
        events: "Expiry events", "过期事件";
        arrive: "arrive", "正常接收";
        do_not_arrive: "do not arrive", "未接收";
        not_used: "not used", "未使用";
        daemons: "Daemons that share the ledger", "共享账本的守护进程";
        runs_now: "Runs in this daemon", "此守护进程的执行数";
        background: "Background task", "后台任务";
        latest_pass: "Latest pass", "最近一次";
        took: "Took", "耗时";
        passes: "Passes", "次数";
        never: "not yet", "尚未";
        failed: "failed: {}", "失败：{}";
    }
}

async fn page(
    State(app): State<AppState>,
    frame: Frame,
    Query(wanted): Query<history::Wanted>,
) -> Response {
    let f = frame.at(Place::Overview);
    let (verdict, counts, history, methods, parts) = tokio::join!(
        state::panel(&app, &f),
        counts::panel(&app, &f),
        history::panel(&app, &f, wanted.span()),
        methods::panel(&app, &f),
        parts::panel(&app, &f),
    );
    f.page(&Page {
        t: OverviewTexts::of(f.language()),
        f: &f,
        verdict,
        counts,
        history,
        methods,
        parts,
    })
}

#[derive(Template)]
#[template(path = "overview.html")]
struct Page<'a> {
    f: &'a Frame,
    t: &'static OverviewTexts,
    verdict: Panel,
    counts: Panel,
    history: Panel,
    methods: Panel,
    parts: Panel,
}

fn source(name: &'static str, shows: &'static str) -> Source {
    Source {
        name,
        query: String::new(),
        shows,
    }
}

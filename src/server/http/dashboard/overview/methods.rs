//! Numbers of tasks by class and method.

use askama::Template;
use axum::extract::State;

use super::{OverviewTexts, source};
use crate::http::app_state::AppState;
use crate::http::dashboard::frame::Frame;
use crate::http::dashboard::panel::Panel;
use crate::http::problem::Problem;
use lapsed::ledger::MethodStats;

#[derive(Template)]
#[template(path = "overview_methods.html")]
struct Methods<'a> {
    f: &'a Frame,
    t: &'static OverviewTexts,
    methods: Vec<MethodStats>,
    /// The number of unfinished tasks that were looked at, if not all.
    of: Option<u64>,
    is_part: bool,
    /// True if not all overdue tasks were looked at.
    is_part_of_overdue: bool,
    /// True if not all dead tasks were looked at.
    is_part_of_dead: bool,
}

pub(super) async fn alone(State(app): State<AppState>, f: Frame) -> Panel {
    panel(&app, &f).await
}

pub(super) async fn panel(app: &AppState, f: &Frame) -> Panel {
    Panel::load(f, source("methods", "stats"), methods(app, f)).await
}

async fn methods<'a>(app: &AppState, f: &'a Frame) -> Result<Methods<'a>, Problem> {
    /// Maximum number of rows.
    const MOST: usize = 25;
    let count = app.stats_cache.count(&app.tasks).await?;
    let stats = count.stats.seen_by(&f.caller)?.into_owned();
    // Overdue tasks fall due before all others, so they are looked at first.
    let overdue: u64 = stats.methods.iter().map(|method| method.overdue).sum();
    let is_part_of_overdue = stats.methods_of.is_some() && overdue < stats.counts.overdue;
    let mut methods = stats.methods;
    methods.sort_by_key(|method| {
        let unfinished = method.pending + method.waiting + method.running;
        std::cmp::Reverse((method.overdue_ms_max, method.dead, unfinished))
    });
    methods.truncate(MOST);
    Ok(Methods {
        f,
        t: OverviewTexts::of(f.language()),
        methods,
        of: stats.methods_of.map(u64::from),
        is_part: stats.methods_of.is_some(),
        is_part_of_overdue,
        is_part_of_dead: stats.methods_of_dead.is_some(),
    })
}

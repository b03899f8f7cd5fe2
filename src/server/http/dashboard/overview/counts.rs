//! Numbers of tasks by state.

use askama::Template;
use axum::extract::State;

use super::{OverviewTexts, source};
use crate::http::app_state::AppState;
use crate::http::dashboard::frame::Frame;
use crate::http::dashboard::panel::Panel;
use crate::http::problem::Problem;
use lapsed::task::UnixMs;

/// A number of tasks, with the list that it counts.
struct Tile {
    name: &'static str,
    state: &'static str,
    count: u64,
    is_at_least: bool,
    /// True if nothing is known: none was found, but not all were looked at.
    is_unknown: bool,
    /// More about it.
    detail: Option<String>,
    /// True if it should be zero.
    is_trouble: bool,
}

#[derive(Template)]
#[template(path = "overview_counts.html")]
struct Counts<'a> {
    f: &'a Frame,
    t: &'static OverviewTexts,
    tiles: Vec<Tile>,
    at: UnixMs,
}

pub(super) async fn alone(State(app): State<AppState>, f: Frame) -> Panel {
    panel(&app, &f).await
}

pub(super) async fn panel(app: &AppState, f: &Frame) -> Panel {
    Panel::load(f, source("counts", "stats"), counts(app, f)).await
}

async fn counts<'a>(app: &AppState, f: &'a Frame) -> Result<Counts<'a>, Problem> {
    let t = OverviewTexts::of(f.language());
    let count = app.stats_cache.count(&app.tasks).await?;
    let stats = count.stats.seen_by(&f.caller)?;
    let counts = &stats.counts;
    let tile = |name, state, number| Tile {
        name,
        state,
        count: number,
        is_at_least: stats.at_least.contains(&state),
        is_unknown: number == 0 && stats.at_least.contains(&state),
        detail: None,
        is_trouble: false,
    };
    let oldest = f.fill(t.oldest, &[&f.took(&counts.overdue_ms_max)]);
    let mut tiles = vec![
        Tile {
            detail: (counts.overdue > 0).then_some(oldest),
            is_trouble: counts.overdue_ms_max > 3_000,
            ..tile(t.overdue, "overdue", counts.overdue)
        },
        tile(t.running, "running", counts.running),
        tile(t.pending, "pending", counts.pending),
        tile(t.waiting, "waiting", counts.waiting),
        Tile {
            is_trouble: counts.dead > 0,
            ..tile(t.dead, "dead", counts.dead)
        },
        tile(t.done, "done", counts.done),
        tile(t.cancelled, "cancelled", counts.cancelled),
    ];
    if f.caller.is_restricted() {
        // Not counted by class.
        tiles.retain(|tile| !stats.at_least.contains(&tile.state));
    }
    Ok(Counts {
        f,
        t,
        tiles,
        at: count.at,
    })
}

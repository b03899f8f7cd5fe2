//! The parts of this daemon.

use std::time::Duration;

use askama::Template;
use axum::extract::State;

use super::{OverviewTexts, source};
use crate::http::app_state::AppState;
use crate::http::dashboard::frame::Frame;
use crate::http::dashboard::panel::Panel;
use lapsed::task::UnixMs;

/// A background task of the engine.
struct Background {
    name: &'static str,
    started: Option<UnixMs>,
    took_ms: Option<u64>,
    passes: u64,
    error: Option<String>,
}

#[derive(Template)]
#[template(path = "overview_parts.html")]
struct Parts<'a> {
    f: &'a Frame,
    t: &'static OverviewTexts,
    ledger_answers: bool,
    ledger_trouble: String,
    is_listening: Option<bool>,
    members: u64,
    running: u64,
    background: Vec<Background>,
}

pub(super) async fn alone(State(app): State<AppState>, f: Frame) -> Panel {
    panel(&app, &f).await
}

pub(super) async fn panel(app: &AppState, f: &Frame) -> Panel {
    let engine = &app.engine;
    let ms = |length: Duration| u64::try_from(length.as_millis()).unwrap_or(u64::MAX);
    let background = engine.background().into_iter().map(|task| Background {
        name: task.name,
        started: task.started_ago.map(|ago| UnixMs(f.now.0 - ms(ago) as i64)),
        took_ms: task.took.map(ms),
        passes: task.passes,
        error: task.error,
    });
    let parts = Parts {
        f,
        t: OverviewTexts::of(f.language()),
        ledger_answers: engine.ledger_answers(),
        ledger_trouble: engine.ledger_trouble().unwrap_or_default(),
        is_listening: engine.is_listening(),
        members: engine.members() as u64,
        running: engine.running() as u64,
        background: background.collect(),
    };
    Panel::load_unrestricted(f, source("parts", "stats workers"), async { Ok(parts) }).await
}

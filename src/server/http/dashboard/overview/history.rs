//! Charts of the last hours: was it on time, and which net started the tasks?

use std::time::Duration;

use askama::Template;
use axum::extract::{Query, State};
use serde::{Deserialize, Serialize};

use crate::http::app_state::AppState;
use crate::http::dashboard::frame::Frame;
use crate::http::dashboard::panel::{Panel, Source};
use crate::http::dashboard::texts::texts;
use lapsed::engine::{HISTORY_KEPT, HistoryPoint, PerSource};
use lapsed::task::UnixMs;

/// The lengths of time that are offered: their name, and the minutes of a point.
const SPANS: [(&str, u64, u64); 3] = [("1h", 60, 1), ("6h", 360, 5), ("24h", 1440, 15)];

/// Rows of the table.
const ROWS: usize = 12;

texts! {
    /// Texts of the charts.
    HistoryTexts {
        title: "The last hours", "最近几小时";
        lateness: "Start after due time", "到期后多久开始";
        lateness_unit: "ms, logarithmic", "毫秒，对数刻度";
        started: "Started per minute", "每分钟开始的任务";
        started_unit: "by what started them", "按触发来源";
        p50: "p50", "p50";
        p99: "p99", "p99";
        max: "max", "最大";
        pull: "p99 of workers", "拉取 p99";
        event: "key expired", "键过期";
        nudge: "on time", "准点";
        sweep: "found late", "补扫（延迟）";
        direct: "at once", "立即";
        failed: "failed", "失败";
        dead: "dead", "死信";
        table: "As a table", "以表格显示";
        from: "From", "起始";
        none: "Nothing is recorded yet: the first minute is shown when it is over.", "尚无记录：第一分钟结束后显示。";
        no_start: "No task has started in this time.", "这段时间内没有任务开始。";
        span: "Length of time", "时间范围";
        of_all: "{} started, {} of them found late", "开始 {} 个，其中补扫 {} 个";
    }
}

#[derive(Deserialize)]
pub(super) struct Wanted {
    #[serde(default)]
    span: String,
}

impl Wanted {
    pub(super) fn span(&self) -> &str {
        &self.span
    }
}

/// The figures of a chart, in columns.
#[derive(Serialize, Default)]
struct Columns {
    /// Start of each point, seconds since 1970.
    at: Vec<i64>,
    p50: Vec<Option<u64>>,
    p99: Vec<Option<u64>>,
    max: Vec<Option<u64>>,
    /// p99 of pull queues: how late workers ask.
    pull: Vec<Option<u64>>,
    /// Starts per minute; `null` where nothing was recorded.
    event: Vec<Option<f64>>,
    nudge: Vec<Option<f64>>,
    sweep: Vec<Option<f64>>,
    direct: Vec<Option<f64>>,
    failed: Vec<Option<f64>>,
}

impl Columns {
    fn of(points: &[HistoryPoint], minutes: u64) -> Self {
        let mut columns = Self::default();
        for point in points {
            let is_known = point.daemons > 0;
            let rate = |count: u64| is_known.then(|| count as f64 / minutes as f64);
            let PerSource {
                event,
                nudge,
                sweep,
                direct,
            } = point.started;
            columns.at.push(point.at.0 / 1000);
            columns.p50.push(point.lateness.map(|late| late.p50_ms));
            columns.p99.push(point.lateness.map(|late| late.p99_ms));
            columns.max.push(point.lateness.map(|late| late.max_ms));
            let pull = point.lateness_pull.map(|late| late.p99_ms);
            columns.pull.push(pull);
            columns.event.push(rate(event));
            columns.nudge.push(rate(nudge));
            columns.sweep.push(rate(sweep));
            columns.direct.push(rate(direct));
            columns.failed.push(rate(point.failed));
        }
        columns
    }
}

/// A row of the table.
struct Row {
    from: UnixMs,
    started: PerSource<u64>,
    failed: u64,
    dead: u64,
    /// p50, p99 and maximum, in milliseconds.
    late: Option<(u64, u64, u64)>,
    /// p99 of pull queues, in milliseconds.
    pull: Option<u64>,
}

#[derive(Template)]
#[template(path = "overview_history.html")]
struct History<'a> {
    f: &'a Frame,
    t: &'static HistoryTexts,
    /// The lengths of time, and whether each is the one that is shown.
    spans: Vec<(&'static str, bool)>,
    /// The columns, JSON.
    columns: String,
    /// The names of the columns, JSON.
    names: String,
    started: u64,
    by_sweep: u64,
    is_recorded: bool,
    rows: Vec<Row>,
}

pub(super) async fn alone(
    State(app): State<AppState>,
    f: Frame,
    Query(wanted): Query<Wanted>,
) -> Panel {
    panel(&app, &f, wanted.span()).await
}

/// Loads the charts of a length of time: `1h`, `6h` or `24h`.
pub(super) async fn panel(app: &AppState, f: &Frame, span: &str) -> Panel {
    let chosen = SPANS.iter().find(|(name, ..)| *name == span);
    let (span, minutes, step) = *chosen.unwrap_or(&SPANS[0]);
    let source = Source {
        name: "history",
        query: format!("span={span}"),
        // A minute is added each minute: the regular look of the page is enough.
        shows: "",
    };
    Panel::load_unrestricted(f, source, async {
        let length = |minutes: u64| Duration::from_secs(minutes * 60).min(HISTORY_KEPT);
        let history = app.engine.history();
        let points = history.points(length(minutes), length(step)).await;
        let t = HistoryTexts::of(f.language());
        let started = points.iter().map(|point| point.started.total()).sum();
        let by_sweep = points.iter().map(|point| point.started.sweep).sum();
        let known = points.iter().filter(|point| point.daemons > 0);
        Ok(History {
            f,
            t,
            spans: SPANS.map(|(name, ..)| (name, name == span)).to_vec(),
            columns: json(&Columns::of(&points, step)),
            names: json(&[
                t.p50, t.p99, t.max, t.event, t.nudge, t.sweep, t.direct, t.failed, t.pull,
            ]),
            started,
            by_sweep,
            is_recorded: known.clone().next().is_some(),
            rows: known.rev().take(ROWS).map(Row::of).collect(),
        })
    })
    .await
}

fn json(value: &impl Serialize) -> String {
    serde_json::to_string(value).expect("numbers and texts are JSON")
}

impl Row {
    fn of(point: &HistoryPoint) -> Self {
        let late = point.lateness;
        Self {
            from: point.at,
            started: point.started,
            failed: point.failed,
            dead: point.dead,
            late: late.map(|late| (late.p50_ms, late.p99_ms, late.max_ms)),
            pull: point.lateness_pull.map(|late| late.p99_ms),
        }
    }
}

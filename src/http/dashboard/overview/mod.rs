//! The overview: is it on time?

mod history;
mod verdict;

use std::time::Duration;

use askama::Template;
use axum::Router;
use axum::extract::{Query, State};
use axum::response::Response;
use axum::routing::get;

use self::verdict::{Blocked, Cause, Facts, Finding, Severity, VerdictTexts};
use super::figures::Count;
use super::frame::{Frame, Place};
use super::panel::{Panel, Source};
use super::texts::texts;
use crate::http::divided::stats_of;
use crate::http::problem::Problem;
use crate::http::site::Site;
use crate::ledger::MethodStats;
use crate::task::{Pause, PauseKind, Paused, TaskKey, UnixMs};

/// Routes of the page and its panels.
pub fn routes() -> Router<Site> {
    Router::new()
        .route("/", get(page))
        .route("/panels/verdict", get(verdict_alone))
        .route("/panels/counts", get(counts_alone))
        .route("/panels/history", get(history::alone))
        .route("/panels/methods", get(methods_alone))
        .route("/panels/parts", get(parts_alone))
}

texts! {
    /// Texts of the overview.
    OverviewTexts {
        title: "Overview", "总览";
        verdict: "State of the installation", "运行状态";
        counts: "Tasks by state", "按状态统计";
        at_least: "at least", "至少";
        counted_before: "Counted", "统计于";
        methods: "By class and method", "按类与方法";
        methods_part: "Of the {} unfinished tasks that fall due first", "仅统计最先到期的 {} 个未完成任务";
        no_methods: "No unfinished tasks.", "没有未完成的任务。";
        class_method: "Class@method", "类@方法";
        pending: "Pending", "待执行";
        running: "Running", "执行中";
        waiting: "Waiting", "等待重试";
        overdue: "Overdue", "已超时";
        dead: "Dead", "死信";
        done: "Done", "已完成";
        cancelled: "Cancelled", "已取消";
        oldest: "oldest {}", "最早 {}";
        due_to_done: "Due to done, p50 / p99", "到期至完成 p50 / p99";
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
    State(site): State<Site>,
    frame: Frame,
    Query(wanted): Query<history::Wanted>,
) -> Response {
    let f = frame.at(Place::Overview);
    let (verdict, counts, history, methods, parts) = tokio::join!(
        verdict_panel(&site, &f),
        counts_panel(&site, &f),
        history::panel(&site, &f, wanted.span()),
        methods_panel(&site, &f),
        parts_panel(&site, &f),
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
#[template(
    path = "overview.html",
    config = "src/http/dashboard/templates/askama.toml"
)]
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

#[derive(Template)]
#[template(
    path = "overview_verdict.html",
    config = "src/http/dashboard/templates/askama.toml"
)]
struct VerdictPart<'a> {
    f: &'a Frame,
    t: &'static OverviewTexts,
    v: &'static VerdictTexts,
    /// How late the tasks of the last hour started.
    on_time: Option<String>,
    /// The worst finding, if it is worse than a note.
    worst: Option<Finding>,
    /// The others.
    findings: Vec<Finding>,
}

async fn verdict_alone(State(site): State<Site>, f: Frame) -> Panel {
    verdict_panel(&site, &f).await
}

async fn verdict_panel(site: &Site, f: &Frame) -> Panel {
    let source = source("verdict", "stats pauses workers");
    Panel::load(f, source, async {
        let facts = facts(site, f).await?;
        let on_time = verdict::on_time(&facts, f.language());
        let mut findings = verdict::findings(&facts, f.language());
        let is_trouble = |first: &Finding| first.severity != Severity::Note;
        let worst = findings.first().is_some_and(is_trouble);
        Ok(VerdictPart {
            f,
            t: OverviewTexts::of(f.language()),
            v: VerdictTexts::of(f.language()),
            on_time,
            worst: worst.then(|| findings.remove(0)),
            findings,
        })
    })
    .await
}

/// What the verdict is about. A ledger that fails is one of the facts.
///
/// # Errors
/// The table is too large to say so of the caller's classes alone.
async fn facts(site: &Site, f: &Frame) -> Result<Facts, Problem> {
    let caller = &f.caller;
    let count = async { Ok::<_, Problem>(site.figures.count(&site.tasks).await?) };
    let known = tokio::try_join!(count, site.pauses());
    let trouble = match site.engine.ledger_answers() {
        true => known.as_ref().err().map(|it| it.detail().to_owned()),
        false => Some(site.engine.ledger_trouble().unwrap_or_default()),
    };
    let failing = site.engine.background().into_iter();
    // What is not divided by class is left out for a limited caller.
    let failing = failing.filter(|_| !caller.is_limited());
    let failing = failing.filter_map(|task| Some((task.name, task.error?)));
    let known = known.ok();
    let hour = Duration::from_secs(3600);
    let lately = site.engine.history().points(hour, hour).await.pop();
    let lately = lately.filter(|_| !caller.is_limited());
    let counts = known.as_ref();
    let counts = counts.map(|(count, _)| stats_of(&count.stats, caller));
    let counts = counts.transpose()?.map(|stats| stats.counts);
    let pauses = known
        .as_ref()
        .map_or(&[][..], |(_, pauses)| pauses.as_slice());
    let pauses = pauses.iter().filter_map(|pause| caller.pause_seen(pause));
    let pauses: Vec<Pause> = pauses.collect();
    let stands = |pause: &&Pause| pause.kind == PauseKind::Pause;
    Ok(Facts {
        is_listening: site.engine.is_listening(),
        is_stopping: site.engine.is_stopping(),
        counts,
        // What is not divided by class is left out for a limited caller.
        gone: match caller.is_limited() {
            true => Vec::new(),
            false => site.engine.gone(hour),
        },
        blocked: known.and_then(|(count, pauses)| blocked(site, f, &count, &pauses)),
        dead_lately: lately.as_ref().map_or(0, |hour| hour.dead),
        late: lately.and_then(|hour| hour.lateness),
        pauses: pauses.iter().filter(stands).count(),
        all_paused: pauses
            .iter()
            .filter(stands)
            .any(|pause| pause.scope.is_everything()),
        has_hold: pauses.iter().any(|pause| pause.kind == PauseKind::Hold),
        // If the ledger does not answer, everything that asks it fails: that is said once.
        failing: match trouble {
            Some(_) => Vec::new(),
            None => failing.collect(),
        },
        ledger_trouble: trouble,
    })
}

/// A number of tasks, with the list that it counts.
struct Figure {
    name: &'static str,
    state: &'static str,
    count: u64,
    is_at_least: bool,
    /// More about it.
    detail: Option<String>,
    /// True if it should be zero.
    is_trouble: bool,
}

/// Which tasks of the caller's are overdue, and why. With many tasks, as far as they are counted.
fn blocked(site: &Site, f: &Frame, count: &Count, all_pauses: &[Pause]) -> Option<Blocked> {
    let methods = count.stats.methods.iter();
    let overdue = methods.filter(|method| method.overdue > 0);
    let keyed = overdue.filter_map(|method| Some((TaskKey::parse(&method.name).ok()?, method)));
    let own = keyed.filter(|(key, _)| f.caller.may_touch(key));
    let (key, most) = own.max_by_key(|(_, method)| method.overdue)?;
    let engine = &site.engine;
    // Workers may ask another daemon.
    let queue = engine.pull_queue_of(&key);
    let queue = queue.filter(|_| engine.members() == 1 && !f.caller.is_limited());
    let is_asked = |queue: &str| {
        let queues = engine.pull().status().into_iter();
        let mut queues = queues.filter(|status| status.queue == queue);
        queues.any(|status| {
            let mut workers = status.workers.iter();
            workers.any(|worker| worker.waiting > 0 || worker.seen_ago <= status.visibility)
        })
    };
    let cause = match queue {
        _ if Paused::of(all_pauses).hinders(&key, UnixMs(0)).is_some() => Cause::Paused,
        Some(queue) if !is_asked(&queue) => Cause::NoWorker(queue.to_string()),
        _ => Cause::Unknown,
    };
    Some(Blocked {
        name: most.name.clone(),
        cause,
    })
}

#[derive(Template)]
#[template(
    path = "overview_counts.html",
    config = "src/http/dashboard/templates/askama.toml"
)]
struct Counts<'a> {
    f: &'a Frame,
    t: &'static OverviewTexts,
    figures: Vec<Figure>,
    at: UnixMs,
}

async fn counts_alone(State(site): State<Site>, f: Frame) -> Panel {
    counts_panel(&site, &f).await
}

async fn counts_panel(site: &Site, f: &Frame) -> Panel {
    Panel::load(f, source("counts", "stats"), counts(site, f)).await
}

async fn counts<'a>(site: &Site, f: &'a Frame) -> Result<Counts<'a>, Problem> {
    let t = OverviewTexts::of(f.language());
    let count = site.figures.count(&site.tasks).await?;
    let stats = stats_of(&count.stats, &f.caller)?;
    let counts = &stats.counts;
    let figure = |name, state, number| Figure {
        name,
        state,
        count: number,
        is_at_least: stats.at_least.contains(&state),
        detail: None,
        is_trouble: false,
    };
    let oldest = f.fill(t.oldest, &[&f.took(&counts.overdue_ms_max)]);
    let mut figures = vec![
        Figure {
            detail: (counts.overdue > 0).then_some(oldest),
            is_trouble: counts.overdue_ms_max > 3_000,
            ..figure(t.overdue, "overdue", counts.overdue)
        },
        figure(t.running, "running", counts.running),
        figure(t.pending, "pending", counts.pending),
        figure(t.waiting, "waiting", counts.waiting),
        Figure {
            is_trouble: counts.dead > 0,
            ..figure(t.dead, "dead", counts.dead)
        },
        figure(t.done, "done", counts.done),
        figure(t.cancelled, "cancelled", counts.cancelled),
    ];
    if f.caller.is_limited() {
        // Not counted by class.
        figures.retain(|figure| !stats.at_least.contains(&figure.state));
    }
    Ok(Counts {
        f,
        t,
        figures,
        at: count.at,
    })
}

#[derive(Template)]
#[template(
    path = "overview_methods.html",
    config = "src/http/dashboard/templates/askama.toml"
)]
struct Methods<'a> {
    f: &'a Frame,
    t: &'static OverviewTexts,
    methods: Vec<MethodStats>,
    /// The number of unfinished tasks that were looked at, if not all.
    of: Option<u64>,
}

async fn methods_alone(State(site): State<Site>, f: Frame) -> Panel {
    methods_panel(&site, &f).await
}

async fn methods_panel(site: &Site, f: &Frame) -> Panel {
    Panel::load(f, source("methods", "stats"), methods(site, f)).await
}

async fn methods<'a>(site: &Site, f: &'a Frame) -> Result<Methods<'a>, Problem> {
    /// Maximum number of rows.
    const MOST: usize = 25;
    let count = site.figures.count(&site.tasks).await?;
    let stats = stats_of(&count.stats, &f.caller)?.into_owned();
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
    })
}

/// A background task of the engine.
struct Background {
    name: &'static str,
    started: Option<UnixMs>,
    took_ms: Option<u64>,
    passes: u64,
    error: Option<String>,
}

#[derive(Template)]
#[template(
    path = "overview_parts.html",
    config = "src/http/dashboard/templates/askama.toml"
)]
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

async fn parts_alone(State(site): State<Site>, f: Frame) -> Panel {
    parts_panel(&site, &f).await
}

async fn parts_panel(site: &Site, f: &Frame) -> Panel {
    let engine = &site.engine;
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
    Panel::load_undivided(f, source("parts", "stats workers"), async { Ok(parts) }).await
}

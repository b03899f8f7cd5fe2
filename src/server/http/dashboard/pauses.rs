//! Pauses and the hold: what does not start, and the buttons that change it.

use std::collections::BTreeSet;
use std::time::Duration;

use askama::Template;
use axum::Router;
use axum::extract::State;
use axum::response::Response;
use axum::routing::get;
use tokio::time::timeout;

use super::call_button::{CallButton, query, scope_name};
use super::frame::{Frame, Place};
use super::moment::Moment;
use super::panel::Panel;
use super::texts::texts;
use super::{NoQuery, PanelContent, panel, panel_route};
use crate::http::app_state::AppState;
use crate::http::problem::Problem;
use crate::http::stats_cache::Count;
use lapsed::ledger::REASON_CHARS_MAX;
use lapsed::task::{Pause, PauseKind, Scope, TaskKey};

/// How long the page waits for what it can do without.
const PATIENCE: Duration = Duration::from_millis(500);

/// Routes of the page and its panel.
pub fn routes() -> Router<AppState> {
    Router::new()
        .route("/pauses", get(page))
        .merge(panel_route::<List>())
}

texts! {
    /// Texts of the pauses.
    PausesTexts {
        title: "Pauses", "暂停";
        lead: "Tasks that are paused fall due but do not start. Runs that have begun go on. Nothing is lost.", "被暂停的任务到期后不会开始，已开始的执行会继续，不会丢失任何任务。";
        none: "Nothing is paused.", "没有暂停项。";
        scope: "Tasks", "任务";
        since: "Since", "起始";
        until: "Until", "截止";
        until_resumed: "it is resumed", "手动恢复";
        by: "By", "操作者";
        reason: "Reason", "原因";
        kind_hold: "held, if due before", "保留：到期时间早于";
        kind_release: "released from the hold", "已从保留中放行";
        resume: "Resume", "恢复";
        overdue: "Overdue", "已逾期";
        show: "Show overdue tasks", "查看逾期任务";
        new: "Pause tasks", "暂停任务";
        class: "Class", "类";
        method: "Method", "方法";
        method_hint: "empty: the whole class", "留空：整个类";
        all: "Everything, instead of a class", "全部任务，而非某个类";
        length: "Resume by itself after", "自动恢复：多久之后";
        length_hint: "empty: not before a person resumes it", "留空：直到有人恢复";
        moment: "or at", "或指定时间";
        reason_hint: "for other operators", "供其他操作者查看";
        pause: "Pause", "暂停";
        released: "Released.", "已放行。";
        paused: "Paused. Within two seconds no more of its tasks start.", "已暂停。两秒内不再开始相应的任务。";
        held: "Release held tasks of a class", "放行某个类中被保留的任务";
        release_one: "Release", "放行";
        may_not: "You may read, but not pause: a token with the scope `operate` can.", "您只能查看，不能暂停：需要具有 `operate` 权限的令牌。";
    }
}

async fn page(State(app): State<AppState>, frame: Frame) -> Response {
    let f = frame.at(Place::Pauses);
    let t = PausesTexts::of(f.language());
    let (list, classes) = tokio::join!(panel::<List>(&app, &f, &NoQuery {}), classes(&app, &f));
    f.page(&Page {
        f: &f,
        t,
        reason_max: REASON_CHARS_MAX,
        classes,
        list,
    })
}

/// Classes of the counted tasks that the caller may pause, in alphabetical order; none if the ledger does not answer soon.
async fn classes(app: &AppState, f: &Frame) -> Vec<String> {
    if !f.may_operate() || !app.engine.ledger_answers() {
        return Vec::new();
    }
    let Ok(Ok(stats)) = timeout(PATIENCE, app.stats()).await else {
        return Vec::new();
    };
    let names = stats.methods.iter().filter_map(|method| {
        let (class, _) = method.name.split_once('@')?;
        f.caller
            .require_class(Some(class))
            .is_ok()
            .then(|| class.to_owned())
    });
    names.collect::<BTreeSet<_>>().into_iter().collect()
}

#[derive(Template)]
#[template(path = "pauses.html")]
struct Page<'a> {
    f: &'a Frame,
    t: &'static PausesTexts,
    reason_max: usize,
    /// Classes that tasks have, to choose from.
    classes: Vec<String>,
    list: Panel,
}

/// A pause, the hold or a release as it is shown.
struct Row {
    scope: String,
    /// What kind it is, if not a pause.
    kind: Option<&'static str>,
    due_before: Option<Moment>,
    since: Moment,
    /// When it ends by itself.
    until: Option<Moment>,
    by: String,
    reason: String,
    /// How many tasks are overdue that it may keep back; `None` if that is not known now, or of a release.
    overdue: Option<String>,
    /// These tasks.
    href: String,
    /// The call of the API that ends it, and what to say about it.
    end: Option<CallButton>,
}

#[derive(Template)]
#[template(path = "pauses_list.html")]
struct List<'a> {
    f: &'a Frame,
    t: &'static PausesTexts,
    rows: Vec<Row>,
    has_hold: bool,
}

impl PanelContent for List<'_> {
    const NAME: &'static str = "pauses";
    const SHOWS: &'static str = "pauses";
    type Query = NoQuery;
    type Content<'a> = List<'a>;

    async fn load<'a>(
        app: &'a AppState,
        f: &'a Frame,
        _: &'a NoQuery,
    ) -> Result<List<'a>, Problem> {
        // Not the shared answer: a person who has just paused with the command line must see it.
        let pauses = app.tasks.pauses().await?;
        let count = timeout(PATIENCE, app.stats_cache.count(&app.tasks)).await;
        let count = count.ok().and_then(Result::ok);
        let seen = pauses
            .iter()
            .filter_map(|pause| f.caller.visible_pause(pause));
        Ok(List {
            f,
            has_hold: pauses.iter().any(|pause| pause.kind == PauseKind::Hold),
            t: PausesTexts::of(f.language()),
            rows: seen.map(|pause| row(&pause, count.as_deref(), f)).collect(),
        })
    }
}

/// The number of overdue tasks of a scope: a lower bound if not all were looked at.
fn overdue(scope: &Scope, count: &Count, f: &Frame) -> String {
    let of_scope = |name: &str| TaskKey::parse(name).is_ok_and(|key| scope.covers(&key));
    let methods = count.stats.methods.iter();
    let number = methods.filter(|method| of_scope(&method.name));
    let number = number.map(|method| method.overdue).sum();
    let counted: u64 = count.stats.methods.iter().map(|it| it.overdue).sum();
    f.counted(&number, &(counted < count.stats.counts.overdue))
}

fn row(pause: &Pause, count: Option<&Count>, f: &Frame) -> Row {
    let t = PausesTexts::of(f.language());
    let Pause {
        kind,
        scope,
        since,
        due_before,
        until,
        by,
        reason,
    } = pause;
    let of_scope = match scope.is_everything() {
        true => String::new(),
        false => format!("&{}", query(scope)),
    };
    Row {
        kind: match kind {
            PauseKind::Pause => None,
            PauseKind::Hold => Some(t.kind_hold),
            PauseKind::Release => Some(t.kind_release),
        },
        due_before: due_before.as_ref().map(|due| f.clock(due)),
        since: f.relative(since),
        until: until.as_ref().map(|until| f.clock(until)),
        by: by.clone(),
        reason: reason.clone(),
        overdue: count
            .filter(|_| *kind != PauseKind::Release && !f.caller.is_restricted())
            .map(|count| overdue(scope, count, f)),
        href: format!("{}/tasks?state=overdue{of_scope}", f.base),
        end: CallButton::ends(pause, f),
        scope: scope_name(scope, f),
    }
}

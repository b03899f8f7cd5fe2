//! Pauses and the hold: what does not start, and the buttons that change it.

use std::collections::BTreeSet;
use std::time::Duration;

use askama::Template;
use axum::Router;
use axum::extract::State;
use axum::response::Response;
use axum::routing::get;
use tokio::time::timeout;

use super::frame::{Frame, Place, encoded};
use super::moment::Moment;
use super::panel::Panel;
use super::texts::texts;
use super::{NoQuery, PanelContent, panel, panel_route};
use crate::http::app_state::AppState;
use crate::http::problem::Problem;
use lapsed::ledger::REASON_CHARS_MAX;
use lapsed::task::{Pause, PauseKind, Scope};

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
        everything: "Everything", "全部任务";
        scope: "Tasks", "任务";
        since: "Since", "起始";
        by: "By", "操作者";
        reason: "Reason", "原因";
        kind_hold: "held, if due before", "保留：到期时间早于";
        kind_release: "released from the hold", "已从保留中放行";
        resume: "Resume", "恢复";
        resume_ask: "Resume {}?", "恢复 {}？";
        resume_detail: "Its tasks start again within two seconds, those that are overdue first.", "其任务将在两秒内重新开始，先执行已超时的任务。";
        resumed: "Resumed.", "已恢复。";
        release: "Release all", "全部放行";
        release_ask: "Release all tasks that are held?", "放行所有被保留的任务？";
        release_detail: "All of them start, the oldest first. To release only one class, use the form below.", "它们将全部开始，最早的优先。如只放行一个类，请使用下方的表单。";
        released: "Released.", "已放行。";
        show: "Show overdue tasks", "查看超时任务";
        new: "Pause tasks", "暂停任务";
        class: "Class", "类";
        method: "Method", "方法";
        method_hint: "empty: the whole class", "留空：整个类";
        all: "Everything, instead of a class", "全部任务，而非某个类";
        reason_hint: "for other operators", "供其他操作者查看";
        pause: "Pause", "暂停";
        paused: "Paused. Within two seconds no more of its tasks start.", "已暂停。两秒内不再开始相应的任务。";
        held: "Release held tasks of a class", "放行某个类中被保留的任务";
        release_one: "Release", "放行";
        may_not: "You may read, but not pause: a token with the scope `operate` can.", "您只能查看，不能暂停：需要具有 `operate` 权限的令牌。";
    }
}

async fn page(State(app): State<AppState>, frame: Frame) -> Response {
    let f = frame.at(Place::Pauses);
    let t = PausesTexts::of(f.language());
    let (list, has_hold, classes) = tokio::join!(
        panel::<List>(&app, &f, &NoQuery {}),
        has_hold(&app),
        classes(&app, &f)
    );
    f.page(&Page {
        f: &f,
        t,
        reason_max: REASON_CHARS_MAX,
        has_hold,
        classes,
        list,
    })
}

/// Classes of the counted tasks that the caller may pause, in alphabetical order; none if the ledger does not answer soon.
async fn classes(app: &AppState, f: &Frame) -> Vec<String> {
    const PATIENCE: Duration = Duration::from_millis(500);
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

/// True if tasks are held. A ledger that does not answer shows in the panel.
async fn has_hold(app: &AppState) -> bool {
    const PATIENCE: Duration = Duration::from_millis(500);
    let pauses = timeout(PATIENCE, app.pauses()).await;
    pauses.is_ok_and(|pauses| {
        pauses.is_ok_and(|pauses| pauses.iter().any(|pause| pause.kind == PauseKind::Hold))
    })
}

#[derive(Template)]
#[template(path = "pauses.html")]
struct Page<'a> {
    f: &'a Frame,
    t: &'static PausesTexts,
    reason_max: usize,
    has_hold: bool,
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
    by: String,
    reason: String,
    /// The overdue tasks that it may keep back.
    href: String,
    /// The call of the API that ends it, and what to say about it.
    end: Option<End>,
}

struct End {
    call: String,
    name: &'static str,
    ask: String,
    detail: &'static str,
    done: &'static str,
}

#[derive(Template)]
#[template(path = "pauses_list.html")]
struct List {
    t: &'static PausesTexts,
    rows: Vec<Row>,
}

impl PanelContent for List {
    const NAME: &'static str = "pauses";
    const SHOWS: &'static str = "pauses";
    type Query = NoQuery;
    type Content<'a> = Self;

    async fn load<'a>(app: &'a AppState, f: &'a Frame, _: &'a NoQuery) -> Result<Self, Problem> {
        // Not the shared answer: a person who has just paused with the command line must see it.
        let pauses = app.tasks.pauses().await?;
        let seen = pauses
            .iter()
            .filter_map(|pause| f.caller.visible_pause(pause));
        Ok(Self {
            t: PausesTexts::of(f.language()),
            rows: seen.map(|pause| row(&pause, f)).collect(),
        })
    }
}

fn row(pause: &Pause, f: &Frame) -> Row {
    let t = PausesTexts::of(f.language());
    let Pause {
        kind,
        scope,
        since,
        due_before,
        by,
        reason,
    } = pause;
    let name = match scope.is_everything() {
        true => t.everything.to_owned(),
        false => scope.to_string(),
    };
    let end = match kind {
        PauseKind::Pause => Some(End {
            call: format!("DELETE /v1/pauses?{}", query(scope)),
            name: t.resume,
            ask: f.fill(t.resume_ask, &[&name]),
            detail: t.resume_detail,
            done: t.resumed,
        }),
        PauseKind::Hold => Some(End {
            call: "DELETE /v1/pauses?everything=true&held=true".to_owned(),
            name: t.release,
            ask: t.release_ask.to_owned(),
            detail: t.release_detail,
            done: t.released,
        }),
        PauseKind::Release => None,
    };
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
        by: by.clone(),
        reason: reason.clone(),
        href: format!("{}/tasks?state=overdue{of_scope}", f.base),
        end: end.filter(|_| f.may_operate()),
        scope: name,
    }
}

/// A scope in the query of an address.
fn query(scope: &Scope) -> String {
    match (scope.class_name(), scope.method_name()) {
        (None, _) => "everything=true".to_owned(),
        (Some(class), None) => format!("class={}", encoded(class)),
        (Some(class), Some(method)) => {
            format!("class={}&method={}", encoded(class), encoded(method))
        }
    }
}

//! Buttons that call the API: what each does, and what it asks before.

use super::frame::{Frame, encoded};
use super::texts::texts;
use lapsed::task::{Pause, PauseKind, Scope};

texts! {
    /// Texts of the buttons that end a pause or a hold.
    EndTexts {
        everything: "Everything", "全部任务";
        resume: "Resume", "恢复";
        resume_ask: "Resume {}?", "恢复 {}？";
        resume_detail: "Its tasks start again within two seconds, those that are overdue first.", "其任务将在两秒内重新开始，先执行逾期的任务。";
        resumed: "Resumed.", "已恢复。";
        release: "Release all", "全部放行";
        release_ask: "Release all tasks that are held?", "放行所有被保留的任务？";
        release_detail: "All of them start, the oldest first. The page of pauses can release a single class.", "它们将全部开始，最早的优先。如只放行一个类，请使用暂停页面。";
        released: "Released.", "已放行。";
    }
}

/// A button that calls the API. In a template, `call_button.html` shows it as `button`.
pub struct CallButton {
    /// The method, and the path below the base.
    pub call: String,
    /// What is on it.
    pub name: &'static str,
    /// The question before the call.
    pub ask: String,
    /// More about it.
    pub detail: &'static str,
    /// What is said when it has succeeded.
    pub done: &'static str,
}

impl CallButton {
    /// The button that ends a pause or a hold; none if the caller may not, or for a release.
    pub fn ends(pause: &Pause, f: &Frame) -> Option<Self> {
        let t = EndTexts::of(f.language());
        let button = match pause.kind {
            PauseKind::Pause => Self {
                call: format!("DELETE /v1/pauses?{}", query(&pause.scope)),
                name: t.resume,
                ask: f.fill(t.resume_ask, &[&scope_name(&pause.scope, f)]),
                detail: t.resume_detail,
                done: t.resumed,
            },
            PauseKind::Hold => Self {
                call: "DELETE /v1/pauses?everything=true&held=true".to_owned(),
                name: t.release,
                ask: t.release_ask.to_owned(),
                detail: t.release_detail,
                done: t.released,
            },
            PauseKind::Release => return None,
        };
        f.may_operate().then_some(button)
    }
}

/// What a pause covers.
pub fn scope_name(scope: &Scope, f: &Frame) -> String {
    match scope.is_everything() {
        true => EndTexts::of(f.language()).everything.to_owned(),
        false => scope.to_string(),
    }
}

/// A scope in the query of an address.
pub fn query(scope: &Scope) -> String {
    match (scope.class_name(), scope.method_name()) {
        (None, _) => "everything=true".to_owned(),
        (Some(class), None) => format!("class={}", encoded(class)),
        (Some(class), Some(method)) => {
            format!("class={}&method={}", encoded(class), encoded(method))
        }
    }
}

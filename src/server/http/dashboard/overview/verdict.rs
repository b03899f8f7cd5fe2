//! Is all well? If not: what is wrong, and what to do.

use crate::http::dashboard::frame::Frame;
use crate::http::dashboard::moment::duration;
use crate::http::dashboard::phrases;
use crate::http::dashboard::reasons::{Link, LinkTexts, link};
use crate::http::dashboard::texts::texts;
use lapsed::diagnosis::{Found, Severity};
use lapsed::engine::LatenessPercentiles;
use lapsed_core::format::count;

texts! {
    /// Texts around the findings.
    VerdictTexts {
        well: "All is well", "一切正常";
        well_detail: "The ledger answers, and no task waits longer than it should.", "账本响应正常，没有任务等待过久。";
        bad: "Act now", "立即处理";
        warning: "Warning", "警告";
        note: "Note", "提示";
        well_now: "Well now. Tasks started late until", "目前正常。任务开始延迟持续到";
        on_time: "Tasks that started in the last hour: {}; 99 % of them within {} after their due time.", "最近一小时开始的任务：{} 个，其中 99% 在到期后 {} 内开始。";
        show_dead: "Show dead tasks", "查看死信任务";
        show_malformed: "Show tasks", "查看任务";
    }
}

/// A finding as it is shown.
pub struct Shown {
    /// Class in the style sheet.
    pub class: &'static str,
    /// Name of its severity.
    pub severity: &'static str,
    /// What is so.
    pub what: String,
    /// What it means, and what to do.
    pub action: String,
    /// Where to go.
    pub link: Option<Link>,
    /// False if it is only good to know.
    pub is_trouble: bool,
}

/// Shows what was found in the language of the reader.
pub fn shown(found: &Found, f: &Frame) -> Shown {
    let texts = VerdictTexts::of(f.language());
    let advice = f.sentences(&found.remedy);
    Shown {
        class: phrases::class(found.severity),
        severity: match found.severity {
            Severity::Error => texts.bad,
            Severity::Warning => texts.warning,
            Severity::Note | Severity::Ok => texts.note,
        },
        what: f.headline(&found.text),
        action: match &found.detail {
            Some(detail) => format!("{advice} ({detail})"),
            None => advice,
        },
        link: page_of(found, f),
        is_trouble: found.severity > Severity::Note,
    }
}

/// The page that shows more.
fn page_of(found: &Found, f: &Frame) -> Option<Link> {
    let (texts, links) = (VerdictTexts::of(f.language()), LinkTexts::of(f.language()));
    match found.condition.id {
        "overdue" => {
            let cause = found.cause.as_ref().and_then(|cause| link(cause, links));
            Some(cause.unwrap_or(("/tasks?state=overdue", links.overdue)))
        }
        "all_paused" | "pauses" | "hold" => Some(("/pauses", links.pauses)),
        "daemon" => Some(("/daemons", links.daemons)),
        "malformed" => Some(("/tasks?state=overdue", texts.show_malformed)),
        "dead" | "dead_tasks" => Some(("/dead", texts.show_dead)),
        _ => None,
    }
}

/// Says how late the tasks of the last hour started.
pub fn on_time(late: LatenessPercentiles, f: &Frame) -> String {
    let values = [count(late.count), duration(late.p99_ms, f.language())];
    f.fill(
        VerdictTexts::of(f.language()).on_time,
        &[&values[0], &values[1]],
    )
}

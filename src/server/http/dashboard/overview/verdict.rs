//! Is all well? If not: what is wrong, and what to do.

use crate::http::dashboard::call_button::CallButton;
use crate::http::dashboard::frame::Frame;
use crate::http::dashboard::moment::duration;
use crate::http::dashboard::phrases;
use crate::http::dashboard::reasons::{Link, LinkTexts, link};
use crate::http::dashboard::texts::texts;
use lapsed::diagnosis::{Found, Severity, WhyCause};
use lapsed::engine::LatenessPercentiles;
use lapsed::task::Pause;
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
        workers: "Taken by workers: {}; 99 % of them within {}.", "由工作进程取走：{} 个，其中 99% 在到期后 {} 内。";
        show_dead: "Show dead tasks", "查看死信任务";
        show_malformed: "Show tasks", "查看任务";
        show_these: "Show these tasks", "查看这些任务";
        show_doctor: "Show the checks", "查看检查结果";
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
    /// What cures it with a press.
    pub button: Option<CallButton>,
    /// Where to go: addresses and their names, the best first.
    pub links: Vec<(String, &'static str)>,
    /// False if it is only good to know.
    pub is_trouble: bool,
}

/// Shows what was found in the language of the reader. `pauses` are those that the reader sees.
pub fn shown(found: &Found, pauses: &[Pause], f: &Frame) -> Shown {
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
        button: keeps_back(found, pauses).and_then(|pause| CallButton::ends(pause, f)),
        links: links(found, f),
        is_trouble: found.severity > Severity::Note,
    }
}

/// The pause or hold to which a finding is due.
fn keeps_back<'a>(found: &'a Found, pauses: &'a [Pause]) -> Option<&'a Pause> {
    match (&found.cause, found.condition.id) {
        (Some(WhyCause::Paused(pause) | WhyCause::Held(pause)), _) => Some(pause),
        (None, "all_paused") => pauses.iter().find(|pause| pause.scope.is_everything()),
        _ => None,
    }
}

/// The pages that show more, the best first.
fn links(found: &Found, f: &Frame) -> Vec<(String, &'static str)> {
    let (texts, names) = (VerdictTexts::of(f.language()), LinkTexts::of(f.language()));
    let below = |(path, name): Link| (format!("{}{path}", f.base), name);
    match found.condition.id {
        "overdue" => {
            let cause = found.cause.as_ref().and_then(|cause| link(cause, names));
            let tasks = match &found.of {
                Some(name) => (
                    format!("{}&state=overdue", f.method_href(name)),
                    texts.show_these,
                ),
                None => below(("/tasks?state=overdue", names.overdue)),
            };
            cause.map(below).into_iter().chain([tasks]).collect()
        }
        "all_paused" | "pauses" | "hold" => vec![below(("/pauses", names.pauses))],
        "clock" => vec![
            below(("/doctor", texts.show_doctor)),
            below(("/pauses", names.pauses)),
        ],
        "daemon" => vec![below(("/daemons", names.daemons))],
        "subscription" | "swept" | "lost_keys" | "sentinel" | "ledger" => {
            vec![below(("/doctor", texts.show_doctor))]
        }
        "malformed" => vec![below(("/tasks?state=overdue", texts.show_malformed))],
        "dead" | "dead_tasks" => vec![below(("/dead", texts.show_dead))],
        _ => Vec::new(),
    }
}

/// Says how late the tasks of the last hour started; `None` if none did. Tasks of pull queues are as late as their workers ask.
pub fn on_time(
    late: Option<LatenessPercentiles>,
    late_pull: Option<LatenessPercentiles>,
    f: &Frame,
) -> Option<String> {
    let texts = VerdictTexts::of(f.language());
    let said = |text, late: LatenessPercentiles| {
        let values = [count(late.count), duration(late.p99_ms, f.language())];
        f.fill(text, &[&values[0], &values[1]])
    };
    let started = late.map(|late| said(texts.on_time, late));
    let taken = late_pull.map(|late| said(texts.workers, late));
    let all: Vec<String> = started.into_iter().chain(taken).collect();
    (!all.is_empty()).then(|| all.join(" "))
}

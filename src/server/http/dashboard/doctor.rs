//! What `lapsed doctor` finds.

use std::time::Duration;

use askama::Template;
use tokio::time::Instant;

use super::frame::{Frame, Place};
use super::moment::Moment;
use super::phrases;
use super::texts::{Language, texts};
use super::{Head, NoQuery, Page, PanelContent};
use crate::http::app_state::AppState;
use crate::http::problem::Problem;
use lapsed::diagnosis::{Finding, Severity};
use lapsed::task::UnixMs;

/// How long the page waits for the first report.
const PATIENCE: Duration = Duration::from_secs(2);

texts! {
    /// Texts of the findings.
    DoctorTexts {
        title: "Doctor", "诊断";
        lead: "What the command lapsed doctor finds about the servers, the table and the clocks. The checks change nothing.", "命令 lapsed doctor 对服务器、数据表和时钟的检查结果。检查不会做任何修改。";
        checked: "Checked", "检查于";
        running: "Checking now. This takes up to 20 s.", "正在检查，最多需要 20 秒。";
        again: "Checking again.", "正在重新检查。";
        missing: "This program has no checks: run `lapsed doctor` on the machine of the daemon.", "此程序不含检查：请在守护进程所在机器上运行 `lapsed doctor`。";
        healthy: "No errors and no warnings", "没有错误和警告";
        sick: "{} errors, {} warnings", "{} 个错误，{} 个警告";
        error: "Error", "错误";
        warning: "Warning", "警告";
        note: "Note", "提示";
        ok: "OK", "正常";
        passed: "{} checks passed", "{} 项检查通过";
    }
}

/// A finding as it is shown.
struct Shown {
    check: &'static str,
    name: &'static str,
    class: &'static str,
    found: String,
    remedy: Option<String>,
}

#[derive(Template)]
#[template(path = "doctor_list.html")]
pub struct List<'a> {
    f: &'a Frame,
    t: &'static DoctorTexts,
    is_missing: bool,
    is_running: bool,
    at: Option<Moment>,
    /// Errors and warnings.
    counts: [u64; 2],
    /// What is not in order, the worst first.
    findings: Vec<Shown>,
    /// What is.
    passed: Vec<Shown>,
}

impl PanelContent for List<'_> {
    const NAME: &'static str = "doctor";
    const SHOWS: &'static str = "doctor";
    const IS_PER_CLASS: bool = false;
    type Query = NoQuery;
    type Content<'a> = List<'a>;

    async fn load<'a>(
        app: &'a AppState,
        f: &'a Frame,
        _: &'a NoQuery,
    ) -> Result<List<'a>, Problem> {
        Ok(list(app, f).await)
    }
}

impl Page for List<'_> {
    const PLACE: Place = Place::Doctor;

    fn head(language: Language) -> Head {
        let t = DoctorTexts::of(language);
        Head::new(t.title, t.lead)
    }
}

async fn list<'a>(app: &AppState, f: &'a Frame) -> List<'a> {
    let t = DoctorTexts::of(f.language());
    let mut list = List {
        f,
        t,
        is_missing: app.checkup.is_none(),
        is_running: false,
        at: None,
        counts: [0; 2],
        findings: Vec::new(),
        passed: Vec::new(),
    };
    let Some(checkup) = &app.checkup else {
        return list;
    };
    // What was found before the ledger failed says nothing about now.
    let gone = app.engine.ledger_fails_for();
    let gone = gone.filter(|_| !app.engine.ledger_answers());
    let gone = gone.and_then(|ago| Instant::now().checked_sub(ago));
    let (report, is_running) = checkup.look(PATIENCE, gone).await;
    list.is_running = is_running;
    let Some(report) = report else {
        return list;
    };
    let ago = u64::try_from(report.at.elapsed().as_millis()).unwrap_or(u64::MAX);
    let at = UnixMs(f.now.0.saturating_sub_unsigned(ago));
    list.at = Some(f.relative(&at));
    let of = |severity: Severity| {
        let findings = report.findings.iter();
        findings.filter(move |finding| finding.severity == severity)
    };
    let (error, warning) = (Severity::Error, Severity::Warning);
    list.counts = [error, warning].map(|severity| of(severity).count() as u64);
    for severity in [error, warning, Severity::Note] {
        list.findings
            .extend(of(severity).map(|finding| shown(finding, t)));
    }
    list.passed = of(Severity::Ok).map(|finding| shown(finding, t)).collect();
    list
}

fn shown(finding: &Finding, t: &DoctorTexts) -> Shown {
    let Finding {
        check,
        severity,
        found,
        remedy,
    } = finding;
    let name = match severity {
        Severity::Error => t.error,
        Severity::Warning => t.warning,
        Severity::Note => t.note,
        Severity::Ok => t.ok,
    };
    Shown {
        check,
        name,
        class: phrases::class(*severity),
        found: found.clone(),
        remedy: remedy.clone(),
    }
}

//! The audit log: who changed what.

use askama::Template;
use serde::Deserialize;

use super::frame::{Frame, Place, encoded};
use super::moment::Moment;
use super::texts::{Language, texts};
use super::{Head, Page, PanelContent, parameter};
use crate::http::app_state::AppState;
use crate::http::problem::Problem;
use crate::net::audit_log::AuditEntry;
use lapsed::ledger::DocumentPlace;
use lapsed::task::{TaskKey, UnixMs};
use lapsed_core::access::Masks;

/// Entries of a page.
const LIMIT: u32 = 50;

/// Entries that are read for a page at most, if a filter leaves most of them out.
const READ_MAX: usize = 2_000;

/// What programs do all the time.
const CREATE: &str = "create";

/// The filter of verbs that leaves none out.
const ALL: &str = "all";

/// The verbs to choose from.
const VERBS: [&str; 13] = [
    CREATE,
    "cancel",
    "move",
    "run",
    "redrive",
    "discard",
    "fail",
    "pause",
    "resume",
    "release",
    "login",
    "login_failed",
    ALL,
];

texts! {
    /// Texts of the audit log.
    AuditTexts {
        title: "Audit log", "审计日志";
        lead: "What was changed over HTTP and RESP, here and in the other daemons, newest first. Changes by the command line, by Redis clients without a password and by programs are not in it.", "通过 HTTP 和 RESP 所做的修改（包括其他守护进程），最新的在前。命令行、未使用密码的 Redis 客户端和程序所做的修改不在其中。";
        none: "Nothing was changed yet.", "还没有任何修改。";
        none_match: "No entry matches.", "没有匹配的条目。";
        searched: "The search stopped after {} entries. Go on with the older ones.", "查找了 {} 条后停止。请继续查看更早的条目。";
        most: "all but create", "除创建外的全部";
        all: "all", "全部";
        apply: "Filter", "筛选";
        clear: "Clear", "清除";
        at: "When", "时间";
        caller: "Who", "操作者";
        verb: "What", "操作";
        subject: "Of", "对象";
        tasks: "Tasks", "任务数";
        reason: "Reason", "原因";
        keys: "Keys", "键";
        first: "Newest", "最新";
        next: "Older", "更早";
    }
}

/// What the page shows, and where it begins.
#[derive(Debug, Default, Deserialize)]
pub struct Wanted {
    /// `next` of the page before.
    #[serde(default)]
    before: String,
    /// A part of the name of the caller.
    #[serde(default)]
    who: String,
    /// One verb, or all; empty for all but `create`.
    #[serde(default)]
    verb: String,
    /// A part of what was changed.
    #[serde(default)]
    of: String,
}

impl Wanted {
    /// The filters as a query.
    fn filters(&self) -> String {
        let parts = [("who", &self.who), ("verb", &self.verb), ("of", &self.of)];
        let parts = parts.map(|(name, value)| parameter(name, value));
        let parts: Vec<String> = parts.into_iter().filter(|part| !part.is_empty()).collect();
        parts.join("&")
    }

    fn shows(&self, entry: &AuditEntry) -> bool {
        let has = |text: &str, part: &str| text.to_lowercase().contains(&part.to_lowercase());
        let is_verb = match self.verb.as_str() {
            "" => entry.verb != CREATE,
            ALL => true,
            verb => entry.verb == verb,
        };
        let is_of = || entry.keys.iter().any(|key| has(key, &self.of));
        is_verb && has(&entry.caller, &self.who) && (has(&entry.subject, &self.of) || is_of())
    }
}

/// An entry as it is shown.
struct Row {
    at: Moment,
    caller: String,
    address: String,
    verb: String,
    subject: String,
    /// Page of the task, if it is one.
    href: Option<String>,
    tasks: u64,
    reason: String,
    keys: Vec<String>,
}

#[derive(Template)]
#[template(path = "audit_list.html")]
pub struct List<'a> {
    f: &'a Frame,
    t: &'static AuditTexts,
    wanted: &'a Wanted,
    /// The verbs to choose from, with their names.
    verbs: Vec<(&'static str, &'static str)>,
    rows: Vec<Row>,
    /// How many entries were read, if the page is not full for want of time.
    searched: Option<u64>,
    is_first: bool,
    /// The queries of the first page and of the next one.
    first: String,
    next: Option<String>,
}

impl PanelContent for List<'_> {
    const NAME: &'static str = "audit";
    const SHOWS: &'static str = "audit";
    const IS_PER_CLASS: bool = false;
    type Query = Wanted;
    type Content<'a> = List<'a>;

    fn address(query: &Wanted) -> String {
        let parts = [query.filters(), parameter("before", &query.before)];
        let parts: Vec<String> = parts.into_iter().filter(|part| !part.is_empty()).collect();
        parts.join("&")
    }

    async fn load<'a>(
        app: &'a AppState,
        f: &'a Frame,
        wanted: &'a Wanted,
    ) -> Result<List<'a>, Problem> {
        let before =
            match wanted.before.as_str() {
                "" => None,
                text => Some(place(text).ok_or_else(|| {
                    Problem::invalid("`before` is not the address of an older page")
                })?),
            };
        let (mut entries, mut read, mut from) = (Vec::new(), 0, before);
        let next = loop {
            let page = app.audit_log.page(from, LIMIT).await?;
            read += page.entries.len();
            // Masked first: a filter must not tell what is masked.
            let visible = page.entries.into_iter();
            let visible = visible.map(|entry| masked(entry, &f.caller.masks));
            entries.extend(visible.filter(|entry| wanted.shows(entry)));
            match page.next {
                None => break None,
                next if entries.len() >= LIMIT as usize || read >= READ_MAX => break next,
                next => from = next,
            }
        };
        let filters = wanted.filters();
        let name = |verb: &'static str| match verb {
            ALL => AuditTexts::of(f.language()).all,
            verb => verb_name(verb, f.language()),
        };
        Ok(List {
            f,
            t: AuditTexts::of(f.language()),
            wanted,
            verbs: VERBS.map(|verb| (verb, name(verb))).to_vec(),
            searched: (next.is_some() && entries.len() < LIMIT as usize).then_some(read as u64),
            rows: entries.into_iter().map(|entry| row(entry, f)).collect(),
            is_first: wanted.before.is_empty(),
            next: next.map(|next| format!("{filters}&before={}", encoded(&text_of(next)))),
            first: filters,
        })
    }
}

impl Page for List<'_> {
    const PLACE: Place = Place::Audit;

    fn head(language: Language) -> Head {
        let t = AuditTexts::of(language);
        Head::new(t.title, t.lead)
    }
}

fn masked(mut entry: AuditEntry, masks: &Masks) -> AuditEntry {
    entry.subject = masks.shown_text(entry.subject);
    for key in &mut entry.keys {
        *key = masks.shown_text(std::mem::take(key));
    }
    entry
}

fn row(entry: AuditEntry, f: &Frame) -> Row {
    let AuditEntry {
        at,
        caller,
        address,
        verb,
        subject,
        tasks,
        reason,
        keys,
    } = entry;
    // A single task has its own page; class and method of several have not.
    let key = TaskKey::parse(&subject)
        .ok()
        .filter(|key| keys.is_empty() && tasks == 1 && !f.hides_arguments(key));
    Row {
        at: f.clock(&UnixMs(at)),
        href: key.map(|key| f.key_href(&key)),
        verb: verb_name(&verb, f.language()).to_owned(),
        caller,
        address,
        subject,
        tasks,
        reason,
        keys,
    }
}

/// The name of what was done. A verb of a newer version stays as it is.
fn verb_name(verb: &str, language: Language) -> &str {
    let chinese = match verb {
        "create" => "创建",
        "cancel" => "取消",
        "reschedule" | "move" => "改期",
        "run" => "立即执行",
        "redrive" => "重新投递",
        "discard" => "丢弃",
        "fail" => "报告失败",
        "pause" => "暂停",
        "resume" => "恢复",
        "release" => "放行",
        "login" => "登录",
        "login_failed" => "登录失败",
        other => other,
    };
    match language {
        Language::English => verb,
        Language::Chinese => chinese,
    }
}

/// A place in the log as text in an address: `1795291200000.name`.
fn text_of(place: DocumentPlace) -> String {
    format!("{}.{}", place.at.0, place.name)
}

fn place(text: &str) -> Option<DocumentPlace> {
    let (at, name) = text.split_once('.')?;
    Some(DocumentPlace {
        at: UnixMs(at.parse().ok()?),
        name: name.to_owned(),
    })
}

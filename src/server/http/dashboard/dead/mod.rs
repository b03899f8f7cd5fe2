//! Dead tasks, grouped by class, method and error.

use std::collections::HashMap;
use std::time::Duration;

use askama::Template;
use serde_json::json;
use tokio::time::Instant;

use super::frame::{Frame, Place, encoded};
use super::moment::Moment;
use super::texts::{Language, texts};
use super::{Head, NoQuery, Page, PanelContent};
use crate::http::app_state::AppState;
use crate::http::listing;
use crate::http::problem::Problem;
use lapsed::ledger::{ListFilter, StateFilter, TaskRecord};
use lapsed::task::{State as TaskState, UnixMs, error_kind};

/// Dead tasks that are read at most, and at a time.
const READ_MAX: usize = 1_000;
const READ_AT_ONCE: u32 = 200;

/// Reading ends with the page at which this time is over.
const READ_FOR: Duration = Duration::from_millis(500);

/// Groups that are shown.
const GROUPS_MAX: usize = 50;

texts! {
    /// Texts of the dead tasks.
    DeadTexts {
        title: "Dead", "死信";
        lead: "Tasks that failed for good. Mend the cause, then redrive them; or discard what is of no use any more.", "彻底失败的任务。请先消除原因再重新投递；不再需要的可以丢弃。";
        none: "No task is dead.", "没有死信任务。";
        counted: "Dead tasks: {}. Kinds of error: {}.", "{} 个死信任务，{} 类错误";
        part: "Only the {} that fell due first are grouped here; there are more.", "此处仅对最先到期的 {} 个任务分组，实际更多。";
        more: "Only the {} largest groups are shown.", "仅显示最大的 {} 组。";
        tasks: "Tasks", "任务数";
        method: "Class@method", "类@方法";
        error: "Error", "错误";
        no_error: "no error text", "没有错误文本";
        reason: "Dead because", "死信原因";
        latest: "Latest", "最近";
        redrive: "Redrive…", "重新投递…";
        discard: "Discard…", "丢弃…";
        actions: "Actions", "操作";
        filter: "Filter them", "筛选";
    }
}

/// Dead tasks with the same class, method and kind of error.
struct Group {
    count: u64,
    method: String,
    /// Error of one of them.
    error: String,
    reasons: Vec<&'static str>,
    latest: Moment,
    /// The list of its tasks.
    href: String,
    /// The filter that selects its tasks, as the API takes it.
    filter: String,
}

#[derive(Template)]
#[template(path = "dead_list.html")]
pub struct List<'a> {
    f: &'a Frame,
    t: &'static DeadTexts,
    groups: Vec<Group>,
    tasks: u64,
    kinds: u64,
    /// True if not all dead tasks were read.
    is_part: bool,
    /// True if there are more groups.
    has_more: bool,
}

impl PanelContent for List<'_> {
    const NAME: &'static str = "dead";
    const SHOWS: &'static str = "tasks stats";
    type Query = NoQuery;
    type Content<'a> = List<'a>;

    async fn load<'a>(
        app: &'a AppState,
        f: &'a Frame,
        _: &'a NoQuery,
    ) -> Result<List<'a>, Problem> {
        let mut groups: HashMap<(String, Option<String>), Collected> = HashMap::new();
        let filter = ListFilter {
            states: vec![StateFilter::Is(TaskState::Dead)],
            limit: READ_AT_ONCE,
            ..ListFilter::default()
        };
        let until = Instant::now() + READ_FOR;
        let (mut read, mut cursor) = (0, None::<String>);
        let is_part = loop {
            let page = listing::list(app, &f.caller, filter.clone(), cursor.as_deref());
            let page = page.await?;
            read += page.tasks.len();
            for task in page.tasks {
                let error = task.last_error.as_deref().unwrap_or_default();
                // Tasks whose errors are masked are one group.
                let kind = match f.caller.masks.hides_payload(&task.key) {
                    true => None,
                    false => Some(error_kind(error)),
                };
                let kind = (task.key.class_method().to_owned(), kind);
                groups.entry(kind).or_default().add(task);
            }
            cursor = page.next;
            match cursor {
                None => break false,
                Some(_) if read >= READ_MAX || Instant::now() >= until => break true,
                Some(_) => {}
            }
        };
        let kinds = groups.len();
        let tasks = groups.values().map(|group| group.count).sum();
        let mut groups: Vec<_> = groups.into_iter().collect();
        groups.sort_by(|(one_kind, one), (other_kind, other)| {
            (other.count, one_kind).cmp(&(one.count, other_kind))
        });
        groups.truncate(GROUPS_MAX);
        let groups = groups
            .into_iter()
            .map(|((method, kind), group)| group.shown(method, kind, f));
        Ok(List {
            f,
            t: DeadTexts::of(f.language()),
            groups: groups.collect(),
            tasks,
            kinds: kinds as u64,
            is_part,
            has_more: kinds > GROUPS_MAX,
        })
    }
}

impl Page for List<'_> {
    const PLACE: Place = Place::Dead;

    fn head(language: Language) -> Head {
        let t = DeadTexts::of(language);
        Head::new(t.title, t.lead)
            .link("/tasks?state=dead", t.filter)
            .script("actions.js")
    }
}

/// The tasks of a group, while they are collected.
#[derive(Default)]
struct Collected {
    count: u64,
    error: String,
    reasons: Vec<&'static str>,
    latest: Option<UnixMs>,
}

impl Collected {
    fn add(&mut self, task: TaskRecord) {
        self.count += 1;
        let died = task.finished.unwrap_or(task.due_at);
        if self.latest < Some(died) {
            self.latest = Some(died);
            self.error = task.last_error.unwrap_or_default();
        }
        let reason = task.reason.map(|reason| reason.as_str());
        self.reasons
            .extend(reason.filter(|reason| !self.reasons.contains(reason)));
    }

    /// Without a kind, all tasks of this class and method are the group.
    fn shown(self, method: String, kind: Option<String>, f: &Frame) -> Group {
        let (class, name) = method.split_once('@').unwrap_or((&method, ""));
        let mut filter = json!({"state": "dead", "class": class, "method": name});
        let mut query = format!(
            "state=dead&class={}&method={}",
            encoded(class),
            encoded(name)
        );
        if let Some(kind) = kind {
            if !kind.is_empty() {
                query += &format!("&error_kind={}", encoded(&kind));
            }
            // The empty kind is that of tasks without an error.
            filter["error_kind"] = json!(kind);
        }
        Group {
            count: self.count,
            href: format!("{}/tasks?{query}", f.base),
            filter: filter.to_string(),
            error: self.error,
            reasons: self.reasons,
            latest: f.relative(&self.latest.unwrap_or(f.now)),
            method,
        }
    }
}

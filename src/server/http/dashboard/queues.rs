//! Pull queues: what waits in each, and which workers ask for it.

use std::collections::HashMap;
use std::sync::Arc;
use std::time::Duration;

use askama::Template;

use super::frame::{Frame, Place};
use super::moment::{self, Moment};
use super::reasons;
use super::texts::{Language, texts};
use super::{Head, NoQuery, Page, PanelContent};
use crate::http::app_state::AppState;
use crate::http::problem::Problem;
use crate::http::why;
use lapsed::diagnosis::{STARTING, WhyCause, WhyFacts};
use lapsed::engine::{PullQueueStatus, WorkerStatus};
use lapsed::ledger::MethodStats;
use lapsed::task::{TaskKey, UnixMs};
use lapsed_core::format;

/// Workers of a queue that are shown.
const WORKERS_MAX: usize = 50;

texts! {
    /// Texts of the queues.
    QueuesTexts {
        title: "Queues and workers", "队列与工作进程";
        lead: "Workers take the tasks of pull queues over HTTP or a Redis client. The workers are those that asked this daemon.", "工作进程通过 HTTP 或 Redis 客户端领取拉取队列的任务。此处仅列出向本守护进程请求的工作进程。";
        none: "No route of this daemon has a pull queue. Add one with `pull = { queue = \"mail\" }`.", "此守护进程没有拉取队列路由。可用 `pull = { queue = \"mail\" }` 添加。";
        late: "Overdue tasks: {}, the oldest by {}.", "逾期任务：{} 个，最久已逾期 {}。";
        busy: "All workers have tasks. Start more workers.", "所有工作进程都在忙。请增加工作进程。";
        act_now: "Act now", "立即处理";
        kept_back: "Paused", "已暂停";
        waiting: "Workers that wait", "等待中的工作进程";
        wanted: "Tasks they ask for", "请求的任务数";
        overdue: "Overdue", "已逾期";
        running: "With workers now", "工作进程持有";
        pending: "Pending", "待执行";
        visibility: "Lease", "租约";
        part: "Only the {} unfinished tasks that fall due first were counted: there may be more in each queue.", "仅统计了最先到期的 {} 个未完成任务，每个队列中可能还有更多。";
        counted: "Counts are of the classes and methods of this queue, in all daemons.", "计数为此队列的类与方法在所有守护进程中的总和。";
        worker: "Worker", "工作进程";
        unnamed: "without a name", "未命名";
        state: "State", "状态";
        waits: "waits for tasks", "等待任务";
        works: "works, or is gone", "工作中或已离开";
        gone: "not seen for long", "长时间未见";
        taken: "Tasks taken here", "在此领取的任务";
        seen: "Last seen", "最后活动";
        no_workers: "No worker has asked since this daemon started.", "自本守护进程启动以来没有工作进程请求。";
        methods: "Classes and methods", "类与方法";
        more: "The {} that were seen last.", "最后活动的 {} 个。";
    }
}

/// A queue as it is shown.
struct Queue {
    name: String,
    visibility: String,
    wanted: u64,
    waiting: u64,
    /// Sums over its classes and methods.
    tasks: MethodStats,
    methods: Vec<String>,
    workers: Vec<Worker>,
    /// True if there are more workers than shown.
    is_part: bool,
    /// What is wrong, and why.
    trouble: Option<Trouble>,
}

/// Why tasks of a queue are overdue.
struct Trouble {
    /// How many, and how long.
    late: String,
    /// The cause, and what to do.
    why: String,
    /// False if a person keeps them back.
    is_bad: bool,
}

struct Worker {
    name: String,
    state: &'static str,
    mark: &'static str,
    taken: u64,
    seen: Moment,
}

#[derive(Template)]
#[template(path = "queues_list.html")]
pub struct List<'a> {
    f: &'a Frame,
    t: &'static QueuesTexts,
    queues: Vec<Queue>,
    /// The number of unfinished tasks that were looked at, if not all.
    of: Option<u64>,
    is_part: bool,
    /// True if not all overdue tasks were looked at.
    is_part_of_overdue: bool,
}

impl PanelContent for List<'_> {
    const NAME: &'static str = "queues";
    const SHOWS: &'static str = "stats workers";
    const IS_PER_CLASS: bool = false;
    type Query = NoQuery;
    type Content<'a> = List<'a>;

    async fn load<'a>(
        app: &'a AppState,
        f: &'a Frame,
        _: &'a NoQuery,
    ) -> Result<List<'a>, Problem> {
        let (count, facts) = tokio::try_join!(
            async { Ok(app.stats_cache.count(&app.tasks).await?) },
            why::facts(app, &f.caller)
        )?;
        let mut tasks: HashMap<Arc<str>, Vec<&MethodStats>> = HashMap::new();
        for method in &count.stats.methods {
            let key = TaskKey::parse(&method.name).ok();
            if let Some(queue) = key.and_then(|key| app.engine.pull_queue_of(&key)) {
                tasks.entry(queue).or_default().push(method);
            }
        }
        let overdue: u64 = count.stats.methods.iter().map(|it| it.overdue).sum();
        let status = app.engine.pull().status().into_iter();
        let queues = status.map(|status| {
            let of_queue = tasks.get(&*status.queue).map_or(&[][..], Vec::as_slice);
            queue(app, &facts, status, of_queue, f)
        });
        Ok(List {
            f,
            t: QueuesTexts::of(f.language()),
            queues: queues.collect(),
            of: count.stats.methods_of.map(u64::from),
            is_part: count.stats.methods_of.is_some(),
            is_part_of_overdue: count.stats.methods_of.is_some()
                && overdue < count.stats.counts.overdue,
        })
    }
}

impl Page for List<'_> {
    const PLACE: Place = Place::Queues;

    fn head(language: Language) -> Head {
        let t = QueuesTexts::of(language);
        Head::new(t.title, t.lead)
    }
}

fn queue(
    app: &AppState,
    facts: &WhyFacts,
    status: PullQueueStatus,
    methods: &[&MethodStats],
    f: &Frame,
) -> Queue {
    let PullQueueStatus {
        queue: name,
        visibility,
        wanted,
        workers,
    } = status;
    let mut tasks = MethodStats::default();
    for method in methods {
        tasks.pending += method.pending + method.waiting;
        tasks.running += method.running;
        tasks.overdue += method.overdue;
        tasks.overdue_ms_max = tasks.overdue_ms_max.max(method.overdue_ms_max);
    }
    let waiting = workers.iter().filter(|worker| worker.waiting > 0).count();
    let is_part = workers.len() > WORKERS_MAX;
    Queue {
        trouble: trouble(app, facts, methods, &tasks, waiting as u64, f),
        visibility: moment::duration(ms(visibility), f.language()),
        wanted: wanted as u64,
        waiting: waiting as u64,
        methods: methods.iter().map(|method| method.name.clone()).collect(),
        workers: workers
            .into_iter()
            .take(WORKERS_MAX)
            .map(|worker| shown(worker, visibility, f))
            .collect(),
        is_part,
        tasks,
        name,
    }
}

fn shown(worker: WorkerStatus, visibility: Duration, f: &Frame) -> Worker {
    let t = QueuesTexts::of(f.language());
    let WorkerStatus {
        name,
        waiting,
        taken,
        seen_ago,
    } = worker;
    let (state, mark) = match waiting {
        0 if seen_ago > visibility => (t.gone, "cancelled"),
        0 => (t.works, "running"),
        _ => (t.waits, "done"),
    };
    let at = UnixMs(f.now.0.saturating_sub_unsigned(ms(seen_ago)));
    Worker {
        name: match name.is_empty() {
            true => t.unnamed.to_owned(),
            false => name,
        },
        state,
        mark,
        taken,
        seen: f.relative(&at),
    }
}

/// What is wrong with a queue: the cause of the class and method with most overdue tasks.
fn trouble(
    app: &AppState,
    facts: &WhyFacts,
    methods: &[&MethodStats],
    tasks: &MethodStats,
    waiting: u64,
    f: &Frame,
) -> Option<Trouble> {
    if Duration::from_millis(tasks.overdue_ms_max) <= STARTING {
        return None;
    }
    let t = QueuesTexts::of(f.language());
    let worst = methods.iter().max_by_key(|method| method.overdue)?;
    let key = TaskKey::parse(&worst.name).ok()?;
    let cause = facts.of_due(&key, UnixMs(0), app.engine.route_facts(&key).as_ref());
    let (count, oldest) = (
        format::count(tasks.overdue),
        moment::duration(tasks.overdue_ms_max, f.language()),
    );
    Some(Trouble {
        late: f.fill(t.late, &[&count, &oldest]),
        why: match cause {
            WhyCause::Unknown if waiting == 0 => t.busy.to_owned(),
            ref cause => reasons::reason(cause, f).text,
        },
        is_bad: !cause.is_kept_back(),
    })
}

fn ms(length: Duration) -> u64 {
    u64::try_from(length.as_millis()).unwrap_or(u64::MAX)
}

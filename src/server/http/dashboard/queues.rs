//! Pull queues: what waits in each, and which workers ask for it.

use std::collections::{BTreeMap, HashMap};
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
use lapsed::diagnosis::{STARTING, Unlisted, WhyCause, WhyFacts};
use lapsed::engine::{PullQueueStatus, WorkerStatus};
use lapsed::ledger::MethodStats;
use lapsed::membership::Member;
use lapsed::task::{TaskKey, UnixMs};
use lapsed_core::format;

/// Workers of a queue that are shown.
const WORKERS_MAX: usize = 50;

texts! {
    /// Texts of the queues.
    QueuesTexts {
        title: "Queues and workers", "队列与工作进程";
        lead: "Workers take the tasks of pull queues over HTTP or a Redis client. Each worker asks one daemon: those of this daemon are listed by name, those of the others are counted.", "工作进程通过 HTTP 或 Redis 客户端领取拉取队列的任务。每个工作进程向一个守护进程请求：本守护进程的按名称列出，其他守护进程的只计数。";
        none: "No route of this daemon has a pull queue, and workers ask no other daemon. Add one with `pull = { queue = \"mail\" }`.", "此守护进程没有拉取队列路由，也没有工作进程向其他守护进程请求。可用 `pull = { queue = \"mail\" }` 添加。";
        late: "Overdue tasks: {}, the oldest by {}.", "逾期任务：{} 个，最久已逾期 {}。";
        busy: "All workers have tasks. Start more workers.", "所有工作进程都在忙。请增加工作进程。";
        act_now: "Act now", "立即处理";
        kept_back: "Paused", "已暂停";
        waiting: "Workers that wait", "等待中的工作进程";
        wanted: "Tasks asked for here", "在此请求的任务数";
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
        no_workers: "No worker has asked this daemon since it started.", "自本守护进程启动以来没有工作进程向其请求。";
        elsewhere: "Workers of other daemons", "其他守护进程的工作进程";
        workers: "Workers", "工作进程数";
        of_them_wait: "Of them wait", "其中等待";
        asked: "Last asked", "最后请求";
        now: "now", "现在";
        only_elsewhere: "No route of this daemon has this queue: its tasks are counted on the pages of the daemons that have it.", "此守护进程没有该队列的路由：其任务在拥有该路由的守护进程页面上统计。";
        left_out: "{} lists {} of its queues here. Workers ask it for {} more.", "{} 在此列出其 {} 个队列，另有 {} 个队列也有工作进程请求。";
        unheard: "The heartbeats of the other daemons cannot be heard: their workers are missing here.", "听不到其他守护进程的心跳：此处缺少它们的工作进程。";
        unknown: "The daemons of this ledger do not know of each other: only the workers of this one are shown.", "此账本的守护进程彼此不知：仅显示本守护进程的工作进程。";
        methods: "Classes and methods", "类与方法";
        more: "The {} that were seen last.", "最后活动的 {} 个。";
    }
}

/// A queue as it is shown.
struct Queue {
    name: String,
    /// `None` if no route of this daemon has it.
    here: Option<Here>,
    /// Workers of all daemons that wait.
    waiting: u64,
    /// Workers of other daemons.
    elsewhere: Vec<Elsewhere>,
}

/// What this daemon knows of a queue of its routes.
struct Here {
    visibility: String,
    wanted: u64,
    /// Sums over its classes and methods.
    tasks: MethodStats,
    methods: Vec<String>,
    workers: Vec<Worker>,
    /// True if there are more workers than shown.
    is_part: bool,
    /// What is wrong, and why.
    trouble: Option<Trouble>,
}

/// The workers that ask another daemon for a queue.
struct Elsewhere {
    daemon: String,
    workers: u64,
    waiting: u64,
    /// When one asked last. `None` while one waits: it asks now.
    asked: Option<Moment>,
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
    /// What is missing of the other daemons.
    missing: Vec<String>,
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
        let t = QueuesTexts::of(f.language());
        let mut elsewhere = Asked::default();
        elsewhere.add(&app.engine.daemons(), f);
        let mut queues = Vec::new();
        for status in app.engine.pull().status() {
            let of_queue = tasks.get(&*status.queue).map_or(&[][..], Vec::as_slice);
            let elsewhere = elsewhere.queues.remove(&status.queue).unwrap_or_default();
            queues.push(queue(app, &facts, status, of_queue, elsewhere, f));
        }
        let others = elsewhere.queues.into_iter();
        queues.extend(others.map(|(name, elsewhere)| Queue {
            name,
            here: None,
            waiting: elsewhere.iter().map(|other| other.waiting).sum(),
            elsewhere,
        }));
        let mut missing = elsewhere.left_out;
        missing.extend(match app.engine.unlisted() {
            Unlisted::None => None,
            Unlisted::Unheard => Some(t.unheard.to_owned()),
            Unlisted::Unknown => Some(t.unknown.to_owned()),
        });
        Ok(List {
            f,
            t,
            queues,
            missing,
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

/// What the heartbeats of the other daemons say of workers.
#[derive(Default)]
struct Asked {
    /// By queue.
    queues: BTreeMap<String, Vec<Elsewhere>>,
    /// The daemons that list only some of their queues.
    left_out: Vec<String>,
}

impl Asked {
    fn add(&mut self, daemons: &[Member], f: &Frame) {
        let t = QueuesTexts::of(f.language());
        for member in daemons.iter().filter(|member| !member.is_this) {
            for asked in member.queues.list() {
                let queue = self.queues.entry(asked.name.clone()).or_default();
                queue.push(Elsewhere {
                    daemon: member.name.clone(),
                    workers: u64::from(asked.workers),
                    waiting: u64::from(asked.waiting),
                    asked: (asked.waiting == 0).then(|| f.relative(&asked.asked.min(f.now))),
                });
            }
            let left_out = u64::from(member.queues.left_out());
            if left_out > 0 {
                let (listed, left_out) = (member.queues.list().len() as u64, left_out);
                let numbers = [listed, left_out].map(|number| f.number(&number));
                let values = [&*member.name, &numbers[0], &numbers[1]];
                self.left_out.push(f.fill(t.left_out, &values));
            }
        }
    }
}

fn queue(
    app: &AppState,
    facts: &WhyFacts,
    status: PullQueueStatus,
    methods: &[&MethodStats],
    elsewhere: Vec<Elsewhere>,
    f: &Frame,
) -> Queue {
    let mut tasks = MethodStats::default();
    for method in methods {
        tasks.pending += method.pending + method.waiting;
        tasks.running += method.running;
        tasks.overdue += method.overdue;
        tasks.overdue_ms_max = tasks.overdue_ms_max.max(method.overdue_ms_max);
    }
    let waits = |worker: &&WorkerStatus| worker.waiting > 0;
    let waiting = status.workers.iter().filter(waits).count() as u64;
    let waiting = waiting + elsewhere.iter().map(|other| other.waiting).sum::<u64>();
    let workers = status.workers.iter().take(WORKERS_MAX);
    Queue {
        here: Some(Here {
            trouble: trouble(app, facts, methods, &tasks, waiting, f),
            visibility: moment::duration(ms(status.visibility), f.language()),
            wanted: status.wanted as u64,
            methods: methods.iter().map(|method| method.name.clone()).collect(),
            workers: workers.map(|worker| shown(&status, worker, f)).collect(),
            is_part: status.workers.len() > WORKERS_MAX,
            tasks,
        }),
        waiting,
        elsewhere,
        name: status.queue,
    }
}

fn shown(queue: &PullQueueStatus, worker: &WorkerStatus, f: &Frame) -> Worker {
    let t = QueuesTexts::of(f.language());
    let (state, mark) = match worker.waiting {
        0 if !queue.has(worker) => (t.gone, "cancelled"),
        0 => (t.works, "running"),
        _ => (t.waits, "done"),
    };
    let at = UnixMs(f.now.0.saturating_sub_unsigned(ms(worker.seen_ago)));
    Worker {
        name: match worker.name.is_empty() {
            true => t.unnamed.to_owned(),
            false => worker.name.clone(),
        },
        state,
        mark,
        taken: worker.taken,
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

//! The daemons of the ledger, and what each of them runs.

use std::collections::BTreeSet;

use askama::Template;

use super::frame::{Frame, Place};
use super::moment::Moment;
use super::texts::{Language, texts};
use super::{Head, NoQuery, Page, PanelContent};
use crate::http::app_state::AppState;
use crate::http::problem::Problem;
use lapsed::membership::{Member, Readiness};

texts! {
    /// Texts of the daemons.
    DaemonsTexts {
        title: "Daemons", "守护进程";
        lead: "The daemons that share this ledger, as their heartbeats of the last 3 s say.", "共享此账本的守护进程，依据最近 3 秒的心跳。";
        alone: "This daemon has not heard its own heartbeat yet: Redis does not answer, or it has just started.", "此守护进程尚未收到自己的心跳：Redis 没有响应，或刚刚启动。";
        unheard: "The heartbeats of the other daemons cannot be heard: Redis does not answer. Each daemon tries to run all tasks until it does.", "听不到其他守护进程的心跳：Redis 没有响应。恢复之前，每个守护进程都会尝试执行所有任务。";
        not_subscribed: "No expiry events arrive from Redis now.", "目前收不到 Redis 的过期事件。";
        versions: "Different versions run: {}. Update the older ones when you can.", "正在运行不同的版本：{}。请尽快升级旧版本。";
        differ: "Not all daemons run the same tasks: what only one of them runs waits while it is away.", "各守护进程运行的任务不同：只由其中一个运行的任务，会在其离线时等待。";
        warning: "Warning", "警告";
        note: "Note", "提示";
        this: "this one", "本进程";
        ready: "takes tasks", "接收任务";
        full: "no free slot", "没有空闲槽位";
        away: "leaving, or its ledger does not answer", "正在离开，或账本无响应";
        version: "Version", "版本";
        unknown: "not stated", "未说明";
        since: "Since", "起始";
        timer: "Timer", "定时器";
        listens: "Expiry events", "过期事件";
        hears: "listens to all keys", "监听所有键";
        hears_not: "told by others", "由其他进程告知";
        handlers: "Handlers", "处理器";
        routes: "Routes", "路由";
        no_worker: "no worker asks here", "此处没有工作进程请求";
        only_here: "only here", "仅此处";
        runs_nothing: "It has no handlers and no routes: it runs nothing.", "没有处理器和路由：不运行任何任务。";
    }
}

/// A daemon as it is shown.
struct Daemon {
    name: String,
    is_this: bool,
    readiness: &'static str,
    /// Class of its readiness.
    mark: &'static str,
    version: String,
    since: Moment,
    /// The name of its timer; empty if it is not known.
    timer: String,
    listens: bool,
    handlers: Vec<Capability>,
    routes: Vec<Capability>,
}

/// A handler or a route.
struct Capability {
    name: String,
    /// True if no other daemon has it, though there are others.
    is_only_here: bool,
    /// True for a pull route for which no worker asks this daemon.
    is_idle: bool,
}

#[derive(Template)]
#[template(path = "daemons_list.html")]
pub struct List<'a> {
    f: &'a Frame,
    t: &'static DaemonsTexts,
    daemons: Vec<Daemon>,
    /// The versions, if there is more than one.
    versions: Option<String>,
    differ: bool,
    /// False for a timer without expiry events.
    has_events: bool,
    /// True if the heartbeats of the others cannot be read.
    is_unheard: bool,
    /// True if this daemon receives no expiry events, though its timer has them.
    is_unsubscribed: bool,
}

impl PanelContent for List<'_> {
    const NAME: &'static str = "daemons";
    const SHOWS: &'static str = "workers";
    const IS_PER_CLASS: bool = false;
    type Query = NoQuery;
    type Content<'a> = List<'a>;

    async fn load<'a>(
        app: &'a AppState,
        f: &'a Frame,
        _: &'a NoQuery,
    ) -> Result<List<'a>, Problem> {
        Ok(List {
            has_events: app.engine.is_listening().is_some(),
            is_unheard: !app.engine.hears_daemons(),
            is_unsubscribed: app.engine.is_listening() == Some(false),
            ..shown(&app.engine.daemons(), f)
        })
    }
}

impl Page for List<'_> {
    const PLACE: Place = Place::Daemons;

    fn head(language: Language) -> Head {
        let t = DaemonsTexts::of(language);
        Head::new(t.title, t.lead)
    }
}

fn shown<'a>(members: &[Member], f: &'a Frame) -> List<'a> {
    let t = DaemonsTexts::of(f.language());
    let versions: BTreeSet<&str> = members.iter().map(|member| &*member.version).collect();
    let versions: Vec<&str> = versions
        .into_iter()
        .map(|version| {
            if version.is_empty() {
                t.unknown
            } else {
                version
            }
        })
        .collect();
    let daemons: Vec<Daemon> = members
        .iter()
        .map(|member| daemon(member, members, f))
        .collect();
    let is_single = |capability: &Capability| capability.is_only_here;
    List {
        f,
        t,
        versions: (versions.len() > 1).then(|| versions.join(", ")),
        differ: daemons.iter().any(|daemon| {
            let capabilities = daemon.handlers.iter().chain(&daemon.routes);
            capabilities.into_iter().any(is_single)
        }),
        daemons,
        has_events: true,
        is_unheard: false,
        is_unsubscribed: false,
    }
}

fn daemon(member: &Member, all: &[Member], f: &Frame) -> Daemon {
    let t = DaemonsTexts::of(f.language());
    let others = || all.iter().filter(|other| other.id != member.id);
    let has_others = others().next().is_some();
    let able = &member.capabilities;
    let (readiness, mark) = match member.readiness {
        Readiness::Ready => (t.ready, "done"),
        Readiness::Full => (t.full, "waiting"),
        Readiness::Away => (t.away, "dead"),
    };
    let handlers = able.handlers.iter().map(|name| Capability {
        name: name.clone(),
        is_only_here: has_others
            && !others().any(|other| other.capabilities.handlers.contains(name)),
        is_idle: false,
    });
    let routes = able.routes.iter().enumerate().map(|(at, name)| Capability {
        name: name.clone(),
        is_only_here: has_others && !others().any(|other| other.capabilities.routes.contains(name)),
        is_idle: able.idle.iter().any(|idle| usize::from(*idle) == at),
    });
    Daemon {
        name: member.name.clone(),
        is_this: member.is_this,
        readiness,
        mark,
        version: member.version.clone(),
        since: f.relative(&member.since),
        timer: member.timer_name().to_owned(),
        listens: member.listening || member.expired_only,
        handlers: handlers.collect(),
        routes: routes.collect(),
    }
}

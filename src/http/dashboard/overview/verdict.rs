//! Is all well? If not: what is wrong, and what to do. Pure.

use std::time::Duration;

use crate::engine::{LatenessPercentiles, Urgency, WhyCause};
use crate::http::dashboard::moment::{length, number, took};
use crate::http::dashboard::texts::{Language, fill, texts};
use crate::ledger::Stats;
use crate::task::{Pause, UnixMs};

/// Tasks start at most this late, in milliseconds, while a daemon has a free slot.
pub const PROMISED_MS: u64 = 2_000;

/// How much a finding matters.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Severity {
    /// Tasks do not start, or start very late: act now.
    Bad,
    /// Something is not as it should be: look at it today.
    Warning,
    /// Good to know.
    Note,
}

impl Severity {
    /// Its class in the style sheet.
    pub fn class(self) -> &'static str {
        match self {
            Self::Bad => "bad",
            Self::Warning => "warning",
            Self::Note => "note",
        }
    }

    /// Its name.
    pub fn name(self, texts: &VerdictTexts) -> &'static str {
        match self {
            Self::Bad => texts.bad,
            Self::Warning => texts.warning,
            Self::Note => texts.note,
        }
    }
}

/// Something to know about the installation.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Finding {
    /// How much it matters.
    pub severity: Severity,
    /// What is so.
    pub what: String,
    /// What it means, and what to do.
    pub action: String,
    /// Where to go: a path below the base, and its name.
    pub link: Option<(&'static str, &'static str)>,
}

/// Overdue tasks that do not start for one reason.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Blocked {
    /// The `Class@method` with the most of them.
    pub name: String,
    /// Why they do not start.
    pub cause: WhyCause,
    /// How many they are, at least.
    pub tasks: u64,
    /// How long the oldest of them has been overdue, in milliseconds.
    pub ms_max: u64,
    /// True if they are of more than one class and method.
    pub is_of_several: bool,
}

impl Blocked {
    fn urgency(&self) -> Urgency {
        let is_kept_back = matches!(self.cause, WhyCause::Paused(_) | WhyCause::Held(_));
        Urgency::of(Duration::from_millis(self.ms_max), is_kept_back)
    }
}

/// What the verdict is about.
#[derive(Debug, Clone, Default)]
pub struct Facts {
    /// Why the ledger does not answer; `None` if it does.
    pub ledger_trouble: Option<String>,
    /// Says since when the ledger does not answer, if that is known.
    pub ledger_gone: Option<String>,
    /// True if expiry events arrive; `None` for a timer without a server.
    pub is_listening: Option<bool>,
    /// True if this daemon stops.
    pub is_stopping: bool,
    /// Counts; `None` if there are none.
    pub counts: Option<Stats>,
    /// Which tasks are overdue, by the reason why they do not start.
    pub blocked: Vec<Blocked>,
    /// Tasks and occurrences that died in the last hour.
    pub dead_lately: u64,
    /// True if tasks start late now.
    pub is_late: bool,
    /// When tasks last started late within the hour.
    pub late_until: Option<UnixMs>,
    /// How late the tasks of the last hour started; `None` if none did.
    pub late: Option<LatenessPercentiles>,
    /// Number of pauses and holds.
    pub pauses: usize,
    /// True if everything is paused.
    pub all_paused: bool,
    /// True if old overdue tasks are held for review.
    pub has_hold: bool,
    /// Names of daemons that have ended lately without saying so, and whose place no other has taken.
    pub gone: Vec<String>,
    /// Background tasks whose latest pass failed, and its error.
    pub failing: Vec<(&'static str, String)>,
}

texts! {
    /// Texts of findings.
    VerdictTexts {
        well: "All is well", "一切正常";
        well_detail: "The ledger answers, and no task waits longer than it should.", "账本响应正常，没有任务等待过久。";
        bad: "Act now", "立即处理";
        warning: "Warning", "警告";
        note: "Note", "提示";
        ledger: "The ledger does not answer", "账本没有响应";
        ledger_do: "No task starts until it does; none is lost. Check the database server and `ledger.url`. ({})", "恢复之前任务不会开始，也不会丢失。请检查数据库服务器和 `ledger.url`。（{}）";
        ledger_late: "no answer within {} ms", "{} 毫秒内没有响应";
        events: "No expiry events arrive from Redis", "收不到 Redis 的过期事件";
        events_do: "Tasks of the ledger still start on time. A bare SETEX is found only by an audit. Check the Redis server and `redis.url`.", "账本中的任务仍会准时开始，但裸 SETEX 只能由审计发现。请检查 Redis 服务器和 `redis.url`。";
        gone: "A daemon is gone: {}", "守护进程已消失：{}";
        gone_do: "It ended without saying so. The others run its tasks; look at its host and its log.", "它未经通知就已结束。其他守护进程会执行它的任务；请检查其主机和日志。";
        stopping: "This daemon is stopping", "此守护进程正在停止";
        stopping_do: "It starts no more tasks. Others, or its successor, go on.", "它不再开始任务，其他守护进程或后继者会继续。";
        overdue: "Overdue tasks: {}, the oldest by {}", "超时任务：{} 个，最早的已超时 {}";
        only: "All are {}.", "全部是 {}。";
        mostly: "Most are {}.", "大多是 {}。";
        overdue_do: "Usual causes: their concurrency or rate is used up, or all slots are.", "常见原因：并发、速率或全部执行槽位已用尽。";
        overdue_limit_do: "Their concurrency is used up: at most {} run at the same time on a daemon.", "它们的并发已用尽：每个守护进程最多同时执行 {} 个。";
        overdue_slots_do: "All slots of the daemons that can run them are taken.", "能执行它们的守护进程的槽位已全部占用。";
        overdue_rate_do: "At most {} of them start.", "它们最多按 {} 的速率开始。";
        overdue_away_do: "Only daemons that are gone, or accept no task, have a route for them: {}.", "只有已消失或不接收任务的守护进程有它们的路由：{}。";
        overdue_unheard_do: "This daemon cannot start them, and cannot hear the others: check the Redis server.", "此守护进程无法开始它们，也听不到其他守护进程：请检查 Redis 服务器。";
        overdue_paused_do: "They are paused: resume them if it is time.", "它们已暂停：时机合适时请恢复。";
        since_by: "Paused by {}.", "操作者：{}。";
        since_reason: "Reason: {}.", "原因：{}。";
        overdue_held_do: "They are held for review: release them if it is time.", "它们被保留等待检查：时机合适时请放行。";
        overdue_worker_do: "No worker asks for their queue {}. Start its workers.", "没有工作进程请求其队列 {}。请启动工作进程。";
        overdue_workers_do: "No worker asks any daemon for their queue. Start its workers.", "没有工作进程向任何守护进程请求其队列。请启动工作进程。";
        overdue_route_do: "No daemon has a route for them. Add one, or cancel them.", "没有守护进程有它们的路由。请添加路由，或取消它们。";
        late: "Tasks start late: 1 % of the last hour later than {}", "任务开始延迟：最近一小时有 1% 晚于 {}";
        late_do: "Usual causes: an outage that has just ended, limits of routes, a slow ledger, or workers that ask too rarely.", "常见原因：刚结束的中断、路由限制、账本缓慢，或工作进程请求过少。";
        well_now: "Well now. Tasks started late until", "目前正常。任务开始延迟持续到";
        all_paused: "Everything is paused", "全部任务已暂停";
        all_paused_do: "No task starts until it is resumed.", "恢复之前不会开始任何任务。";
        hold: "Old overdue tasks are held", "旧的超时任务被保留";
        hold_do: "They wait for review, and do not start until they are released.", "它们等待检查，放行之前不会开始。";
        paused: "Pauses: {}", "暂停项：{}";
        paused_do: "Their tasks fall due but do not start.", "相应的任务到期后不会开始。";
        on_time: "Tasks that started in the last hour: {}; 99 % of them within {} after their due time.", "最近一小时开始的任务：{} 个，其中 99% 在到期后 {} 内开始。";
        died: "Dead tasks: {}; in the last hour {} died", "死信任务：{} 个；最近一小时新增 {} 个";
        dead: "Dead tasks: {}", "死信任务：{}";
        dead_do: "They failed for good and wait for a decision: redrive or discard.", "它们已彻底失败，等待处理：重新投递或丢弃。";
        malformed: "Rows with an invalid key: {}", "键无效的行：{}";
        malformed_do: "They never run. A program writes them: expected `Class@method@argument`.", "它们永远不会执行。由某个程序写入：键应为 `Class@method@argument`。";
        failing: "A background task fails: {}", "后台任务失败：{}";
        failing_do: "It is repeated by itself. ({})", "它会自动重试。（{}）";
        show_overdue: "Show overdue tasks", "查看超时任务";
        show_queues: "Show queues", "查看队列";
        show_pauses: "Show pauses", "查看暂停项";
        show_daemons: "Show daemons", "查看守护进程";
        show_dead: "Show dead tasks", "查看死信任务";
        show_malformed: "Show tasks", "查看任务";
    }
}

/// Returns the findings, the worst first. If there are only notes, all is well.
pub fn findings(facts: &Facts, language: Language) -> Vec<Finding> {
    let texts = VerdictTexts::of(language);
    let mut findings = Vec::new();
    let mut find = |severity, what: String, action: String, link| {
        findings.push(Finding {
            severity,
            what,
            action,
            link,
        });
    };
    let text = str::to_owned;
    let to_pauses = Some(("/pauses", texts.show_pauses));
    if let Some(trouble) = &facts.ledger_trouble {
        let action = fill(texts.ledger_do, &[trouble]);
        let what = facts.ledger_gone.clone();
        let what = what.unwrap_or_else(|| text(texts.ledger));
        find(Severity::Bad, what, action, None);
    }
    if facts.all_paused {
        let (what, action) = (text(texts.all_paused), text(texts.all_paused_do));
        find(Severity::Bad, what, action, to_pauses);
    }
    for blocked in &facts.blocked {
        let severity = match blocked.urgency() {
            Urgency::None => continue,
            Urgency::Warning => Severity::Warning,
            Urgency::Act => Severity::Bad,
        };
        // What the counts by class have not reached is among the last of them.
        let counted: u64 = facts.blocked.iter().map(|it| it.tasks).sum();
        let is_part = facts.counts.is_some_and(|counts| counts.overdue > counted);
        let tasks = match is_part {
            true => format!("≥ {}", number(blocked.tasks)),
            false => number(blocked.tasks),
        };
        let since = length(blocked.ms_max, language);
        let what = fill(texts.overdue, &[&tasks, &since]);
        let name = match blocked.is_of_several {
            true => fill(texts.mostly, &[&blocked.name]),
            false => fill(texts.only, &[&blocked.name]),
        };
        let to_queues = Some(("/queues", texts.show_queues));
        let to_overdue = Some(("/tasks?state=overdue", texts.show_overdue));
        let to_daemons = Some(("/daemons", texts.show_daemons));
        let (action, link) = match &blocked.cause {
            WhyCause::Paused(pause) => (paused(pause, texts), to_pauses),
            WhyCause::Held(_) => (text(texts.overdue_held_do), to_pauses),
            WhyCause::NoWorker(Some(queue), _) => {
                (fill(texts.overdue_worker_do, &[queue]), to_queues)
            }
            WhyCause::NoWorker(None, _) => (text(texts.overdue_workers_do), to_queues),
            WhyCause::NoRoute | WhyCause::NoDaemon => (text(texts.overdue_route_do), to_daemons),
            WhyCause::Away(names) => {
                let action = fill(texts.overdue_away_do, &[&names.join(", ")]);
                (action, to_daemons)
            }
            WhyCause::Unheard => (text(texts.overdue_unheard_do), to_daemons),
            WhyCause::Concurrency(limit) => {
                let action = fill(texts.overdue_limit_do, &[&limit.to_string()]);
                (action, to_overdue)
            }
            WhyCause::NoSlot => (text(texts.overdue_slots_do), to_daemons),
            WhyCause::Rate(rate) => {
                let action = fill(texts.overdue_rate_do, &[&rate.to_string()]);
                (action, to_overdue)
            }
            // These are not said of tasks that are due.
            WhyCause::Ended(..)
            | WhyCause::Running(_)
            | WhyCause::OlderRuns(_)
            | WhyCause::NotDue(_)
            | WhyCause::Retry(..)
            | WhyCause::Starting
            | WhyCause::Ledger(_)
            | WhyCause::Unknown => (text(texts.overdue_do), to_overdue),
        };
        find(severity, what, format!("{name} {action}"), link);
    }
    let is_urgent = |blocked: &Blocked| blocked.urgency() == Urgency::Act;
    if facts.is_late && !facts.blocked.iter().any(is_urgent) {
        let late = facts.late.map_or(0, |late| late.p99_ms);
        let what = fill(texts.late, &[&took(late, language)]);
        find(Severity::Warning, what, text(texts.late_do), None);
    }
    if facts.is_listening == Some(false) {
        let (what, action) = (text(texts.events), text(texts.events_do));
        find(Severity::Warning, what, action, None);
    }
    if !facts.gone.is_empty() {
        let what = fill(texts.gone, &[&facts.gone.join(", ")]);
        let link = Some(("/daemons", texts.show_daemons));
        find(Severity::Warning, what, text(texts.gone_do), link);
    }
    if facts.has_hold {
        let (what, action) = (text(texts.hold), text(texts.hold_do));
        find(Severity::Warning, what, action, to_pauses);
    }
    for (name, error) in &facts.failing {
        let what = fill(texts.failing, &[name]);
        let action = fill(texts.failing_do, &[error]);
        find(Severity::Warning, what, action, None);
    }
    if let Some(counts) = &facts.counts
        && counts.malformed > 0
    {
        let what = fill(texts.malformed, &[&number(counts.malformed)]);
        let link = Some(("/tasks?state=overdue", texts.show_malformed));
        find(Severity::Warning, what, text(texts.malformed_do), link);
    }
    if facts.is_stopping {
        let (what, action) = (text(texts.stopping), text(texts.stopping_do));
        find(Severity::Note, what, action, None);
    }
    if facts.pauses > 0 && !facts.all_paused {
        let what = fill(texts.paused, &[&number(facts.pauses as u64)]);
        find(Severity::Note, what, text(texts.paused_do), to_pauses);
    }
    if let Some(counts) = &facts.counts
        && counts.dead > 0
    {
        let (severity, what) = match facts.dead_lately {
            0 => (Severity::Note, fill(texts.dead, &[&number(counts.dead)])),
            lately => {
                let numbers = [number(counts.dead), number(lately)];
                let what = fill(texts.died, &[&numbers[0], &numbers[1]]);
                (Severity::Warning, what)
            }
        };
        let link = Some(("/dead", texts.show_dead));
        find(severity, what, text(texts.dead_do), link);
    }
    findings.sort_by_key(|finding| finding.severity);
    findings
}

/// What to do about a pause, and who set it and why.
fn paused(pause: &Pause, texts: &VerdictTexts) -> String {
    let mut action = texts.overdue_paused_do.to_owned();
    for (text, word) in [
        (texts.since_by, &pause.by),
        (texts.since_reason, &pause.reason),
    ] {
        if !word.is_empty() {
            action = format!("{action} {}", fill(text, &[word]));
        }
    }
    action
}

/// Says how late the tasks of the last hour started; `None` if none did.
pub fn on_time(facts: &Facts, language: Language) -> Option<String> {
    let late = facts.late?;
    let values = [number(late.count), took(late.p99_ms, language)];
    let text = VerdictTexts::of(language).on_time;
    Some(fill(text, &[&values[0], &values[1]]))
}

#[cfg(test)]
mod tests;

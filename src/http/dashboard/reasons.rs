//! Why a task has not run, in the language and the time zone of the reader.

use super::frame::Frame;
use super::texts::texts;
use crate::engine::WhyCause;
use crate::task::{Pause, UnixMs};

texts! {
    /// Texts about why a task has not run.
    ReasonTexts {
        ended: "It has ended.", "它已结束。";
        running: "It runs now, on {}.", "正在 {} 上执行。";
        older: "It starts when the run of its older arming has ended, on {}.", "旧的一次执行（在 {} 上）结束后才会开始。";
        not_due: "It is not due yet.", "尚未到期。";
        retry: "It waits for attempt {}.", "等待第 {} 次尝试。";
        retry_of: "It waits for attempt {} of {}.", "等待第 {} 次尝试，最多 {} 次。";
        starting: "It fell due a moment ago and is about to start.", "刚刚到期，即将开始。";
        paused: "It does not start: {} is paused since {}.", "不会开始：{} 自 {} 起暂停。";
        everything: "everything", "全部任务";
        held: "It does not start: it is held for review since {}.", "不会开始：自 {} 起被保留等待检查。";
        by: "By {}.", "操作者：{}。";
        because: "Reason: {}.", "原因：{}。";
        ledger: "It does not start: the ledger does not answer.", "不会开始：账本没有响应。";
        no_daemon: "It does not start: no daemon runs.", "不会开始：没有守护进程在运行。";
        no_route: "It does not start: no daemon has a handler or a route for it. Add one, or cancel it.", "不会开始：没有守护进程有它的处理器或路由。请添加路由，或取消它。";
        away: "It does not start: only daemons that are gone, or accept no task, have a route for it: {}.", "不会开始：只有已消失或不接收任务的守护进程有它的路由：{}。";
        no_worker: "It does not start: no worker asks for its queue {}. Start its workers.", "不会开始：没有工作进程请求其队列 {}。请启动工作进程。";
        no_worker_since: "It does not start: no worker asks for its queue {} since {}. Start its workers.", "不会开始：没有工作进程请求其队列 {}，自 {} 起。请启动工作进程。";
        concurrency: "It waits: its route runs as many tasks as it may at the same time, {} on this daemon.", "等待中：其路由同时执行的任务已达上限，此守护进程上为 {} 个。";
        no_slot: "It waits: all slots of the daemons that can run it are taken.", "等待中：能执行它的守护进程的槽位已全部占用。";
        rate: "It waits: other tasks of its route start first, at most {}.", "等待中：其路由的其他任务先开始，速率上限 {}。";
        unheard: "It does not start: this daemon cannot run it, and cannot hear the others. Check the Redis server.", "不会开始：此守护进程无法执行它，也听不到其他守护进程。请检查 Redis 服务器。";
        unknown: "It is overdue. Usual causes: its concurrency or rate is used up, all slots or workers are busy, or the ledger is slow.", "已超时。常见原因：并发或速率已用尽、槽位或工作进程都在忙，或账本缓慢。";
        show_pauses: "Show pauses", "查看暂停项";
        show_queues: "Show queues", "查看队列";
        show_daemons: "Show daemons", "查看守护进程";
    }
}

/// A reason as it is shown.
pub struct Reason {
    /// One word, for programs.
    pub cause: &'static str,
    /// Class in the style sheet.
    pub class: &'static str,
    /// A sentence.
    pub text: String,
    /// Where to go: a path below the base, and its name.
    pub link: Option<(&'static str, &'static str)>,
}

/// Says a cause.
pub fn reason(cause: &WhyCause, f: &Frame) -> Reason {
    let t = ReasonTexts::of(f.language());
    let at = |at: &UnixMs| f.clock_text(at);
    let text = str::to_owned;
    let to_pauses = Some(("/pauses", t.show_pauses));
    let to_daemons = Some(("/daemons", t.show_daemons));
    let (text, link) = match cause {
        WhyCause::Ended(..) => (text(t.ended), None),
        WhyCause::Running(daemon) => (f.fill(t.running, &[daemon]), None),
        WhyCause::OlderRuns(daemon) => (f.fill(t.older, &[daemon]), None),
        WhyCause::NotDue(_) => (text(t.not_due), None),
        WhyCause::Retry(_, attempt, None) => (f.fill(t.retry, &[&attempt.to_string()]), None),
        WhyCause::Retry(_, attempt, Some(max)) => {
            let numbers = [attempt.to_string(), max.to_string()];
            (f.fill(t.retry_of, &[&numbers[0], &numbers[1]]), None)
        }
        WhyCause::Starting => (text(t.starting), None),
        WhyCause::Paused(pause) => {
            let scope = match pause.scope.is_everything() {
                true => t.everything.to_owned(),
                false => pause.scope.to_string(),
            };
            let what = f.fill(t.paused, &[&scope, &at(&pause.since)]);
            (with_words(what, pause, t, f), to_pauses)
        }
        WhyCause::Held(pause) => {
            let what = f.fill(t.held, &[&at(&pause.since)]);
            (with_words(what, pause, t, f), to_pauses)
        }
        WhyCause::Ledger(_) => (text(t.ledger), None),
        WhyCause::NoDaemon => (text(t.no_daemon), to_daemons),
        WhyCause::NoRoute => (text(t.no_route), to_daemons),
        WhyCause::Away(names) => (f.fill(t.away, &[&names.join(", ")]), to_daemons),
        WhyCause::NoWorker(queue, since) => {
            let queue = queue.as_deref().unwrap_or_default();
            let what = match since {
                None => f.fill(t.no_worker, &[queue]),
                Some(since) => f.fill(t.no_worker_since, &[queue, &at(since)]),
            };
            (what, Some(("/queues", t.show_queues)))
        }
        WhyCause::Concurrency(limit) => (f.fill(t.concurrency, &[&limit.to_string()]), None),
        WhyCause::NoSlot => (text(t.no_slot), to_daemons),
        WhyCause::Rate(rate) => (f.fill(t.rate, &[&rate.to_string()]), None),
        WhyCause::Unheard => (text(t.unheard), to_daemons),
        WhyCause::Unknown => (text(t.unknown), None),
    };
    Reason {
        cause: cause.as_str(),
        class: match cause {
            WhyCause::Paused(_) | WhyCause::Held(_) => "warning",
            cause if cause.is_trouble() => "bad",
            _ => "quiet",
        },
        text,
        link,
    }
}

/// Adds who paused it and why.
fn with_words(mut text: String, pause: &Pause, t: &ReasonTexts, f: &Frame) -> String {
    for (words, word) in [(t.by, &pause.by), (t.because, &pause.reason)] {
        if !word.is_empty() {
            text = format!("{text} {}", f.fill(words, &[word]));
        }
    }
    text
}

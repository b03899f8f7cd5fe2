//! What the diagnosis says, in the language and the time zone of the reader.

use super::moment;
use super::texts::{self, Language};
use lapsed::diagnosis::{Message, Phrase, Severity, Value, sentence};
use lapsed::task::UnixMs;
use lapsed_core::format;

/// The class of a severity in the style sheet.
pub fn class(severity: Severity) -> &'static str {
    match severity {
        Severity::Ok => "good",
        Severity::Note => "note",
        Severity::Warning => "warning",
        Severity::Error => "bad",
    }
}

/// A message in a language, as one sentence. `clock` formats times.
pub fn say(message: &Message, language: Language, clock: impl Fn(&UnixMs) -> String) -> String {
    let value = |value: &Value| match value {
        Value::Text(text) => text.clone(),
        Value::Count(number) => format::count(*number),
        Value::AtLeast(number) => format!("≥ {}", format::count(*number)),
        Value::Span(span) => {
            let ms = u64::try_from(span.as_millis()).unwrap_or(u64::MAX);
            moment::duration(ms, language)
        }
        Value::Time(at) => clock(at),
        Value::State(state) => texts::state(language, state.as_str()).to_owned(),
    };
    match language {
        Language::English => sentence(&message.filled(message.phrase.english(), value)),
        Language::Chinese => {
            let text = message.filled(chinese(message.phrase), value);
            let stop = if text.ends_with('。') { "" } else { "。" };
            text + stop
        }
    }
}

/// Each phrase in Chinese, with the places of the English one in the same order.
const fn chinese(phrase: Phrase) -> &'static str {
    match phrase {
        Phrase::LedgerFails => "账本没有响应",
        Phrase::LedgerFailsSince => "账本自 {} 起没有响应",
        Phrase::LedgerUnread => "账本尚未响应",
        Phrase::LedgerLate => "{} 内没有响应",
        Phrase::LedgerDo => "恢复之前任务不会开始，也不会丢失。请检查数据库服务器和 `ledger.url`。",
        Phrase::AllPaused => "全部任务已暂停",
        Phrase::AllPausedDo => "恢复之前不会开始任何任务。",
        Phrase::Overdue => "有到期任务 {} 未开始",
        Phrase::OverdueDo => {
            "`lapsed list --state overdue` 显示这些任务，`lapsed why KEY` 说明某个任务为何没有开始。"
        }
        Phrase::OverdueTasks => "逾期任务：{} 个，最久已逾期 {}",
        Phrase::OverdueOnly => "全部是 {}。",
        Phrase::OverdueMostly => "大多是 {}。",
        Phrase::OverdueFirst => "最先到期的是 {}。",
        Phrase::Late => "任务开始延迟：p99 为 {}（{} 次执行，最近 {}），上限 {}",
        Phrase::LateDo => "常见原因：刚结束的中断、槽位已全部占用、路由限制，或账本缓慢。",
        Phrase::ClockAhead => "账本的时钟向前跳了 {}（{} 之前）",
        Phrase::ClockAheadDo => {
            "时钟被修改，或机器曾被挂起。其间到期的任务现在开始。如果时间不对，请暂停全部任务，校正数据库服务器的时钟，然后恢复。"
        }
        Phrase::ClockBack => "账本的时钟倒退了 {}（{} 之前）",
        Phrase::ClockBackDo => {
            "时钟被修改，任务会多等这么久。如果时间不对，请校正数据库服务器的时钟。"
        }
        Phrase::NoEvents => "收不到 Redis 的事件",
        Phrase::NoEventsDo => "任务可能最多延迟 2 秒开始。请检查 Redis 服务器和 `redis.url`。",
        Phrase::NoEventsAdoptDo => {
            "任务可能最多延迟 2 秒开始。裸 SETEX 只能由审计发现，若在此之前过期则会丢失。请检查 Redis 服务器和 `redis.url`。"
        }
        Phrase::DaemonLost => "守护进程已丢失：{}",
        Phrase::DaemonLostDo => {
            "它未注销就已结束，也没有其他守护进程接替。请检查其主机和日志，并重新启动它。其他守护进程会执行它的任务。"
        }
        Phrase::Hold => "旧的逾期任务被保留",
        Phrase::HoldDo => "它们等待检查，放行之前不会开始。",
        Phrase::BackgroundFails => "后台任务失败：{}",
        Phrase::BackgroundFailsDo => "它会自动重试。",
        Phrase::Malformed => "键无效的行：{}",
        Phrase::MalformedDo => "它们永远不会执行。由某个程序写入：键应为 `Class@method@argument`。",
        Phrase::Swept => "{} 个任务（共 {} 个，最近 {}）仅由清扫开始，最多延迟 2 秒",
        Phrase::KeysLost => "Redis 丢失了 {} 个任务的键（最近 {}），已重新设置",
        Phrase::RedisDo => "`lapsed doctor` 检查 Redis 的通知、内存和时钟。",
        Phrase::CancelledByKey => "{} 个接管的任务（最近 {}）因条目或键缺失而被批量取消",
        Phrase::CancelledByKeyDo => {
            "`lapsed list --state cancelled` 显示这些任务。如果没有程序移除其条目或键，请重新创建。"
        }
        Phrase::SentinelSilent => "{} 没有收到哨兵键，应每 {} 收到一次：Redis 的事件正在丢失",
        Phrase::RetentionBehind => "保留清理跟不上已完成任务的过期速度：数据表在增长",
        Phrase::RetentionBehindDo => "请提高 `retention.rate`，或延长已完成任务的保留时间。",
        Phrase::Died => "最近 {} 新增死信任务：{} 个",
        Phrase::DiedDo => {
            "`lapsed list --state dead` 显示其错误。排除原因后，用 `lapsed redrive --error TEXT`（错误的一部分）重新投递。"
        }
        Phrase::Stopping => "此守护进程正在停止",
        Phrase::StoppingDo => "执行会结束，不再开始任务。其他守护进程或后继者会继续。",
        Phrase::Pauses => "暂停项：{}",
        Phrase::PausesDo => "相应的任务到期后不会开始。",
        Phrase::Dead => "死信任务：{}",
        Phrase::DeadDo => "它们已彻底失败，等待处理：重新投递或丢弃。",

        Phrase::Ended => "已结束：{}",
        Phrase::EndedSince => "已结束：{}，自 {} 起",
        Phrase::EndedDo => "请排除其错误的原因，然后重新投递。",
        Phrase::Running => "正在 {} 上执行",
        Phrase::OlderRuns => "旧的一次执行（在 {} 上）结束后才会开始",
        Phrase::NotDue => "{} 之前尚未到期",
        Phrase::Retry => "{} 之前等待第 {} 次尝试",
        Phrase::RetryOf => "{} 之前等待第 {} 次尝试，最多 {} 次",
        Phrase::After => "标签为 `{}` 的任务全部结束后才会开始，{} 再次检查",
        Phrase::AfterDo => "`lapsed list --tag TAG` 可列出它们。",
        Phrase::AfterDead => "标签为 `{}` 的任务全部结束后才会开始，其中有死信任务；{} 再次检查",
        Phrase::AfterDeadDo => "请重新投递或丢弃它：`lapsed list --tag TAG --state dead`。",
        Phrase::Starting => "刚刚到期，即将开始",
        Phrase::Paused => "`{}` 自 {} 起暂停",
        Phrase::EverythingPaused => "全部任务自 {} 起暂停",
        Phrase::PausedDo => "时机合适时请恢复。",
        Phrase::Held => "自 {} 起被保留等待检查",
        Phrase::HeldDo => "时机合适时请放行：`lapsed resume --held`。",
        Phrase::PausedUntil => "截止：{}。",
        Phrase::PausedBy => "操作者：{}。",
        Phrase::PausedReason => "原因：{}。",
        Phrase::CheckLedger => "请检查数据库服务器和 `ledger.url`。",
        Phrase::NoDaemon => "没有守护进程在运行：任务不会开始",
        Phrase::NoDaemonDo => "请启动 `lapsed listen`。",
        Phrase::NoRoute => "没有守护进程有匹配的处理器或路由",
        Phrase::NoRouteHere => "响应的守护进程没有匹配的处理器或路由，且此账本的守护进程彼此不知",
        Phrase::NoRouteDo => "请添加匹配的路由并重新加载守护进程，或取消不应执行的任务。",
        Phrase::Away => "只有已丢失或不接收任务的守护进程有匹配的路由",
        Phrase::AwayNamed => "只有已丢失或不接收任务的守护进程有匹配的路由：{}",
        Phrase::AwayDo => "请重新启动这些守护进程，或把其路由交给另一个守护进程。",
        Phrase::NoWorker => "没有工作进程向任何守护进程请求该队列",
        Phrase::NoWorkerOf => "没有工作进程向任何守护进程请求队列 `{}`",
        Phrase::NoWorkerSince => "没有工作进程向任何守护进程请求队列 `{}`，自 {} 起",
        Phrase::NoWorkerHere => {
            "没有工作进程向响应的守护进程请求该队列，且此账本的守护进程彼此不知"
        }
        Phrase::NoWorkerHereOf => {
            "没有工作进程向响应的守护进程请求队列 `{}`，且此账本的守护进程彼此不知"
        }
        Phrase::NoWorkerDo => "请启动该队列的工作进程。",
        Phrase::Concurrency => "其路由同时执行的任务已达上限：每个守护进程 {} 个",
        Phrase::ConcurrencyDo => "请等待，或提高路由的 `concurrency`；检查是否有挂起的执行。",
        Phrase::NoSlot => "有匹配路由的守护进程的槽位已全部占用",
        Phrase::NoSlotDo => {
            "请等待、提高 `engine.concurrency`，或再启动一个守护进程；检查是否有挂起的执行。"
        }
        Phrase::Rate => "其路由的其他任务先开始，速率上限 {}",
        Phrase::RateDo => "请等待，或提高路由的 `rate`。",
        Phrase::Unheard => "响应的守护进程没有匹配的路由，也听不到其他守护进程：Redis 没有响应",
        Phrase::UnheardDo => "请检查 Redis 服务器和 `redis.url`。",
        Phrase::Unknown => {
            "有守护进程可以执行但尚未开始。常见原因：并发或速率已用尽、槽位或工作进程都在忙，或账本缓慢"
        }
        Phrase::UnknownDo => "请查看守护进程的日志，并运行 `lapsed doctor`。",
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    #[test]
    fn each_phrase_has_the_same_places_in_both_languages() {
        for phrase in Phrase::ALL {
            let (english, chinese) = (phrase.english(), chinese(*phrase));
            assert_eq!(texts::places(english), texts::places(chinese), "{phrase:?}");
            assert_eq!(
                english.ends_with('.'),
                chinese.ends_with('。'),
                "{phrase:?}"
            );
        }
    }

    #[test]
    fn values_are_formatted_in_the_language_of_the_reader() {
        let values = [Value::AtLeast(3_340), Value::Span(Duration::from_secs(600))];
        let message = Message::new(Phrase::OverdueTasks, values);
        let said = |language| say(&message, language, |at| at.to_string());
        let english = "Overdue tasks: ≥ 3,340, the oldest by 10 min.";
        assert_eq!(said(Language::English), english);
        let chinese = "逾期任务：≥ 3,340 个，最久已逾期 10 分。";
        assert_eq!(said(Language::Chinese), chinese);
    }
}

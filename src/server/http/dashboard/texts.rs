//! Texts of pages, in each language.

use serde::Serialize;

pub use lapsed::diagnosis::fill;

/// A language of the dashboard.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Language {
    /// English
    #[default]
    English,
    /// Simplified Chinese
    Chinese,
}

impl Language {
    /// The tag of the language, as HTML and HTTP have it.
    pub fn tag(self) -> &'static str {
        match self {
            Self::English => "en",
            Self::Chinese => "zh-CN",
        }
    }

    /// The language of a tag such as `zh`, `zh-Hans-CN` or `en_GB`.
    pub fn of_tag(tag: &str) -> Option<Self> {
        let primary = tag.trim().split(['-', '_']).next().unwrap_or_default();
        match primary.to_ascii_lowercase().as_str() {
            "en" => Some(Self::English),
            "zh" => Some(Self::Chinese),
            _ => None,
        }
    }

    /// The best language for the header `Accept-Language`.
    pub fn accepted(header: &str) -> Option<Self> {
        let accepted = header.split(',').filter_map(|entry| {
            let (tag, weight) = entry.split_once(';').unwrap_or((entry, ""));
            let weight = weight.trim().strip_prefix("q=").map_or(Ok(1.0), str::parse);
            Some((Self::of_tag(tag)?, weight.unwrap_or(0.0_f32)))
        });
        // The first of equal weight counts, so the later ones must be greater.
        let best = accepted.reduce(|best, next| match next.1 > best.1 {
            true => next,
            false => best,
        });
        best.filter(|(_, weight)| *weight > 0.0)
            .map(|(language, _)| language)
    }
}

/// Declares a table of texts: for each its name, English and Chinese. A `{}` is a place for a value: see [`fill`].
macro_rules! texts {
    ($(#[$meta:meta])* $name:ident { $($text:ident: $english:literal, $chinese:literal;)+ }) => {
        $(#[$meta])*
        #[derive(Debug)]
        pub struct $name { $(pub $text: &'static str),+ }

        impl $name {
            const ENGLISH: Self = Self { $($text: $english),+ };
            const CHINESE: Self = Self { $($text: $chinese),+ };

            /// The texts in a language.
            pub fn of(language: $crate::http::dashboard::texts::Language) -> &'static Self {
                match language {
                    $crate::http::dashboard::texts::Language::English => &Self::ENGLISH,
                    $crate::http::dashboard::texts::Language::Chinese => &Self::CHINESE,
                }
            }
        }

        // Each text has the same places in both languages.
        const _: () = {
            $(assert!(
                $crate::http::dashboard::texts::places($english) == $crate::http::dashboard::texts::places($chinese),
                stringify!($text)
            );)+
        };
    };
}

pub(super) use texts;

/// The number of places `{}` in a text.
pub const fn places(text: &str) -> usize {
    let (bytes, mut at, mut count) = (text.as_bytes(), 1, 0);
    while at < bytes.len() {
        if bytes[at - 1] == b'{' && bytes[at] == b'}' {
            count += 1;
        }
        at += 1;
    }
    count
}

texts! {
    /// What every page has.
    FrameTexts {
        overview: "Overview", "总览";
        upcoming: "Upcoming", "即将到期";
        tasks: "Tasks", "任务";
        dead: "Dead", "死信";
        recurring_tasks: "Recurring", "周期任务";
        pauses: "Pauses", "暂停";
        queues: "Queues", "队列";
        daemons: "Daemons", "守护进程";
        doctor: "Doctor", "诊断";
        audit: "Audit log", "审计日志";
        schedule: "Schedule", "新建任务";
        skip: "Skip to content", "跳到正文";
        pages: "Pages", "页面";
        search: "Find a task", "查找任务";
        search_hint: "Key, its beginning, id, tag, class or error", "键或其开头、编号、标签、类或错误";
        live: "Live", "实时";
        live_title: "Updates by itself. Press to stop or start it.", "自动更新。点击可停止或开始。";
        theme: "Theme", "主题";
        theme_auto: "Auto", "自动";
        theme_light: "Light", "浅色";
        theme_dark: "Dark", "深色";
        language: "Language", "语言";
        zone: "Times in {}", "时区：{}";
        keys_help: "Keyboard shortcuts", "键盘快捷键";
        notify: "Notify me when something is wrong", "出现问题时通知我";
        signed_in: "Signed in as {}", "当前用户：{}";
        log_out: "Log out", "退出登录";
        attempt: "Attempt", "尝试";
        recurring: "recurring", "周期任务";
        lease_ends: "lease ends", "租约到期";
        needs_script: "Changes need JavaScript. Reading does not.", "修改操作需要 JavaScript，查看不需要。";
        read_only: "Read only", "只读";
        read_only_detail: "This daemon allows no changes over HTTP: `http.read_only` is set.", "此守护进程不允许通过 HTTP 修改：已设置 `http.read_only`。";
        nothing_here: "There is no such page", "没有此页面";
        panel_failed: "This part could not be loaded", "此部分无法加载";
        panel_retry: "The rest of the page is not affected. It loads again by itself.", "页面其余部分不受影响，稍后会自动重新加载。";
        about_all_classes: "This is about all classes. Your access is limited to some of them.", "此处涉及所有类，而您的访问仅限于其中一部分。";
        panel_late: "No answer within {} s", "{} 秒内没有响应";
    }
}

texts! {
    /// Texts that JavaScript shows.
    #[derive(Serialize)]
    ScriptTexts {
        ok: "OK", "确定";
        close: "Close", "关闭";
        cancel_dialog: "Back", "返回";
        time: "Time", "时间";
        undo: "Undo", "撤销";
        undone: "Undone.", "已撤销。";
        live: "Live", "实时";
        zone: "Times in {}", "时区：{}";
        paused: "Live updates off", "已停止自动更新";
        offline: "Not connected", "未连接";
        behind: "Not up to date", "未更新";
        stale: "Not updated since {}", "自 {} 起未更新";
        failed: "It did not work: {}", "操作失败：{}";
        no_answer: "the daemon does not answer", "守护进程没有响应";
        now: "now", "现在";
        ago: "{} ago", "{}前";
        ahead: "in {}", "{}后";
        day: "{} d", "{} 天";
        hour: "{} h", "{} 小时";
        minute: "{} min", "{} 分";
        second: "{} s", "{} 秒";
        copied: "Copied.", "已复制。";
        notify_refused: "This browser shows no notifications of this page. Its settings for the page allow them.", "浏览器不显示本页的通知，请在浏览器的网站设置中允许。";
        run_ask: "Run this task now?", "立即执行此任务？";
        run_detail: "It starts within a second. This cannot be undone.", "任务将在一秒内开始，无法撤销。";
        run_do: "Run now", "立即执行";
        run_done: "Due now.", "已设为立即到期。";
        cancel_ask: "Cancel this task?", "取消此任务？";
        cancel_detail: "It will not start. A run that has begun is not stopped, but not tried again.", "任务不会开始。已经开始的执行不会中断，但不再重试。";
        cancel_do: "Cancel the task", "取消任务";
        end_ask: "End this series?", "结束此周期任务？";
        end_detail: "No occurrence runs any more. This cannot be undone. To put off only the next occurrence, move it.", "之后不再执行任何一次，无法撤销。如只推迟下一次，请改期。";
        end_do: "End the series", "结束周期任务";
        cancel_done: "Cancelled.", "已取消。";
        cancel_running: "It is running: this run ends, no other one starts.", "正在执行：本次执行结束后不再开始新的执行。";
        move_ask: "Move this task to", "将此任务改到";
        move_retry: "Its attempts count from zero then, and its failures are deleted. This cannot be undone.", "之后尝试次数从零开始，失败历史将被删除，无法撤销。";
        move_do: "Move", "改期";
        move_done: "Moved to {}.", "已改到 {}。";
        redrive_ask: "Redrive this task?", "重新投递此任务？";
        redrive_detail: "It is pending again and due at once. Its attempts count from zero.", "任务重新变为待执行并立即到期，尝试次数从零开始。";
        redrive_do: "Redrive", "重新投递";
        redrive_done: "Redriven.", "已重新投递。";
        discard_ask: "Discard this task?", "丢弃此任务？";
        discard_detail: "Its row is deleted. This cannot be undone.", "其行将被删除，无法撤销。";
        discard_do: "Discard the task", "丢弃任务";
        discard_done: "Discarded.", "已丢弃。";
        at_least: "at least", "至少";
        stop: "Stop", "停止";
        all_count: "Tasks that match now: {}.", "当前匹配的任务：{} 个。";
        all_more: "This page counted {} of them: it has not read all tasks, or more have died since.", "本页仅统计到其中 {} 个：尚未读取全部任务，或之后又有新的死信。";
        all_running: "Running: {}. Their runs end, no other ones start.", "正在执行：{} 个。本次执行结束后不再开始新的执行。";
        all_none: "No task matches.", "没有匹配的任务。";
        all_reason: "Reason, for the audit log", "原因（写入审计日志）";
        all_rate: "Tasks per second", "每秒任务数";
        all_progress: "{} of {}", "{} / {}";
        all_skipped: "Left out, since they changed meanwhile: {}.", "因期间发生变化而跳过：{} 个。";
        all_stopped: "Stopped. Changed until then: at least {}.", "已停止。此前已修改：至少 {} 个。";
        cancel_all_ask: "Cancel {} tasks?", "取消 {} 个任务？";
        cancel_all_detail: "They will not start. This cannot be undone.", "它们不会开始。此操作无法撤销。";
        cancel_all_do: "Cancel {} tasks", "取消 {} 个任务";
        cancel_all_done: "Cancelled: {}.", "已取消：{} 个。";
        redrive_all_ask: "Redrive {} tasks?", "重新投递 {} 个任务？";
        redrive_all_detail: "They are pending again and due at once. Tasks that fall due meanwhile start first.", "它们重新变为待执行并立即到期。期间到期的任务优先开始。";
        redrive_all_do: "Redrive {} tasks", "重新投递 {} 个任务";
        redrive_all_done: "Redriven: {}.", "已重新投递：{} 个。";
        discard_all_ask: "Discard {} tasks?", "丢弃 {} 个任务？";
        discard_all_detail: "Their rows are deleted. This cannot be undone.", "它们的行将被删除。此操作无法撤销。";
        discard_all_do: "Discard {} tasks", "丢弃 {} 个任务";
        discard_all_done: "Discarded: {}.", "已丢弃：{} 个。";
        pause_all_ask: "Pause everything?", "暂停全部任务？";
        pause_all_detail: "No task of any class starts until it is resumed. Classes and methods with unfinished tasks: {}. Pending: {}, overdue: {}.", "恢复之前任何类的任务都不会开始。有未完成任务的类与方法：{} 个。待执行：{}，已逾期：{}。";
        pause_all_do: "Pause everything", "暂停全部";
        pause_unknown_ask: "Pause {} though no task has it?", "没有此类的任务，仍要暂停 {} 吗？";
        pause_unknown_detail: "There is no unfinished task of this class or method. Check how it is written.", "没有此类或方法的未完成任务。请检查拼写。";
        pause_unseen_detail: "None of the tasks that fall due first has this class or method. Check how it is written.", "最先到期的任务中没有此类或方法。请检查拼写。";
        pause_unknown_do: "Pause it", "暂停";
        shortcuts: "Keyboard shortcuts", "键盘快捷键";
        key_search: "Find a task", "查找任务";
        key_rows: "Next, previous row", "下一行、上一行";
        key_open: "Open the row", "打开该行";
        key_live: "Stop or start live updates", "停止或开始自动更新";
        key_pages: "Overview, upcoming, tasks, dead", "总览、即将到期、任务、死信";
        key_help: "This list", "显示此列表";
    }
}

/// The names of states, of reasons why tasks are dead, and of ways in which runs and occurrences end.
pub fn state(language: Language, state: &str) -> &str {
    let chinese = match state {
        "pending" => "待执行",
        "waiting" => "等待重试",
        "running" => "执行中",
        "done" => "已完成",
        "dead" => "死信",
        "cancelled" => "已取消",
        "overdue" => "已逾期",
        "malformed" => "键无效",
        "paused" => "已暂停",
        "held" => "被保留",
        "permanent" => "永久失败",
        "exhausted" => "重试用尽",
        "deadline" => "超过最后期限",
        "poison" | "poisoned" => "多次崩溃",
        "expired" => "过期未执行",
        "failed" => "失败",
        "timed_out" => "执行超时",
        "panicked" => "异常退出",
        "snoozed" => "已推迟",
        "succeeded" => "成功",
        "skipped" => "未执行",
        "handed_on" => "已转为单独任务",
        other => other,
    };
    match language {
        Language::English => match state {
            "timed_out" => "timed out",
            "handed_on" => "handed on",
            state => state,
        },
        Language::Chinese => chinese,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_language_with_the_greatest_weight_is_taken() {
        for (header, expected) in [
            ("zh-CN,zh;q=0.9,en;q=0.8", Some(Language::Chinese)),
            ("en-GB,en;q=0.9,zh;q=0.8", Some(Language::English)),
            ("de,zh;q=0.3,en;q=0.7", Some(Language::English)),
            ("de-DE, fr;q=0.5", None),
            ("zh;q=0", None),
            ("zh;q=rubbish,en;q=0.1", Some(Language::English)),
            ("", None),
        ] {
            assert_eq!(Language::accepted(header), expected, "{header}");
        }
    }

    #[test]
    fn the_places_of_a_text_are_counted() {
        assert_eq!((places("{} of {}"), places("{"), places("")), (2, 0, 0));
    }
}

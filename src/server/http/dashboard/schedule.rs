//! The form that schedules a task. JavaScript sends it to the API.

use askama::Template;
use axum::Router;
use axum::response::Response;
use axum::routing::get;

use super::frame::{Frame, Place};
use super::texts::texts;
use crate::http::app_state::AppState;

/// Routes of the page.
pub fn routes() -> Router<AppState> {
    Router::new().route("/schedule", get(page))
}

texts! {
    /// Texts of the form.
    ScheduleTexts {
        title: "Schedule a task", "新建任务";
        key: "Key", "键";
        key_help: "Class@method, then @argument for each argument", "类@方法，之后每个参数为 @参数";
        once: "Once", "一次";
        delay: "In", "多久之后";
        delay_help: "30s, 15m, 1h 30m", "30s、15m、1h 30m";
        at: "or at", "或指定时间";
        repeat: "Recurring", "周期执行";
        every: "Every", "间隔";
        cron: "or cron", "或 cron";
        cron_help: "0 9 * * Mon-Fri", "0 9 * * Mon-Fri";
        zone: "Time zone of cron", "cron 的时区";
        payload: "Payload, JSON", "载荷（JSON）";
        tag: "Tag", "标签";
        after_tag: "Start after all tasks with tag", "在此标签的任务全部结束后开始";
        max_attempts: "Maximum number of runs", "最多执行次数";
        if_pending: "If it is pending already", "如果已在等待执行";
        if_move: "Move it", "改期";
        if_keep: "Keep it as it is", "保持不变";
        if_refuse: "Refuse", "拒绝";
        submit: "Schedule", "创建";
        needs_script: "This form needs JavaScript. The command line has `lapsed schedule`.", "此表单需要 JavaScript。命令行可使用 `lapsed schedule`。";
        not_allowed: "You may not schedule tasks: your token lacks the scope `schedule`.", "您没有创建任务的权限：令牌缺少 `schedule` 范围。";
    }
}

#[derive(Template)]
#[template(path = "schedule.html")]
struct Page<'a> {
    f: &'a Frame,
    t: &'static ScheduleTexts,
}

async fn page(frame: Frame) -> Response {
    let f = frame.at(Place::Schedule);
    f.page(&Page {
        f: &f,
        t: ScheduleTexts::of(f.language()),
    })
}

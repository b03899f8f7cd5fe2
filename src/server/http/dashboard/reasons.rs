//! Why a task has not run, in the language and the time zone of the reader.

use super::frame::Frame;
use super::texts::texts;
use lapsed::diagnosis::{Message, WhyCause};

/// Where to go: a path below the base, and its name.
pub type Link = (&'static str, &'static str);

texts! {
    /// Names of the pages to which a cause leads.
    LinkTexts {
        overdue: "Show overdue tasks", "查看逾期任务";
        queues: "Show queues", "查看队列";
        pauses: "Show pauses", "查看暂停项";
        daemons: "Show daemons", "查看守护进程";
    }
}

/// A reason as it is shown.
pub struct Reason {
    /// One word, for programs.
    pub cause: &'static str,
    /// Class in the style sheet.
    pub class: &'static str,
    /// Sentences.
    pub text: String,
    /// Where to go.
    pub link: Option<Link>,
}

/// Says a cause, and what to do.
pub fn reason(cause: &WhyCause, f: &Frame) -> Reason {
    let mut messages = cause.says();
    messages.extend(cause.advice().map(Message::from));
    Reason {
        cause: cause.as_str(),
        class: match cause {
            cause if cause.is_kept_back() => "warning",
            cause if cause.is_trouble() => "bad",
            _ => "quiet",
        },
        text: f.sentences(&messages),
        link: link(cause, LinkTexts::of(f.language())),
    }
}

/// The page that shows what keeps the tasks from starting.
pub fn link(cause: &WhyCause, texts: &LinkTexts) -> Option<Link> {
    match cause {
        WhyCause::Paused(_) | WhyCause::Held(_) => Some(("/pauses", texts.pauses)),
        WhyCause::NoWorker(..) | WhyCause::NoWorkerHere(_) => Some(("/queues", texts.queues)),
        WhyCause::NoDaemon
        | WhyCause::NoRoute
        | WhyCause::NoRouteHere
        | WhyCause::Away(_)
        | WhyCause::NoSlot
        | WhyCause::Unheard => Some(("/daemons", texts.daemons)),
        _ => None,
    }
}

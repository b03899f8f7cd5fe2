//! Commands that Redis does not have: tasks with all their options, and as they are.

use std::sync::Arc;
use std::time::Duration;

use futures_util::FutureExt as _;
use futures_util::future::BoxFuture;

use super::auth::Scope;
use super::batch::failure;
use super::command::{Command, Run, integer, is, milliseconds, syntax_error};
use super::door::Door;
use super::keyed::{Expiry, Keyed, Repeat, Set, When};
use super::keys::{key, new_key};
use super::parser::Args;
use super::reply::Reply;
use super::session::Session;
use super::strings::{check, positive};
use crate::client::Task;
use crate::ledger::IfPending;
use crate::task::{Recurrence, UnixMs};

/// The commands of this file.
#[rustfmt::skip]
pub const COMMANDS: &[Command] = &[
    Command { name: "lapsed.cancel", arity: -2, scope: Scope::Schedule, run: Run::Keyed(cancel), keys: (1, -1, 1),
        summary: "Cancels tasks. Returns for each `cancelled`, `running` (it runs, and is not tried again) or null.",
        usage: "key [key ...]" },
    Command { name: "lapsed.schedule", arity: -4, scope: Scope::Schedule, run: Run::Keyed(schedule), keys: (1, 1, 1),
        summary: "Creates a task, a recurring one with EVERY or CRON, or moves it. Returns its due time in Unix milliseconds; null if IFPENDING REFUSE refuses it.",
        usage: "key [IN milliseconds | AT unix-time-milliseconds] [EVERY milliseconds | CRON expression [TZ zone]] [TAG tag] [PAYLOAD json] [MAXATTEMPTS count] [IFPENDING MOVE | KEEP | REFUSE]" },
    Command { name: "lapsed.show", arity: 2, scope: Scope::Read, run: Run::Later(show), keys: (1, 1, 1),
        summary: "Returns a task as JSON, as `lapsed show --json` prints it; null if there is none.",
        usage: "key" },
];

/// The name in errors, as Redis writes it.
const SCHEDULE: &str = "lapsed.schedule";

/// The options of `LAPSED.SCHEDULE`, each at most once.
#[derive(Default)]
struct Options<'a> {
    after: Option<&'a [u8]>,
    at: Option<&'a [u8]>,
    every: Option<&'a [u8]>,
    cron: Option<&'a [u8]>,
    zone: Option<&'a [u8]>,
    tag: Option<&'a [u8]>,
    payload: Option<&'a [u8]>,
    max_attempts: Option<&'a [u8]>,
    if_pending: Option<&'a [u8]>,
}

impl<'a> Options<'a> {
    fn parse(args: Args<'a>) -> Result<Self, Reply> {
        let mut options = Self::default();
        let mut place = 2;
        while let Some(name) = args.get(place) {
            let option = match name {
                name if is(name, "IN") => &mut options.after,
                name if is(name, "AT") => &mut options.at,
                name if is(name, "EVERY") => &mut options.every,
                name if is(name, "CRON") => &mut options.cron,
                name if is(name, "TZ") => &mut options.zone,
                name if is(name, "TAG") => &mut options.tag,
                name if is(name, "PAYLOAD") => &mut options.payload,
                name if is(name, "MAXATTEMPTS") => &mut options.max_attempts,
                name if is(name, "IFPENDING") => &mut options.if_pending,
                _ => return Err(syntax_error()),
            };
            let value = args.get(place + 1).ok_or_else(syntax_error)?;
            if option.replace(value).is_some() {
                return Err(syntax_error());
            }
            place += 2;
        }
        Ok(options)
    }

    fn expiry(&self) -> Result<Option<Expiry>, Reply> {
        for ms in [self.after, self.at].into_iter().flatten() {
            milliseconds(ms)?;
        }
        match (self.after, self.at) {
            (None, None) => Ok(None),
            // Due at once is a delay, too.
            (Some(b"0"), None) => Ok(Some(Expiry::In(0))),
            (Some(ms), None) => positive(ms, 1, SCHEDULE).map(|ms| Some(Expiry::In(ms))),
            (None, Some(ms)) => positive(ms, 1, SCHEDULE).map(|ms| Some(Expiry::At(ms))),
            (Some(_), Some(_)) => Err(syntax_error()),
        }
    }

    fn recurrence(&self) -> Result<Option<Recurrence>, Reply> {
        let recurrence = match (self.every, self.cron, self.zone) {
            (None, None, None) => return Ok(None),
            (Some(ms), None, None) => {
                milliseconds(ms)?;
                let ms = positive(ms, 1, SCHEDULE)?;
                Recurrence::every(Duration::from_millis(ms.unsigned_abs()))
            }
            (None, Some(expression), zone) => {
                let cron = Recurrence::cron(text(expression)?);
                match zone {
                    None => cron,
                    Some(zone) => {
                        let zone = text(zone)?;
                        cron.and_then(|cron| cron.in_zone(zone))
                    }
                }
            }
            _ => return Err(syntax_error()),
        };
        recurrence.map(Some).map_err(Reply::err)
    }

    fn apply(&self, mut task: Task) -> Result<Task, Reply> {
        if let Some(payload) = self.payload {
            task = task.payload(text(payload)?);
        }
        if let Some(tag) = self.tag {
            task = task.tag(text(tag)?);
        }
        if let Some(count) = self.max_attempts {
            let count = u16::try_from(integer(count)?);
            let out_of_range = |_| Reply::err("MAXATTEMPTS is out of range, expected 1 to 65535");
            task = task.max_attempts(count.map_err(out_of_range)?);
        }
        Ok(task)
    }

    fn policy(&self) -> Result<Option<IfPending>, Reply> {
        let Some(name) = self.if_pending else {
            return Ok(None);
        };
        let mut policies = IfPending::ALL.into_iter();
        let found = policies.find(|policy| is(name, policy.as_str()));
        found.map(Some).ok_or_else(syntax_error)
    }
}

fn text(arg: &[u8]) -> Result<&str, Reply> {
    std::str::from_utf8(arg).map_err(|_| Reply::err("an option is not UTF-8"))
}

fn schedule(door: &Door, args: Args<'_>) -> Result<Keyed, Reply> {
    let options = Options::parse(args)?;
    let key = new_key(args.get(1).unwrap_or_default())?;
    let task = options.apply(Task::from(key.clone()))?;
    let (expiry, recurrence) = (options.expiry()?, options.recurrence()?);
    let policy = options.policy()?;
    if let Some(mut recurrence) = recurrence {
        if policy.is_some() {
            return Err(Reply::err(
                "IFPENDING is not an option of a recurring task: one that is the same is kept, another is replaced",
            ));
        }
        let now = door.tasks.clock_now().0;
        if let Some(expiry) = expiry {
            recurrence = recurrence.starting(UnixMs(match expiry {
                Expiry::In(ms) => now.saturating_add(ms),
                Expiry::At(ms) => ms,
                Expiry::Keep => now,
            }));
        }
        let checked = door.tasks.check_recurring(&task, &recurrence);
        checked.map_err(Reply::err)?;
        let repeat = Repeat {
            task,
            key,
            recurrence,
        };
        return Ok(Keyed::Repeat(Box::new(repeat)));
    }
    let expiry = expiry.ok_or_else(|| Reply::err("expected IN, AT, EVERY or CRON"))?;
    check(door, &task, expiry, SCHEDULE)?;
    Ok(Keyed::Set(Box::new(Set {
        task,
        key,
        expiry,
        when: When::Policy(policy.unwrap_or_default()),
        get: false,
        answers_due: true,
    })))
}

fn cancel(_: &Door, args: Args<'_>) -> Result<Keyed, Reply> {
    Ok(Keyed::Cancel(args.from(1).map(key).collect()))
}

fn show(_: &Session, door: &Arc<Door>, args: Args<'_>) -> BoxFuture<'static, Reply> {
    let (door, key) = (Arc::clone(door), args.get(1).and_then(key));
    async move {
        let Some(key) = key else {
            return Reply::Null;
        };
        match door.tasks.find(key).await {
            Ok(None) => Reply::Null,
            Ok(Some(mut task)) => {
                if door.hides_payload(&task.key) {
                    task.hide_payload();
                }
                match serde_json::to_string(&task) {
                    Ok(json) => Reply::Text(json),
                    Err(error) => {
                        Reply::err(format_args!("task cannot be written as JSON: {error}"))
                    }
                }
            }
            Err(error) => failure(&error),
        }
    }
    .boxed()
}

//! Commands that Redis does not have: tasks with all their options, and as they are.

use std::sync::Arc;

use futures_util::FutureExt as _;
use futures_util::future::BoxFuture;

use super::batch::failure;
use super::command::{Command, Run, integer, is, milliseconds, syntax_error};
use super::keyed::{Expiry, Keyed, Set, When};
use super::keys::{key, new_key};
use super::parser::Args;
use super::reply::Reply;
use super::server_state::ServerState;
use super::session::Session;
use super::strings::{check, positive};
use lapsed::contract::TaskSpec;
use lapsed::ledger::IfPending;
use lapsed::task::{After, Due, IfDead, TaskKey, UnixMs};
use lapsed_core::access::AccessScope as Scope;

/// The commands of this file.
#[rustfmt::skip]
pub const COMMANDS: &[Command] = &[
    Command { name: "lapsed.cancel", arity: -2, scope: Some(Scope::Schedule), run: Run::Keyed(cancel), keys: (1, -1, 1),
        summary: "Cancels tasks. Returns for each `cancelled`, `running` (it runs, and is not tried again) or null.",
        usage: "key [key ...]" },
    Command { name: "lapsed.schedule", arity: -4, scope: Some(Scope::Schedule), run: Run::Keyed(schedule), keys: (1, 1, 1),
        summary: "Creates a task, a recurring one with EVERY or CRON, or moves it. Returns its due time in Unix milliseconds; null if IFPENDING REFUSE refuses it.",
        usage: "key [IN milliseconds | AT unix-time-milliseconds] [EVERY milliseconds | CRON expression [TZ zone]] [TAG tag] [AFTERTAG tag [IFDEAD WAIT | IGNORE]] [PAYLOAD json] [MAXATTEMPTS count] [IFPENDING MOVE | KEEP | REFUSE]" },
    Command { name: "lapsed.show", arity: 2, scope: Some(Scope::Read), run: Run::Later(show), keys: (1, 1, 1),
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
    after_tag: Option<&'a [u8]>,
    if_dead: Option<&'a [u8]>,
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
                name if is(name, "AFTERTAG") => &mut options.after_tag,
                name if is(name, "IFDEAD") => &mut options.if_dead,
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

    /// The task without its due time.
    fn spec(&self, key: &TaskKey) -> Result<TaskSpec, Reply> {
        let text = |arg: Option<&[u8]>| arg.map(text).transpose();
        let every = self.every.map(period).transpose()?;
        match (self.every, self.cron, self.zone) {
            (Some(_), Some(_), _) | (_, None, Some(_)) => return Err(syntax_error()),
            _ => {}
        }
        let if_dead = self.if_dead.map(on_dead).transpose()?;
        let after = match (text(self.after_tag)?, if_dead) {
            (None, Some(_)) => return Err(syntax_error()),
            (tag, if_dead) => tag.map(|tag| After {
                tag,
                if_dead: if_dead.unwrap_or_default(),
            }),
        };
        Ok(TaskSpec {
            key: Some(key.to_string()),
            payload: text(self.payload)?,
            tag: text(self.tag)?,
            after,
            max_attempts: self.max_attempts.map(runs).transpose()?,
            if_pending: self.if_pending.map(policy).transpose()?,
            every,
            cron: text(self.cron)?,
            tz: text(self.zone)?,
            ..TaskSpec::default()
        })
    }
}

fn period(ms: &[u8]) -> Result<String, Reply> {
    milliseconds(ms)?;
    let ms = positive(ms, 1, SCHEDULE)?;
    Ok(format!("{ms}ms"))
}

fn runs(count: &[u8]) -> Result<u16, Reply> {
    let count = u16::try_from(integer(count)?);
    count.map_err(|_| Reply::err("MAXATTEMPTS is out of range, expected 1 to 65535"))
}

fn policy(name: &[u8]) -> Result<IfPending, Reply> {
    let mut policies = IfPending::ALL.into_iter();
    let found = policies.find(|policy| is(name, policy.as_str()));
    found.ok_or_else(syntax_error)
}

fn on_dead(name: &[u8]) -> Result<IfDead, Reply> {
    let mut policies = IfDead::ALL.into_iter();
    let found = policies.find(|policy| is(name, policy.as_str()));
    found.ok_or_else(syntax_error)
}

fn text(arg: &[u8]) -> Result<String, Reply> {
    let text = std::str::from_utf8(arg).map_err(|_| Reply::err("an option is not UTF-8"))?;
    Ok(text.to_owned())
}

fn schedule(server: &ServerState, args: Args<'_>) -> Result<Keyed, Reply> {
    let options = Options::parse(args)?;
    let key = new_key(args.get(1).unwrap_or_default())?;
    let spec = options.spec(&key)?;
    let expiry = options.expiry()?;
    if spec.is_recurring() {
        let first = match expiry {
            None | Some(Expiry::Keep) => Ok(None),
            Some(Expiry::In(ms)) => Due::after_ms(ms).map(Some),
            Some(Expiry::At(ms)) => Due::at(UnixMs(ms)).map(Some),
        };
        let first = first.map_err(Reply::err)?;
        let request = spec.resolve_at(first, server.tasks.clock_now());
        let request = request.map_err(Reply::err)?;
        request.check(&server.tasks).map_err(Reply::err)?;
        return Ok(Keyed::Repeat(Box::new(request)));
    }
    let policy = spec.if_pending.unwrap_or_default();
    let task = spec.task().map_err(Reply::err)?;
    let expiry = expiry.ok_or_else(|| Reply::err("expected IN, AT, EVERY or CRON"))?;
    check(server, &task, expiry, SCHEDULE)?;
    Ok(Keyed::Set(Box::new(Set {
        task,
        key,
        expiry,
        when: When::Policy(policy),
        get: false,
        answers_due: true,
    })))
}

fn cancel(_: &ServerState, args: Args<'_>) -> Result<Keyed, Reply> {
    Ok(Keyed::Cancel(args.from(1).map(key).collect()))
}

fn show(session: &Session, server: &Arc<ServerState>, args: Args<'_>) -> BoxFuture<'static, Reply> {
    let (server, key) = (Arc::clone(server), args.get(1).and_then(key));
    let user = session.user.clone();
    async move {
        let Some(key) = key else {
            return Reply::Null;
        };
        match server.tasks.find(key).await {
            Ok(None) => Reply::Null,
            Ok(Some(mut task)) => {
                if let Some(user) = user {
                    task.mask(&user.masks);
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

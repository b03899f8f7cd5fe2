//! Commands about values: `SET` and its kin create tasks, `GET` reads their payload.

use super::command::{Command, Run, integer, is, syntax_error};
use super::keyed::{Expiry, Keyed, NEEDS_DUE_TIME, Set, When};
use super::keys::{key, new_key};
use super::parser::Args;
use super::reply::Reply;
use super::server_state::ServerState;
use lapsed::client::Task;
use lapsed::task::{Due, PAYLOAD_BYTES_MAX, ScheduleError, TaskKey, UnixMs};
use lapsed_core::access::AccessScope as Scope;

/// The commands of this file.
#[rustfmt::skip]
pub const COMMANDS: &[Command] = &[
    Command { name: "set", arity: -3, scope: Some(Scope::Schedule), run: Run::Keyed(set), keys: (1, 1, 1),
        summary: "Creates a task, or moves it. The value is its payload.",
        usage: "key value [NX | XX] [GET] EX seconds | PX milliseconds | EXAT unix-time-seconds | PXAT unix-time-milliseconds | KEEPTTL" },
    Command { name: "setex", arity: 4, scope: Some(Scope::Schedule), run: Run::Keyed(setex), keys: (1, 1, 1),
        summary: "Creates a task that is due after some seconds, or moves it. The value is its payload.",
        usage: "key seconds value" },
    Command { name: "psetex", arity: 4, scope: Some(Scope::Schedule), run: Run::Keyed(psetex), keys: (1, 1, 1),
        summary: "Creates a task that is due after some milliseconds, or moves it. The value is its payload.",
        usage: "key milliseconds value" },
    Command { name: "setnx", arity: 3, scope: Some(Scope::Schedule), run: Run::Keyed(setnx), keys: (1, 1, 1),
        summary: "Is refused: a task needs a due time.",
        usage: "key value" },
    Command { name: "get", arity: 2, scope: Some(Scope::Read), run: Run::Keyed(get), keys: (1, 1, 1),
        summary: "Returns the payload of a task that has not started.",
        usage: "key" },
];

fn get(_: &ServerState, args: Args<'_>) -> Result<Keyed, Reply> {
    Ok(Keyed::Get(args.get(1).and_then(key)))
}

fn setex(server: &ServerState, args: Args<'_>) -> Result<Keyed, Reply> {
    set_for(server, args, "setex", 1000)
}

fn psetex(server: &ServerState, args: Args<'_>) -> Result<Keyed, Reply> {
    set_for(server, args, "psetex", 1)
}

fn setnx(_: &ServerState, _: Args<'_>) -> Result<Keyed, Reply> {
    Err(Reply::err(NEEDS_DUE_TIME))
}

fn set_for(server: &ServerState, args: Args<'_>, name: &str, unit: i64) -> Result<Keyed, Reply> {
    let arg = |index| args.get(index).unwrap_or_default();
    let expiry = Expiry::In(positive(arg(2), unit, name)?);
    let key = new_key(arg(1))?;
    let task = task(&key, arg(3))?;
    check(server, &task, expiry, name)?;
    let set = Set {
        task,
        key,
        expiry,
        when: When::Always,
        get: false,
        answers_due: false,
    };
    Ok(Keyed::Set(Box::new(set)))
}

fn set(server: &ServerState, args: Args<'_>) -> Result<Keyed, Reply> {
    let (mut expiry, mut when, mut get) = (None, When::Always, false);
    let mut at = 3;
    while let Some(option) = args.get(at) {
        let units = [("EX", 1000), ("PX", 1), ("EXAT", 1000), ("PXAT", 1)];
        let unit = units.into_iter().find(|(name, _)| is(option, name));
        if let Some((name, unit)) = unit {
            // As in Redis, the same option again replaces its value.
            if expiry.is_some_and(|(other, _)| other != name) {
                return Err(syntax_error());
            }
            let value = args.get(at + 1).ok_or_else(syntax_error)?;
            expiry = Some((name, Some((value, unit))));
            at += 1;
        } else if is(option, "KEEPTTL") && expiry.is_none_or(|(other, _)| other == "KEEPTTL") {
            expiry = Some(("KEEPTTL", None));
        } else if is(option, "NX") && when != When::Present {
            when = When::Missing;
        } else if is(option, "XX") && when != When::Missing {
            when = When::Present;
        } else if is(option, "GET") {
            get = true;
        } else {
            return Err(syntax_error());
        }
        at += 1;
    }
    let expiry = match expiry {
        None => return Err(Reply::err(NEEDS_DUE_TIME)),
        Some((_, None)) => Expiry::Keep,
        Some((name, Some((value, unit)))) => {
            let ms = positive(value, unit, "set")?;
            match name {
                "EX" | "PX" => Expiry::In(ms),
                _ => Expiry::At(ms),
            }
        }
    };
    let arg = |index| args.get(index).unwrap_or_default();
    let key = new_key(arg(1))?;
    let task = task(&key, arg(2))?;
    check(server, &task, expiry, "set")?;
    let set = Set {
        task,
        key,
        expiry,
        when,
        get,
        answers_due: false,
    };
    Ok(Keyed::Set(Box::new(set)))
}

/// Returns a task with this value as its payload. An empty value is none.
///
/// # Errors
/// If a payload cannot be like this.
pub fn task(key: &TaskKey, value: &[u8]) -> Result<Task, Reply> {
    let task = Task::from(key.clone());
    if value.is_empty() {
        return Ok(task);
    }
    if value.len() > PAYLOAD_BYTES_MAX {
        return Err(value_too_long(value.len()));
    }
    let text = std::str::from_utf8(value).map_err(|_| {
        Reply::err("value is not UTF-8, expected JSON or text: it is the payload of a task")
    })?;
    Ok(task.payload_or_text(text))
}

/// The error for a value of this length.
pub fn value_too_long(bytes: usize) -> Reply {
    Reply::err(format_args!(
        "value has {bytes} bytes, expected at most {PAYLOAD_BYTES_MAX}: it is the payload of a task"
    ))
}

/// Reads a time in seconds (1000) or milliseconds (1). Returns milliseconds.
///
/// # Errors
/// Redis' errors.
pub fn positive(text: &[u8], unit: i64, command: &str) -> Result<i64, Reply> {
    let number = integer(text)?;
    let ms = number.checked_mul(unit).filter(|ms| *ms > 0);
    ms.ok_or_else(|| invalid_time(command))
}

/// Checks a task and its due time.
///
/// # Errors
/// Says what is wrong.
pub fn check(
    server: &ServerState,
    task: &Task,
    expiry: Expiry,
    command: &str,
) -> Result<(), Reply> {
    let now = server.tasks.clock_now();
    let due = match expiry {
        Expiry::In(ms) if now.0.checked_add(ms).is_none() => return Err(invalid_time(command)),
        Expiry::In(ms) => Due::after_ms(ms),
        Expiry::At(ms) => Due::at(UnixMs(ms)),
        Expiry::Keep => Ok(Due::NOW),
    };
    let due = due.and_then(|due| due.resolve_checked(now));
    match due {
        Ok(_) => server.tasks.check(task, Due::NOW).map_err(Reply::err),
        Err(error) => Err(too_far(command, &error)),
    }
}

/// The error for a due time that Redis would refuse, too.
pub fn invalid_time(command: &str) -> Reply {
    Reply::err(format_args!("invalid expire time in '{command}' command"))
}

/// The error for a due time that only a scheduler refuses.
pub fn too_far(command: &str, error: &ScheduleError) -> Reply {
    Reply::err(format_args!(
        "invalid expire time in '{command}' command: {error}"
    ))
}

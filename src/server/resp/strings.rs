//! Commands about values: `SET` and its kin create tasks, `GET` reads their payload.

use super::command::{COUNTED, Command, Run, integer, is, syntax_error, wrong_arity};
use super::keyed::{Condition, Expiry, Keyed, NEEDS_DUE_TIME, Set, When};
use super::keys::{key, new_key};
use super::parser::Args;
use super::reply::Reply;
use super::server_state::ServerState;
use super::session::QUEUE_MAX;
use lapsed::client::Task;
use lapsed::task::{Due, PAYLOAD_BYTES_MAX, ScheduleError, TaskKey, UnixMs};
use lapsed_core::access::AccessScope as Scope;

/// The commands of this file.
#[rustfmt::skip]
pub const COMMANDS: &[Command] = &[
    Command { name: "set", arity: -3, scope: Some(Scope::Schedule), run: Run::Keyed(set), keys: (1, 1, 1),
        summary: "Creates a task, or moves it. The value is its payload.",
        usage: "key value [NX | XX | IFEQ value | IFNE value | IFDEQ digest | IFDNE digest] [GET] EX seconds | PX milliseconds | EXAT unix-time-seconds | PXAT unix-time-milliseconds | KEEPTTL" },
    Command { name: "setex", arity: 4, scope: Some(Scope::Schedule), run: Run::Keyed(setex), keys: (1, 1, 1),
        summary: "Creates a task that is due after some seconds, or moves it. The value is its payload.",
        usage: "key seconds value" },
    Command { name: "psetex", arity: 4, scope: Some(Scope::Schedule), run: Run::Keyed(psetex), keys: (1, 1, 1),
        summary: "Creates a task that is due after some milliseconds, or moves it. The value is its payload.",
        usage: "key milliseconds value" },
    Command { name: "msetex", arity: -4, scope: Some(Scope::Schedule), run: Run::Keyed(msetex), keys: (2, COUNTED, 2),
        summary: "Creates or moves several tasks, or none of them. The values are their payloads.",
        usage: "numkeys key value [key value ...] [NX | XX] EX seconds | PX milliseconds | EXAT unix-time-seconds | PXAT unix-time-milliseconds | KEEPTTL" },
    Command { name: "setnx", arity: 3, scope: Some(Scope::Schedule), run: Run::Keyed(setnx), keys: (1, 1, 1),
        summary: "Is refused: a task needs a due time.",
        usage: "key value" },
    Command { name: "delex", arity: -2, scope: Some(Scope::Schedule), run: Run::Keyed(delex), keys: (1, 1, 1),
        summary: "Cancels a task, if its value is like this. Counts it if it will not start.",
        usage: "key [IFEQ value | IFNE value | IFDEQ digest | IFDNE digest]" },
    Command { name: "get", arity: 2, scope: Some(Scope::Read), run: Run::Keyed(get), keys: (1, 1, 1),
        summary: "Returns the payload of a task that has not started.",
        usage: "key" },
    Command { name: "digest", arity: 2, scope: Some(Scope::Read), run: Run::Keyed(digest), keys: (1, 1, 1),
        summary: "Returns the XXH3 digest of the payload of a task that has not started, as 16 hexadecimal characters.",
        usage: "key" },
];

fn get(_: &ServerState, args: Args<'_>) -> Result<Keyed, Reply> {
    Ok(Keyed::Get(args.get(1).and_then(key)))
}

fn digest(_: &ServerState, args: Args<'_>) -> Result<Keyed, Reply> {
    Ok(Keyed::Digest(args.get(1).and_then(key)))
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
    let options = Options::parse(args, 3, "set")?;
    let set = options.set(server, args, 1)?;
    Ok(Keyed::Set(Box::new(Set {
        when: options.when,
        get: options.get,
        ..set
    })))
}

fn msetex(server: &ServerState, args: Args<'_>) -> Result<Keyed, Reply> {
    let count = integer(args.get(1).unwrap_or_default()).ok();
    let count = count.and_then(|count| usize::try_from(count).ok());
    let count = count.filter(|count| (1..=i32::MAX as usize).contains(count));
    let count = count.ok_or_else(|| Reply::err("invalid numkeys value"))?;
    let end = 2 + 2 * count;
    if end > args.len() {
        return Err(Reply::err("wrong number of key-value pairs"));
    }
    if count > QUEUE_MAX {
        return Err(Reply::err(format_args!(
            "`MSETEX` has {count} keys, expected at most {QUEUE_MAX}: they are written in one transaction"
        )));
    }
    let options = Options::parse(args, end, "msetex")?;
    let sets = (2..end)
        .step_by(2)
        .map(|place| options.set(server, args, place));
    let sets = sets.collect::<Result<_, _>>()?;
    let when = options.when;
    Ok(Keyed::SetAll { sets, when })
}

/// The options of `SET` and `MSETEX`.
struct Options {
    expiry: Expiry,
    when: When,
    get: bool,
    command: &'static str,
}

impl Options {
    /// Reads the arguments from `at` on.
    fn parse(args: Args<'_>, mut at: usize, command: &'static str) -> Result<Self, Reply> {
        let (mut expiry, mut only, mut get) = (None, None, false);
        while let Some(option) = args.get(at) {
            let units = [("EX", 1000), ("PX", 1), ("EXAT", 1000), ("PXAT", 1)];
            let unit = units.into_iter().find(|(name, _)| is(option, name));
            let flags = [("NX", When::Missing), ("XX", When::Present)];
            let flag = flags.into_iter().find(|(name, _)| is(option, name));
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
            } else if let Some((name, when)) = flag {
                set_once(&mut only, name, when)?;
            } else if command == "set" && is(option, "GET") {
                get = true;
            } else if command == "set"
                && let Some(name) = condition_name(option)
            {
                let value = args.get(at + 1).ok_or_else(syntax_error)?;
                set_once(&mut only, name, When::Value(condition(name, value)?))?;
                at += 1;
            } else {
                return Err(syntax_error());
            }
            at += 1;
        }
        let expiry = match expiry {
            None => return Err(Reply::err(NEEDS_DUE_TIME)),
            Some((_, None)) => Expiry::Keep,
            Some((name, Some((value, unit)))) => {
                let ms = positive(value, unit, command)?;
                match name {
                    "EX" | "PX" => Expiry::In(ms),
                    _ => Expiry::At(ms),
                }
            }
        };
        Ok(Self {
            expiry,
            when: only.map_or(When::Always, |(_, when)| when),
            get,
            command,
        })
    }

    /// Returns a task with the key at `place` and the value behind it, which is always written.
    fn set(&self, server: &ServerState, args: Args<'_>, place: usize) -> Result<Set, Reply> {
        let arg = |index| args.get(index).unwrap_or_default();
        let key = new_key(arg(place))?;
        let task = task(&key, arg(place + 1))?;
        check(server, &task, self.expiry, self.command)?;
        Ok(Set {
            task,
            key,
            expiry: self.expiry,
            when: When::Always,
            get: false,
            answers_due: false,
        })
    }
}

/// Sets the condition of a command. As in Redis, the same one again replaces it, and another one is an error.
fn set_once(
    only: &mut Option<(&'static str, When)>,
    name: &'static str,
    when: When,
) -> Result<(), Reply> {
    match only {
        Some((other, _)) if *other != name => Err(syntax_error()),
        _ => {
            *only = Some((name, when));
            Ok(())
        }
    }
}

/// The name of a condition on the value of a key, if the option is one.
fn condition_name(option: &[u8]) -> Option<&'static str> {
    let names = ["IFEQ", "IFNE", "IFDEQ", "IFDNE"];
    names.into_iter().find(|name| is(option, name))
}

/// Reads the value or the digest of a condition.
///
/// # Errors
/// For a digest that is none.
fn condition(name: &str, value: &[u8]) -> Result<Condition, Reply> {
    let digest = || {
        let is_hex = value.len() == 16 && value.iter().all(u8::is_ascii_hexdigit);
        let text = std::str::from_utf8(value).ok().filter(|_| is_hex);
        let digest = text.and_then(|text| u64::from_str_radix(text, 16).ok());
        let error = || format!("the digest of `{name}` must be exactly 16 hexadecimal characters");
        digest.ok_or_else(|| Reply::err(error()))
    };
    Ok(match name {
        "IFEQ" => Condition::Equal(value.to_vec()),
        "IFNE" => Condition::NotEqual(value.to_vec()),
        "IFDEQ" => Condition::DigestEqual(digest()?),
        _ => Condition::DigestNotEqual(digest()?),
    })
}

/// Reads `DELEX key [condition value]`.
fn delex(_: &ServerState, args: Args<'_>) -> Result<Keyed, Reply> {
    let key = args.get(1).and_then(key);
    let (option, value) = match (args.len(), args.get(2), args.get(3)) {
        (2, ..) => return Ok(Keyed::Delete(vec![key])),
        (4, Some(option), Some(value)) => (option, value),
        _ => return Err(wrong_arity("delex")),
    };
    let name = condition_name(option)
        .ok_or_else(|| Reply::err("Invalid condition. Use IFEQ, IFNE, IFDEQ, or IFDNE"))?;
    let value = condition(name, value)?;
    Ok(Keyed::DeleteIf { key, value })
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

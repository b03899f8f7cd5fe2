//! Commands about due times: `EXPIRE`, `PERSIST`, `TTL` and their kin.

use super::command::{Command, Run, integer, is};
use super::keyed::{Expiry, Keyed, OnlyIf};
use super::keys::key;
use super::parser::Args;
use super::reply::Reply;
use super::server_state::ServerState;
use super::strings::{invalid_time, too_far};
use lapsed::task::{Due, UnixMs};
use lapsed_core::access::AccessScope as Scope;

type Parse = fn(&ServerState, Args<'_>) -> Result<Keyed, Reply>;

const fn one_key(
    name: &'static str,
    arity: i32,
    scope: Scope,
    parse: Parse,
    usage: &'static str,
    summary: &'static str,
) -> Command {
    Command {
        name,
        arity,
        scope: Some(scope),
        run: Run::Keyed(parse),
        keys: (1, 1, 1),
        summary,
        usage,
    }
}

/// The commands of this file.
#[rustfmt::skip]
pub const COMMANDS: &[Command] = &[
    one_key("expire", -3, Scope::Schedule, expire, "key seconds [NX | XX | GT | LT]", "Moves a task that has not started. A time in the past cancels it."),
    one_key("pexpire", -3, Scope::Schedule, pexpire, "key milliseconds [NX | XX | GT | LT]", "As EXPIRE, in milliseconds."),
    one_key("expireat", -3, Scope::Schedule, expireat, "key unix-time-seconds [NX | XX | GT | LT]", "Moves a task that has not started to a time. A time in the past cancels it."),
    one_key("pexpireat", -3, Scope::Schedule, pexpireat, "key unix-time-milliseconds [NX | XX | GT | LT]", "As EXPIREAT, in milliseconds."),
    one_key("persist", 2, Scope::Schedule, persist, "key", "Cancels a task: without an expiry it would never be due."),
    one_key("ttl", 2, Scope::Read, ttl, "key", "Returns the seconds until a task is due; -2 if there is none that has not started."),
    one_key("pttl", 2, Scope::Read, pttl, "key", "As TTL, in milliseconds."),
    one_key("expiretime", 2, Scope::Read, expiretime, "key", "Returns the due time of a task in Unix seconds; -2 if there is none that has not started."),
    one_key("pexpiretime", 2, Scope::Read, pexpiretime, "key", "As EXPIRETIME, in milliseconds."),
];

fn expire(server: &ServerState, args: Args<'_>) -> Result<Keyed, Reply> {
    expiry(server, args, "expire", 1000, Expiry::In)
}

fn pexpire(server: &ServerState, args: Args<'_>) -> Result<Keyed, Reply> {
    expiry(server, args, "pexpire", 1, Expiry::In)
}

fn expireat(server: &ServerState, args: Args<'_>) -> Result<Keyed, Reply> {
    expiry(server, args, "expireat", 1000, Expiry::At)
}

fn pexpireat(server: &ServerState, args: Args<'_>) -> Result<Keyed, Reply> {
    expiry(server, args, "pexpireat", 1, Expiry::At)
}

fn expiry(
    server: &ServerState,
    args: Args<'_>,
    name: &str,
    unit: i64,
    expiry: fn(i64) -> Expiry,
) -> Result<Keyed, Reply> {
    let only = only_if(args)?;
    let number = integer(args.get(2).unwrap_or_default())?;
    let ms = number.checked_mul(unit).ok_or_else(|| invalid_time(name))?;
    let expiry = expiry(ms);
    let now = server.tasks.clock_now();
    let due = match expiry {
        Expiry::In(ms) => now.0.checked_add(ms).ok_or_else(|| invalid_time(name))?,
        Expiry::At(ms) => ms,
        Expiry::Keep => now.0,
    };
    // A time in the past cancels, however long ago it is.
    if due > now.0 {
        let due = Due::at(UnixMs(due)).and_then(|due| due.resolve_checked(now));
        due.map_err(|error| too_far(name, &error))?;
    }
    Ok(Keyed::Expire {
        key: args.get(1).and_then(key),
        expiry,
        only,
    })
}

fn only_if(args: Args<'_>) -> Result<OnlyIf, Reply> {
    let (mut only, mut exists) = (OnlyIf::default(), false);
    for option in args.from(3) {
        match option {
            option if is(option, "NX") => only.none = true,
            option if is(option, "XX") => exists = true,
            option if is(option, "GT") => only.later = true,
            option if is(option, "LT") => only.earlier = true,
            option => {
                let option = String::from_utf8_lossy(&option[..option.len().min(128)]);
                return Err(Reply::err(format_args!("Unsupported option {option}")));
            }
        }
    }
    if only.none && (exists || only.later || only.earlier) {
        return Err(Reply::err(
            "NX and XX, GT or LT options at the same time are not compatible",
        ));
    }
    if only.later && only.earlier {
        return Err(Reply::err(
            "GT and LT options at the same time are not compatible",
        ));
    }
    Ok(only)
}

fn persist(_: &ServerState, args: Args<'_>) -> Result<Keyed, Reply> {
    Ok(Keyed::Persist(args.get(1).and_then(key)))
}

fn remaining(args: Args<'_>, in_ms: bool, absolute: bool) -> Result<Keyed, Reply> {
    Ok(Keyed::Remaining {
        key: args.get(1).and_then(key),
        in_ms,
        absolute,
    })
}

fn ttl(_: &ServerState, args: Args<'_>) -> Result<Keyed, Reply> {
    remaining(args, false, false)
}

fn pttl(_: &ServerState, args: Args<'_>) -> Result<Keyed, Reply> {
    remaining(args, true, false)
}

fn expiretime(_: &ServerState, args: Args<'_>) -> Result<Keyed, Reply> {
    remaining(args, false, true)
}

fn pexpiretime(_: &ServerState, args: Args<'_>) -> Result<Keyed, Reply> {
    remaining(args, true, true)
}

//! Strings.

use super::{Answer, Call, Command, NO_FLOAT, NO_INTEGER, SYNTAX, int, span};
use crate::events::Class;
use crate::keyspace::{Bytes, Value};
use crate::reply::{Reply, double, read_double};

pub(super) fn command(name: &str) -> Option<Command> {
    Some(match name {
        "get" => (get, 2, false),
        "getrange" | "substr" => (getrange, 4, false),
        "strlen" => (strlen, 2, false),
        "mget" => (mget, -2, false),
        "set" => (set, -3, true),
        "setnx" => (setnx, 3, true),
        "setex" | "psetex" => (setex, 4, true),
        "getset" => (getset, 3, true),
        "getdel" => (getdel, 2, true),
        "getex" => (getex, -2, true),
        "append" => (append, 3, true),
        "setrange" => (setrange, 4, true),
        "mset" => (mset, -3, true),
        "incr" | "decr" => (incr, 2, true),
        "incrby" | "decrby" => (incr, 3, true),
        "incrbyfloat" => (incrbyfloat, 3, true),
        _ => return None,
    })
}

fn get(call: &mut Call<'_>) -> Answer {
    let text = call.string(call.word(1))?.cloned();
    Ok(Reply::bulk_or_nil(text))
}

fn getrange(call: &mut Call<'_>) -> Answer {
    let (start, end) = (call.int(2)?, call.int(3)?);
    let text = call.string(call.word(1))?.cloned().unwrap_or_default();
    if start < 0 && end < 0 && start > end {
        return Ok(Reply::bulk(""));
    }
    // An end before the first byte means the first byte.
    let end = end.max(-i64::try_from(text.len()).unwrap_or(i64::MAX));
    Ok(Reply::bulk(&text[span(start, end, text.len())]))
}

fn strlen(call: &mut Call<'_>) -> Answer {
    let length = call.string(call.word(1))?.map_or(0, |text| text.len());
    Ok(Reply::count(length))
}

fn mget(call: &mut Call<'_>) -> Answer {
    let keys = call.words_from(1).iter();
    let all = keys.map(|key| Reply::bulk_or_nil(call.string(key).ok().flatten().cloned()));
    Ok(Reply::Array(all.collect()))
}

/// When a key expires by an option and its number.
pub(super) fn due(now: i64, option: &str, number: &[u8], command: &str) -> Result<i64, String> {
    let number = int(number).ok_or_else(|| NO_INTEGER.to_owned())?;
    let invalid = || format!("ERR invalid expire time in '{command}' command");
    if number <= 0 {
        return Err(invalid());
    }
    let ms = match option {
        "ex" | "exat" => number.checked_mul(1000),
        _ => Some(number),
    };
    let due = match option {
        "ex" | "px" => ms.and_then(|ms| ms.checked_add(now)),
        _ => ms,
    };
    due.ok_or_else(invalid)
}

fn write(call: &mut Call<'_>, key: &[u8], text: &[u8], due: Option<i64>, keeps: bool) {
    let kept = match keeps {
        true => call.state.db(call.db).get(key).and_then(|entry| entry.due),
        false => None,
    };
    call.state
        .put(call.db, key, Value::String(text.to_vec()), kept);
    call.state.notify(Class::String, "set", call.db, key);
    if due.is_some() {
        call.state.set_due(call.db, key, due);
        call.state.notify(Class::Generic, "expire", call.db, key);
    }
}

fn set(call: &mut Call<'_>) -> Answer {
    let (key, text) = (call.word(1), call.word(2));
    let (mut nx, mut xx, mut gets, mut keeps) = (false, false, false, false);
    let mut expiry: Option<(String, &[u8])> = None;
    let mut at = 3;
    while at < call.words.len() {
        match &call.option(at)[..] {
            "nx" if !xx => nx = true,
            "xx" if !nx => xx = true,
            "get" => gets = true,
            "keepttl" if expiry.is_none() => keeps = true,
            option @ ("ex" | "px" | "exat" | "pxat")
                if !keeps && expiry.is_none() && at + 1 < call.words.len() =>
            {
                expiry = Some((option.to_owned(), call.word(at + 1)));
                at += 1;
            }
            _ => return Err(SYNTAX.to_owned()),
        }
        at += 1;
    }
    let now = call.state.now();
    let expiry = expiry.map(|(option, number)| due(now, &option, number, "set"));
    let expiry = expiry.transpose()?;
    let before = match gets {
        true => Some(Reply::bulk_or_nil(call.string(key)?.cloned())),
        false => None,
    };
    let exists = call.state.used(call.db, key).is_some();
    if (nx && exists) || (xx && !exists) {
        return Ok(before.unwrap_or(Reply::Nil));
    }
    write(call, key, text, expiry, keeps);
    Ok(before.unwrap_or_else(Reply::ok))
}

fn setnx(call: &mut Call<'_>) -> Answer {
    let key = call.word(1);
    if call.state.used(call.db, key).is_some() {
        return Ok(Reply::Int(0));
    }
    write(call, key, call.word(2), None, false);
    Ok(Reply::Int(1))
}

fn setex(call: &mut Call<'_>) -> Answer {
    let name = call.name();
    let option = if name == "setex" { "ex" } else { "px" };
    let due = due(call.state.now(), option, call.word(2), &name)?;
    let key = call.word(1);
    call.state.used(call.db, key);
    write(call, key, call.word(3), Some(due), false);
    Ok(Reply::ok())
}

fn getset(call: &mut Call<'_>) -> Answer {
    let key = call.word(1);
    let before = Reply::bulk_or_nil(call.string(key)?.cloned());
    write(call, key, call.word(2), None, false);
    Ok(before)
}

fn getdel(call: &mut Call<'_>) -> Answer {
    let key = call.word(1);
    let Some(text) = call.string(key)?.cloned() else {
        return Ok(Reply::Nil);
    };
    call.state.db(call.db).remove(key);
    call.state.notify(Class::Generic, "del", call.db, key);
    Ok(Reply::Bulk(text))
}

fn getex(call: &mut Call<'_>) -> Answer {
    let (key, option, now) = (call.word(1), call.option(2), call.state.now());
    let (is_timed, persists) = match (call.words.len(), &option[..]) {
        (2, _) => (false, false),
        (3, "persist") => (false, true),
        (4, "ex" | "px" | "exat" | "pxat") => (true, false),
        _ => return Err(SYNTAX.to_owned()),
    };
    let Some(text) = call.string(key)?.cloned() else {
        return Ok(Reply::Nil);
    };
    let expires = call
        .state
        .db(call.db)
        .get(key)
        .is_some_and(|entry| entry.due.is_some());
    if persists && expires {
        call.state.set_due(call.db, key, None);
        call.state.notify(Class::Generic, "persist", call.db, key);
    }
    if is_timed {
        let due = due(now, &option, call.word(3), "getex")?;
        if due <= now {
            call.state.db(call.db).remove(key);
            call.state.notify(Class::Generic, "del", call.db, key);
        } else {
            call.state.set_due(call.db, key, Some(due));
            call.state.notify(Class::Generic, "expire", call.db, key);
        }
    }
    Ok(Reply::Bulk(text))
}

/// Changes a string in place, or a new one. The change returns its reply.
fn change(
    call: &mut Call<'_>,
    event: &'static str,
    missing: &[u8],
    change: impl FnOnce(&mut Bytes) -> Answer,
) -> Answer {
    let key = call.word(1);
    let mut text = call
        .string(key)?
        .map_or_else(|| missing.to_vec(), |text| text.clone());
    let reply = change(&mut text)?;
    match call.string(key)? {
        Some(old) => *old = text,
        None => call.state.put(call.db, key, Value::String(text), None),
    }
    call.state.notify(Class::String, event, call.db, key);
    Ok(reply)
}

fn append(call: &mut Call<'_>) -> Answer {
    let more = call.word(2);
    change(call, "append", b"", |text| {
        text.extend_from_slice(more);
        Ok(Reply::count(text.len()))
    })
}

fn setrange(call: &mut Call<'_>) -> Answer {
    let (start, more) = (call.int(2)?, call.word(3));
    let start = usize::try_from(start).map_err(|_| "ERR offset is out of range".to_owned())?;
    if more.is_empty() {
        return strlen(call);
    }
    change(call, "setrange", b"", |text| {
        let length = text.len().max(start + more.len());
        text.resize(length, 0);
        text[start..start + more.len()].copy_from_slice(more);
        Ok(Reply::count(text.len()))
    })
}

fn mset(call: &mut Call<'_>) -> Answer {
    let pairs = call.words_from(1);
    if !pairs.len().is_multiple_of(2) {
        return Err("ERR wrong number of arguments for 'mset' command".to_owned());
    }
    for pair in pairs.chunks(2) {
        call.state.used(call.db, &pair[0]);
        let value = Value::String(pair[1].clone());
        call.state.put(call.db, &pair[0], value, None);
        call.state.notify(Class::String, "set", call.db, &pair[0]);
    }
    Ok(Reply::ok())
}

fn incr(call: &mut Call<'_>) -> Answer {
    let by = if call.words.len() == 3 {
        call.int(2)?
    } else {
        1
    };
    let by = if call.name().starts_with("decr") {
        by.checked_neg()
    } else {
        Some(by)
    };
    let by = by.ok_or("ERR decrement would overflow")?;
    change(call, "incrby", b"0", |text| {
        let before = int(text).ok_or(NO_INTEGER)?;
        let after = before.checked_add(by);
        let after = after.ok_or("ERR increment or decrement would overflow")?;
        *text = after.to_string().into_bytes();
        Ok(Reply::Int(after))
    })
}

fn incrbyfloat(call: &mut Call<'_>) -> Answer {
    let by = read_double(call.word(2)).ok_or(NO_FLOAT)?;
    change(call, "incrbyfloat", b"0", |text| {
        let before = read_double(text).ok_or(NO_FLOAT)?;
        *text = double(before + by).into_bytes();
        Ok(Reply::bulk(text.clone()))
    })
}

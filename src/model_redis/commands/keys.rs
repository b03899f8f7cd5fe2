//! Keys of any type, and when they expire.

use super::{Answer, Call, Command, SYNTAX, int};
use crate::events::Class;
use crate::glob;
use crate::keyspace::{Bytes, Value};
use crate::reply::Reply;
use crate::server::DATABASES;

pub(super) fn command(name: &str) -> Option<Command> {
    Some(match name {
        "del" | "unlink" => (del, -2, true),
        "exists" | "touch" => (exists, -2, false),
        "ttl" | "pttl" | "expiretime" | "pexpiretime" => (ttl, 2, false),
        "expire" | "pexpire" | "expireat" | "pexpireat" => (expire, -3, true),
        "persist" => (persist, 2, true),
        "type" => (kind, 2, false),
        "rename" | "renamenx" => (rename, 3, true),
        "copy" => (copy, -3, true),
        "move" => (move_key, 3, true),
        "scan" => (scan, -2, false),
        "keys" => (keys, 2, false),
        "dbsize" => (dbsize, 1, false),
        "object" => (object, -2, false),
        "flushdb" | "flushall" => (flush, -1, true),
        "swapdb" => (swapdb, 3, true),
        _ => return None,
    })
}

fn del(call: &mut Call<'_>) -> Answer {
    let mut deleted = 0;
    for key in call.words_from(1) {
        call.state.expire_if_due(call.db, key);
        if call.state.db(call.db).remove(key).is_some() {
            call.state.notify(Class::Generic, "del", call.db, key);
            deleted += 1;
        }
    }
    Ok(Reply::count(deleted))
}

fn exists(call: &mut Call<'_>) -> Answer {
    let touches = call.name() == "touch";
    let mut found = 0;
    for key in call.words_from(1) {
        let entry = match touches {
            true => call.state.used(call.db, key),
            false => call.state.entry(call.db, key),
        };
        found += usize::from(entry.is_some());
    }
    Ok(Reply::count(found))
}

fn ttl(call: &mut Call<'_>) -> Answer {
    let now = call.state.now();
    let Some(entry) = call.state.entry(call.db, call.word(1)) else {
        return Ok(Reply::Int(-2));
    };
    let Some(due) = entry.due else {
        return Ok(Reply::Int(-1));
    };
    let left = (due - now).max(0);
    Ok(Reply::Int(match &call.name()[..] {
        "ttl" => left.saturating_add(500) / 1000,
        "pttl" => left,
        "expiretime" => due.saturating_add(500) / 1000,
        _ => due,
    }))
}

fn expire(call: &mut Call<'_>) -> Answer {
    let (name, key, number, now) = (call.name(), call.word(1), call.int(2)?, call.state.now());
    let (mut nx, mut xx, mut gt, mut lt) = (false, false, false, false);
    for at in 3..call.words.len() {
        match &call.option(at)[..] {
            "nx" => nx = true,
            "xx" => xx = true,
            "gt" => gt = true,
            "lt" => lt = true,
            option => return Err(format!("ERR Unsupported option {option}")),
        }
    }
    if nx && (xx || gt || lt) {
        return Err(
            "ERR NX and XX, GT or LT options at the same time are not compatible".to_owned(),
        );
    }
    if gt && lt {
        return Err("ERR GT and LT options at the same time are not compatible".to_owned());
    }
    let ms = if name.starts_with('p') {
        Some(number)
    } else {
        number.checked_mul(1000)
    };
    let due = if name.ends_with("at") {
        ms
    } else {
        ms.and_then(|ms| ms.checked_add(now))
    };
    let due = due.ok_or_else(|| format!("ERR invalid expire time in '{name}' command"))?;
    let Some(entry) = call.state.used(call.db, key) else {
        return Ok(Reply::Int(0));
    };
    // A key that does not expire counts as one that expires never.
    let is_kept = match entry.due {
        None => xx || gt,
        Some(before) => nx || (gt && due <= before) || (lt && due >= before),
    };
    if is_kept {
        return Ok(Reply::Int(0));
    }
    if due <= now {
        call.state.db(call.db).remove(key);
        call.state.notify(Class::Generic, "del", call.db, key);
    } else {
        call.state.set_due(call.db, key, Some(due));
        call.state.notify(Class::Generic, "expire", call.db, key);
    }
    Ok(Reply::Int(1))
}

fn persist(call: &mut Call<'_>) -> Answer {
    let key = call.word(1);
    match call.state.used(call.db, key) {
        Some(entry) if entry.due.is_some() => {}
        _ => return Ok(Reply::Int(0)),
    }
    call.state.set_due(call.db, key, None);
    call.state.notify(Class::Generic, "persist", call.db, key);
    Ok(Reply::Int(1))
}

fn kind(call: &mut Call<'_>) -> Answer {
    let entry = call.state.entry(call.db, call.word(1));
    let kind = entry.map_or("none", |entry| entry.value.kind());
    Ok(Reply::Status(kind.to_owned()))
}

fn rename(call: &mut Call<'_>) -> Answer {
    let (from, to, db) = (call.word(1), call.word(2), call.db);
    let is_nx = call.name() == "renamenx";
    let done = || if is_nx { Reply::Int(1) } else { Reply::ok() };
    let Some(entry) = call.state.used(db, from).map(|entry| entry.clone()) else {
        return Err("ERR no such key".to_owned());
    };
    if from == to {
        return Ok(if is_nx { Reply::Int(0) } else { Reply::ok() });
    }
    if call.state.used(db, to).is_some() {
        if is_nx {
            return Ok(Reply::Int(0));
        }
        call.state.db(db).remove(to);
    }
    call.state.put(db, to, entry.value, entry.due);
    call.state.db(db).remove(from);
    call.state
        .notify_due(Class::Generic, "rename_from", db, from, entry.due);
    call.state.notify(Class::Generic, "rename_to", db, to);
    Ok(done())
}

fn copy(call: &mut Call<'_>) -> Answer {
    let (from, to, mut db, mut replaces) = (call.word(1), call.word(2), call.db, false);
    let mut at = 3;
    while at < call.words.len() {
        match &call.option(at)[..] {
            "replace" => replaces = true,
            "db" if at + 1 < call.words.len() => {
                db = database(call, at + 1)?;
                at += 1;
            }
            _ => return Err(SYNTAX.to_owned()),
        }
        at += 1;
    }
    if from == to && db == call.db {
        return Err("ERR source and destination objects are the same".to_owned());
    }
    let Some(entry) = call.state.used(call.db, from).map(|entry| entry.clone()) else {
        return Ok(Reply::Int(0));
    };
    if call.state.used(db, to).is_some() {
        if !replaces {
            return Ok(Reply::Int(0));
        }
        call.state.db(db).remove(to);
    }
    call.state.put(db, to, entry.value, entry.due);
    call.state.notify(Class::Generic, "copy_to", db, to);
    Ok(Reply::Int(1))
}

fn move_key(call: &mut Call<'_>) -> Answer {
    let (key, from, to) = (call.word(1), call.db, database(call, 2)?);
    if from == to {
        return Err("ERR source and destination objects are the same".to_owned());
    }
    let Some(entry) = call.state.used(from, key).map(|entry| entry.clone()) else {
        return Ok(Reply::Int(0));
    };
    if call.state.used(to, key).is_some() {
        return Ok(Reply::Int(0));
    }
    call.state.put(to, key, entry.value, entry.due);
    call.state.db(from).remove(key);
    call.state
        .notify_due(Class::Generic, "move_from", from, key, entry.due);
    call.state.notify(Class::Generic, "move_to", to, key);
    Ok(Reply::Int(1))
}

fn database(call: &Call<'_>, at: usize) -> Result<u32, String> {
    let number = call.int(at)?;
    let number = u32::try_from(number)
        .ok()
        .filter(|number| *number < DATABASES);
    number.ok_or_else(|| "ERR DB index is out of range".to_owned())
}

/// Where a name comes in scans: the same while it exists, whatever happens to others.
pub(super) fn place(name: &[u8]) -> u64 {
    const OFFSET: u64 = 0xcbf2_9ce4_8422_2325;
    const PRIME: u64 = 0x0100_0000_01b3;
    let hash = name.iter().fold(OFFSET, |hash, byte| {
        (hash ^ u64::from(*byte)).wrapping_mul(PRIME)
    });
    // Clients read cursors as signed numbers.
    hash >> 16
}

/// The names of one page of a scan, and the cursor of the next.
pub(super) fn page<'n>(
    names: impl Iterator<Item = &'n Bytes>,
    cursor: u64,
    count: usize,
) -> (Vec<Bytes>, u64) {
    let mut rest: Vec<(u64, &Bytes)> = names.map(|name| (place(name), name)).collect();
    rest.retain(|(place, _)| *place >= cursor);
    rest.sort_unstable();
    let last = rest.get(count.max(1) - 1).map(|(place, _)| *place);
    let next = rest
        .iter()
        .map(|(place, _)| *place)
        .find(|place| last.is_some_and(|last| *place > last));
    let on_page = rest
        .into_iter()
        .take_while(|(place, _)| next.is_none_or(|next| *place < next));
    (
        on_page.map(|(_, name)| name.clone()).collect(),
        next.unwrap_or(0),
    )
}

/// What a scan asks for.
pub(super) struct Scan {
    pub(super) cursor: u64,
    pub(super) count: usize,
    pub(super) pattern: Option<Bytes>,
    kind: Option<String>,
}

impl Scan {
    pub(super) fn read(call: &Call<'_>, first: usize) -> Result<Self, String> {
        let cursor = std::str::from_utf8(call.word(first)).map(str::parse);
        let Ok(Ok(cursor)) = cursor else {
            return Err("ERR invalid cursor".to_owned());
        };
        let (mut count, mut pattern, mut kind) = (10, None, None);
        for pair in call.words_from(first + 1).chunks(2) {
            match (&pair[0].to_ascii_lowercase()[..], pair.get(1)) {
                (b"match", Some(text)) => pattern = Some(text.clone()),
                (b"count", Some(number)) => {
                    let number = int(number).ok_or(super::NO_INTEGER)?;
                    let number = usize::try_from(number).ok().filter(|number| *number > 0);
                    count = number.ok_or(SYNTAX)?;
                }
                (b"type", Some(name)) if first == 1 => {
                    kind = Some(String::from_utf8_lossy(name).into_owned());
                }
                _ => return Err(SYNTAX.to_owned()),
            }
        }
        Ok(Self {
            cursor,
            count,
            pattern,
            kind,
        })
    }

    pub(super) fn wants(&self, name: &[u8]) -> bool {
        let pattern = self.pattern.as_ref();
        pattern.is_none_or(|pattern| glob::matches(pattern, name))
    }
}

fn scan(call: &mut Call<'_>) -> Answer {
    let scan = Scan::read(call, 1)?;
    let (names, next) = page(call.state.db(call.db).names(), scan.cursor, scan.count);
    let mut found = Vec::new();
    for name in names.into_iter().filter(|name| scan.wants(name)) {
        let entry = call.state.db(call.db).get(&name);
        let kind = entry.map(|entry| entry.value.kind());
        if scan
            .kind
            .as_deref()
            .is_some_and(|wanted| Some(wanted) != kind)
        {
            continue;
        }
        if !call.state.expire_if_due(call.db, &name) {
            found.push(name);
        }
    }
    Ok(Reply::Array(vec![
        Reply::bulk(next.to_string()),
        Reply::bulks(found),
    ]))
}

/// Leaves due keys out, and does not delete them.
fn keys(call: &mut Call<'_>) -> Answer {
    let (pattern, now) = (call.word(1), call.state.now());
    let db = call.state.db(call.db);
    let is_live = |name: &&Bytes| {
        db.get(name)
            .and_then(|entry| entry.due)
            .is_none_or(|due| due >= now)
    };
    let found = db.names().filter(is_live);
    let found = found.filter(|name| glob::matches(pattern, name));
    Ok(Reply::bulks(found.cloned()))
}

fn dbsize(call: &mut Call<'_>) -> Answer {
    Ok(Reply::count(call.state.db(call.db).len()))
}

fn object(call: &mut Call<'_>) -> Answer {
    let now = call.state.now();
    match &call.option(1)[..] {
        "idletime" if call.words.len() == 3 => {
            let Some(entry) = call.state.entry(call.db, call.word(2)) else {
                return Ok(Reply::Nil);
            };
            Ok(Reply::Int(
                now.div_euclid(1000) - entry.used_ms.div_euclid(1000),
            ))
        }
        "encoding" if call.words.len() == 3 => {
            let entry = call.state.entry(call.db, call.word(2));
            let encoding = entry.map(|entry| encoding(&entry.value).as_bytes().to_vec());
            Ok(Reply::bulk_or_nil(encoding))
        }
        verb => Err(format!(
            "ERR Unknown subcommand or wrong number of arguments for '{verb}'. Try OBJECT HELP."
        )),
    }
}

/// How Redis stores a small value of this kind, and a string.
fn encoding(value: &Value) -> &'static str {
    const EMBEDDED_MAX: usize = 44;
    match value {
        Value::String(text) if int(text).is_some() => "int",
        Value::String(text) if text.len() <= EMBEDDED_MAX => "embstr",
        Value::String(_) => "raw",
        Value::List(_) => "quicklist",
        Value::Set(_) => "hashtable",
        Value::Hash(_) | Value::Sorted(_) => "listpack",
        Value::Stream(_) => "stream",
    }
}

fn flush(call: &mut Call<'_>) -> Answer {
    match &call.name()[..] {
        "flushall" => {
            call.state.data.clear();
            call.state.note("flushall", 0, b"", None);
        }
        _ => {
            call.state.data.remove(&call.db);
            call.state.note("flushdb", call.db, b"", None);
        }
    }
    Ok(Reply::ok())
}

fn swapdb(call: &mut Call<'_>) -> Answer {
    let (one, other) = (database(call, 1)?, database(call, 2)?);
    let data = &mut call.state.data;
    let (first, second) = (data.remove(&one), data.remove(&other));
    data.extend(first.map(|db| (other, db)));
    data.extend(second.map(|db| (one, db)));
    call.state.note("swapdb", one, b"", None);
    Ok(Reply::ok())
}

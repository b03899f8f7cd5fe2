//! Hashes.

use indexmap::IndexMap;

use super::keys::{Scan, page};
use super::{Answer, Call, Command, int};
use crate::events::Class;
use crate::keyspace::{Bytes, Value};
use crate::reply::Reply;

/// Hashes up to this size are scanned in one page.
const ONE_PAGE: usize = 128;

pub(super) fn command(name: &str) -> Option<Command> {
    Some(match name {
        "hget" => (hget, 3, false),
        "hmget" => (hmget, -3, false),
        "hgetall" | "hkeys" | "hvals" => (hgetall, 2, false),
        "hlen" => (hlen, 2, false),
        "hexists" => (hexists, 3, false),
        "hscan" => (hscan, -3, false),
        "hset" | "hmset" => (hset, -4, true),
        "hsetnx" => (hsetnx, 4, true),
        "hdel" => (hdel, -3, true),
        "hincrby" => (hincrby, 4, true),
        _ => return None,
    })
}

fn fields(call: &mut Call<'_>) -> Result<IndexMap<Bytes, Bytes>, String> {
    Ok(call.hash(call.word(1))?.cloned().unwrap_or_default())
}

fn hget(call: &mut Call<'_>) -> Answer {
    let field = call.word(2);
    let hash = call.hash(call.word(1))?;
    Ok(Reply::bulk_or_nil(
        hash.and_then(|hash| hash.get(field)).cloned(),
    ))
}

fn hmget(call: &mut Call<'_>) -> Answer {
    let names = call.words_from(2);
    let hash = fields(call)?;
    let found = names
        .iter()
        .map(|name| Reply::bulk_or_nil(hash.get(name).cloned()));
    Ok(Reply::Array(found.collect()))
}

fn hgetall(call: &mut Call<'_>) -> Answer {
    let hash = fields(call)?;
    Ok(Reply::bulks(match &call.name()[..] {
        "hkeys" => hash.into_keys().collect(),
        "hvals" => hash.into_values().collect(),
        _ => hash
            .into_iter()
            .flat_map(|(field, value)| [field, value])
            .collect::<Vec<_>>(),
    }))
}

fn hlen(call: &mut Call<'_>) -> Answer {
    Ok(Reply::count(
        call.hash(call.word(1))?.map_or(0, |hash| hash.len()),
    ))
}

fn hexists(call: &mut Call<'_>) -> Answer {
    let field = call.word(2);
    let hash = call.hash(call.word(1))?;
    Ok(Reply::flag(
        hash.is_some_and(|hash| hash.contains_key(field)),
    ))
}

fn hscan(call: &mut Call<'_>) -> Answer {
    let scan = Scan::read(call, 2)?;
    let hash = fields(call)?;
    let (names, next) = match hash.len() {
        0..=ONE_PAGE => (hash.keys().cloned().collect(), 0),
        _ => page(hash.keys(), scan.cursor, scan.count),
    };
    let names = names.into_iter().filter(|name| scan.wants(name));
    let found = names.flat_map(|name| {
        let value = hash[&name].clone();
        [name, value]
    });
    Ok(Reply::Array(vec![
        Reply::bulk(next.to_string()),
        Reply::bulks(found),
    ]))
}

/// Runs a change on the hash, which is created if it is missing.
fn change<T>(
    call: &mut Call<'_>,
    change: impl FnOnce(&mut IndexMap<Bytes, Bytes>) -> T,
) -> Result<T, String> {
    let key = call.word(1);
    call.hash(key)?;
    call.create(key, Value::Hash(IndexMap::new()));
    let hash = call.hash(key)?.expect("it was created");
    Ok(change(hash))
}

fn hset(call: &mut Call<'_>) -> Answer {
    let (name, key, pairs) = (call.name(), call.word(1), call.words_from(2));
    if !pairs.len().is_multiple_of(2) {
        return Err(format!(
            "ERR wrong number of arguments for '{name}' command"
        ));
    }
    let added = change(call, |hash| {
        let add = |pair: &&[Bytes]| hash.insert(pair[0].clone(), pair[1].clone()).is_none();
        pairs.chunks(2).filter(add).count()
    })?;
    call.state.notify(Class::Hash, "hset", call.db, key);
    Ok(if name == "hset" {
        Reply::count(added)
    } else {
        Reply::ok()
    })
}

fn hsetnx(call: &mut Call<'_>) -> Answer {
    let (key, field, value) = (call.word(1), call.word(2), call.word(3));
    if call.hash(key)?.is_some_and(|hash| hash.contains_key(field)) {
        return Ok(Reply::Int(0));
    }
    change(call, |hash| hash.insert(field.to_vec(), value.to_vec()))?;
    call.state.notify(Class::Hash, "hset", call.db, key);
    Ok(Reply::Int(1))
}

fn hdel(call: &mut Call<'_>) -> Answer {
    let (key, names) = (call.word(1), call.words_from(2));
    let Some(hash) = call.hash(key)? else {
        return Ok(Reply::Int(0));
    };
    let removed = names
        .iter()
        .filter(|name| hash.shift_remove(&name[..]).is_some());
    let removed = removed.count();
    if removed > 0 {
        let is_empty = hash.is_empty();
        call.removed(Class::Hash, "hdel", key, is_empty);
    }
    Ok(Reply::count(removed))
}

fn hincrby(call: &mut Call<'_>) -> Answer {
    let (key, field, by) = (call.word(1), call.word(2), call.int(3)?);
    let before = call.hash(key)?.and_then(|hash| hash.get(field).cloned());
    let before = before.map_or(Some(0), |text| int(&text));
    let before = before.ok_or("ERR hash value is not an integer")?;
    let after = before
        .checked_add(by)
        .ok_or("ERR increment or decrement would overflow")?;
    change(call, |hash| {
        hash.insert(field.to_vec(), after.to_string().into_bytes())
    })?;
    call.state.notify(Class::Hash, "hincrby", call.db, key);
    Ok(Reply::Int(after))
}

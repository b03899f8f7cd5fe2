//! Sets.

use std::collections::BTreeSet;

use super::{Answer, Call, Command};
use crate::events::Class;
use crate::keyspace::Value;
use crate::reply::Reply;

pub(super) fn command(name: &str) -> Option<Command> {
    Some(match name {
        "scard" => (scard, 2, false),
        "sismember" => (sismember, 3, false),
        "smembers" => (smembers, 2, false),
        "sadd" => (sadd, -3, true),
        "srem" => (srem, -3, true),
        _ => return None,
    })
}

fn scard(call: &mut Call<'_>) -> Answer {
    Ok(Reply::count(
        call.set(call.word(1))?.map_or(0, |set| set.len()),
    ))
}

fn sismember(call: &mut Call<'_>) -> Answer {
    let member = call.word(2);
    let set = call.set(call.word(1))?;
    Ok(Reply::flag(set.is_some_and(|set| set.contains(member))))
}

fn smembers(call: &mut Call<'_>) -> Answer {
    let set = call.set(call.word(1))?.cloned().unwrap_or_default();
    Ok(Reply::bulks(set))
}

fn sadd(call: &mut Call<'_>) -> Answer {
    let (key, members) = (call.word(1), call.words_from(2));
    call.set(key)?;
    call.create(key, Value::Set(BTreeSet::new()));
    let set = call.set(key)?.expect("it was created");
    let added = members.iter().filter(|member| set.insert(member.to_vec()));
    let added = added.count();
    if added > 0 {
        call.state.notify(Class::Set, "sadd", call.db, key);
    }
    Ok(Reply::count(added))
}

fn srem(call: &mut Call<'_>) -> Answer {
    let (key, members) = (call.word(1), call.words_from(2));
    let Some(set) = call.set(key)? else {
        return Ok(Reply::Int(0));
    };
    let removed = members.iter().filter(|member| set.remove(&member[..]));
    let removed = removed.count();
    let is_empty = set.is_empty();
    if removed > 0 {
        call.removed(Class::Set, "srem", key, is_empty);
    }
    Ok(Reply::count(removed))
}

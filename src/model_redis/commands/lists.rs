//! Lists.

use std::collections::VecDeque;

use super::{Answer, Call, Command, NO_INTEGER, SYNTAX, span};
use crate::events::Class;
use crate::keyspace::{Bytes, Value};
use crate::reply::Reply;

pub(super) fn command(name: &str) -> Option<Command> {
    Some(match name {
        "llen" => (llen, 2, false),
        "lrange" => (lrange, 4, false),
        "lindex" => (lindex, 3, false),
        "lpush" | "rpush" | "lpushx" | "rpushx" => (push, -3, true),
        "lpop" | "rpop" => (pop, -2, true),
        "lrem" => (lrem, 4, true),
        "lset" => (lset, 4, true),
        "ltrim" => (ltrim, 4, true),
        "rpoplpush" => (rpoplpush, 3, true),
        "lmove" => (lmove, 5, true),
        _ => return None,
    })
}

fn llen(call: &mut Call<'_>) -> Answer {
    Ok(Reply::count(
        call.list(call.word(1))?.map_or(0, |list| list.len()),
    ))
}

fn lrange(call: &mut Call<'_>) -> Answer {
    let (start, end) = (call.int(2)?, call.int(3)?);
    let list = call.list(call.word(1))?;
    let found: Vec<Bytes> = list.map_or_else(Vec::new, |list| {
        list.range(span(start, end, list.len())).cloned().collect()
    });
    Ok(Reply::bulks(found))
}

/// The place that an index means, negative ones from the end.
fn place(index: i64, length: usize) -> Option<usize> {
    let length = i64::try_from(length).ok()?;
    let index = if index < 0 { index + length } else { index };
    usize::try_from(index)
        .ok()
        .filter(|index| (*index as i64) < length)
}

fn lindex(call: &mut Call<'_>) -> Answer {
    let index = call.int(2);
    let Some(list) = call.list(call.word(1))? else {
        return Ok(Reply::Nil);
    };
    let place = place(index?, list.len());
    Ok(Reply::bulk_or_nil(
        place.and_then(|place| list.get(place).cloned()),
    ))
}

fn put(
    call: &mut Call<'_>,
    key: &[u8],
    is_left: bool,
    elements: &[Bytes],
) -> Result<usize, String> {
    call.list(key)?;
    call.create(key, Value::List(VecDeque::new()));
    let list = call.list(key)?.expect("it was created");
    for element in elements.iter().cloned() {
        match is_left {
            true => list.push_front(element),
            false => list.push_back(element),
        }
    }
    let length = list.len();
    let event = if is_left { "lpush" } else { "rpush" };
    call.state.notify(Class::List, event, call.db, key);
    Ok(length)
}

fn push(call: &mut Call<'_>) -> Answer {
    let (name, key) = (call.name(), call.word(1));
    if name.ends_with('x') && call.list(key)?.is_none() {
        return Ok(Reply::Int(0));
    }
    let length = put(call, key, name.starts_with('l'), call.words_from(2))?;
    Ok(Reply::count(length))
}

fn take(
    call: &mut Call<'_>,
    key: &[u8],
    is_left: bool,
    count: usize,
) -> Result<Option<Vec<Bytes>>, String> {
    let Some(list) = call.list(key)? else {
        return Ok(None);
    };
    let mut taken = Vec::new();
    while taken.len() < count {
        let element = if is_left {
            list.pop_front()
        } else {
            list.pop_back()
        };
        match element {
            Some(element) => taken.push(element),
            None => break,
        }
    }
    let is_empty = list.is_empty();
    if !taken.is_empty() {
        let event = if is_left { "lpop" } else { "rpop" };
        call.removed(Class::List, event, key, is_empty);
    }
    Ok(Some(taken))
}

fn pop(call: &mut Call<'_>) -> Answer {
    let (key, is_left) = (call.word(1), call.name() == "lpop");
    if call.words.len() == 2 {
        let taken = take(call, key, is_left, 1)?;
        return Ok(Reply::bulk_or_nil(taken.and_then(|mut taken| taken.pop())));
    }
    let count = call
        .int(2)
        .map_err(|_| "ERR value is out of range, must be positive".to_owned())?;
    let count = usize::try_from(count);
    let count = count.map_err(|_| "ERR value is out of range, must be positive".to_owned())?;
    Ok(take(call, key, is_left, count)?.map_or(Reply::NilArray, Reply::bulks))
}

fn lrem(call: &mut Call<'_>) -> Answer {
    let (key, count, element) = (call.word(1), call.int(2)?, call.word(3));
    let Some(list) = call.list(key)? else {
        return Ok(Reply::Int(0));
    };
    let most = if count == 0 {
        u64::MAX
    } else {
        count.unsigned_abs()
    };
    let mut removed = 0;
    let mut keeps = |other: &Bytes| {
        let is_removed = removed < most && other == element;
        removed += u64::from(is_removed);
        !is_removed
    };
    let rest: VecDeque<Bytes> = match count < 0 {
        true => {
            let mut rest: VecDeque<Bytes> = VecDeque::new();
            list.drain(..)
                .rev()
                .filter(&mut keeps)
                .for_each(|other| rest.push_front(other));
            rest
        }
        false => list.drain(..).filter(&mut keeps).collect(),
    };
    let is_empty = rest.is_empty();
    *list = rest;
    if removed > 0 {
        call.removed(Class::List, "lrem", key, is_empty);
    }
    Ok(Reply::Int(removed as i64))
}

fn lset(call: &mut Call<'_>) -> Answer {
    let (key, index, element) = (call.word(1), call.int(2), call.word(3));
    let Some(list) = call.list(key)? else {
        return Err("ERR no such key".to_owned());
    };
    let place = place(index?, list.len()).ok_or("ERR index out of range")?;
    list[place] = element.to_vec();
    call.state.notify(Class::List, "lset", call.db, key);
    Ok(Reply::ok())
}

fn ltrim(call: &mut Call<'_>) -> Answer {
    let (key, start, end) = (call.word(1), call.int(2)?, call.int(3)?);
    let Some(list) = call.list(key)? else {
        return Ok(Reply::ok());
    };
    let kept = span(start, end, list.len());
    list.truncate(kept.end);
    list.drain(..kept.start.min(list.len()));
    let is_empty = list.is_empty();
    call.removed(Class::List, "ltrim", key, is_empty);
    Ok(Reply::ok())
}

fn transfer(call: &mut Call<'_>, from_left: bool, to_left: bool) -> Answer {
    let (from, to) = (call.word(1), call.word(2));
    if call.list(from)?.is_none() {
        return Ok(Reply::Nil);
    }
    call.list(to)?;
    let Some(list) = call.list(from)? else {
        return Ok(Reply::Nil);
    };
    let element = if from_left {
        list.pop_front()
    } else {
        list.pop_back()
    };
    let (is_empty, element) = (list.is_empty(), element.ok_or(NO_INTEGER)?);
    put(call, to, to_left, std::slice::from_ref(&element))?;
    let event = if from_left { "lpop" } else { "rpop" };
    let is_empty = is_empty && from != to;
    call.removed(Class::List, event, from, is_empty);
    Ok(Reply::Bulk(element))
}

fn rpoplpush(call: &mut Call<'_>) -> Answer {
    transfer(call, false, true)
}

fn lmove(call: &mut Call<'_>) -> Answer {
    let side = |word: String| match &word[..] {
        "left" => Ok(true),
        "right" => Ok(false),
        _ => Err(SYNTAX.to_owned()),
    };
    let (from, to) = (side(call.option(3))?, side(call.option(4))?);
    transfer(call, from, to)
}

//! Streams: appended, trimmed and read from the beginning.

use super::{Answer, Call, Command, SYNTAX, WRONG_TYPE};
use crate::events::Class;
use crate::keyspace::{Stream, Value};
use crate::reply::Reply;

pub(super) fn command(name: &str) -> Option<Command> {
    Some(match name {
        "xlen" => (xlen, 2, false),
        "xrange" => (xrange, -4, false),
        "xadd" => (xadd, -5, true),
        _ => return None,
    })
}

fn stream<'c>(call: &'c mut Call<'_>) -> Result<Option<&'c mut Stream>, String> {
    call.kind_or_missing(call.word(1), |value| match value {
        Value::Stream(stream) => Some(stream),
        _ => None,
    })
    .map_err(|_| WRONG_TYPE.to_owned())
}

fn xlen(call: &mut Call<'_>) -> Answer {
    Ok(Reply::count(
        stream(call)?.map_or(0, |stream| stream.entries.len()),
    ))
}

/// Of the whole stream alone.
fn xrange(call: &mut Call<'_>) -> Answer {
    if (call.word(2), call.word(3), call.words.len()) != (b"-", b"+", 4) {
        return Err(SYNTAX.to_owned());
    }
    let entries = stream(call)?
        .map(|stream| stream.entries.clone())
        .unwrap_or_default();
    let entry = |((ms, number), fields)| {
        Reply::Array(vec![
            Reply::bulk(format!("{ms}-{number}")),
            Reply::bulks::<Vec<u8>>(fields),
        ])
    };
    Ok(Reply::Array(entries.into_iter().map(entry).collect()))
}

/// With an id of the server alone. Trims exactly, where Redis may trim less.
fn xadd(call: &mut Call<'_>) -> Answer {
    let (key, mut at, mut most) = (call.word(1), 2, usize::MAX);
    if call.option(at) == "maxlen" {
        at += 1 + usize::from(matches!(call.word(at + 1), b"~" | b"="));
        most = usize::try_from(call.int(at)?).map_err(|_| SYNTAX.to_owned())?;
        at += 1;
    }
    let fields = call.words_from(at + 1);
    if call.word(at) != b"*" || fields.is_empty() || !fields.len().is_multiple_of(2) {
        return Err("ERR wrong number of arguments for 'xadd' command".to_owned());
    }
    stream(call)?;
    call.create(key, Value::Stream(Stream::default()));
    let ms = u64::try_from(call.state.now()).unwrap_or(0);
    let stream = stream(call)?.expect("it was created");
    let id = match stream.last {
        last if last.0 < ms => (ms, 0),
        last => (last.0, last.1 + 1),
    };
    stream.last = id;
    stream.entries.insert(id, fields.to_vec());
    let is_trimmed = stream.entries.len() > most;
    while stream.entries.len() > most {
        stream.entries.pop_first();
    }
    call.state.notify(Class::Stream, "xadd", call.db, key);
    if is_trimmed {
        call.state.notify(Class::Stream, "xtrim", call.db, key);
    }
    Ok(Reply::bulk(format!("{}-{}", id.0, id.1)))
}

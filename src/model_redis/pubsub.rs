//! Subscriptions of a connection.

use std::sync::Arc;

use crate::glob;
use crate::reply::Reply;
use crate::request::Words;
use crate::server::State;

/// The replies to a command on subscriptions, or to one that a subscriber may not send; `None` if it is another.
pub(crate) fn answer(
    state: &mut State,
    id: u64,
    name: &str,
    words: &Arc<Words>,
) -> Option<Vec<Reply>> {
    let client = state.clients.get_mut(&id)?;
    let named = &words[1..];
    let is_subscribed = !client.channels.is_empty() || !client.patterns.is_empty();
    match name {
        "subscribe" | "psubscribe" | "unsubscribe" | "punsubscribe" => {}
        "ping" if is_subscribed => {
            let echo = named.first().cloned().unwrap_or_default();
            return Some(vec![Reply::bulks([b"pong".to_vec(), echo])]);
        }
        "quit" | "reset" => return None,
        _ if is_subscribed => {
            let text = format!(
                "ERR Can't execute '{name}': only (P|S)SUBSCRIBE / (P|S)UNSUBSCRIBE / PING / QUIT / RESET are allowed in this context"
            );
            return Some(vec![Reply::Error(text)]);
        }
        _ => return None,
    }
    let (is_pattern, adds) = (name.starts_with('p'), !name.contains("un"));
    if adds && named.is_empty() {
        let text = format!("ERR wrong number of arguments for '{name}' command");
        return Some(vec![Reply::Error(text)]);
    }
    let of = match is_pattern {
        true => &client.patterns,
        false => &client.channels,
    };
    let all: Vec<Option<Vec<u8>>> = match named {
        [] if of.is_empty() => vec![None],
        [] => of.iter().cloned().map(Some).collect(),
        named => named.iter().cloned().map(Some).collect(),
    };
    let confirmed = all.into_iter().map(|channel| {
        let of = match is_pattern {
            true => &mut client.patterns,
            false => &mut client.channels,
        };
        if let Some(channel) = &channel {
            match adds {
                true => of.insert(channel.clone()),
                false => of.remove(channel),
            };
        }
        let count = Reply::count(client.channels.len() + client.patterns.len());
        Reply::Array(vec![Reply::bulk(name), Reply::bulk_or_nil(channel), count])
    });
    Some(confirmed.collect())
}

/// `PUBSUB CHANNELS | NUMSUB | NUMPAT`
pub(crate) fn query(state: &State, words: &[Vec<u8>]) -> Option<Reply> {
    let clients = || state.clients.values();
    let verb = words.first()?.to_ascii_lowercase();
    Some(match &verb[..] {
        b"channels" => {
            let all = clients().flat_map(|client| client.channels.iter());
            let all: std::collections::BTreeSet<_> = all.collect();
            let pattern = words.get(1).map_or(&b"*"[..], |pattern| pattern);
            let found = all
                .into_iter()
                .filter(|channel| glob::matches(pattern, channel));
            Reply::bulks(found.cloned())
        }
        b"numsub" => Reply::Array(
            words[1..]
                .iter()
                .flat_map(|channel| {
                    let count = clients().filter(|client| client.channels.contains(channel));
                    [Reply::bulk(channel.clone()), Reply::count(count.count())]
                })
                .collect(),
        ),
        b"numpat" => {
            let all = clients().flat_map(|client| client.patterns.iter());
            let all: std::collections::BTreeSet<_> = all.collect();
            Reply::count(all.len())
        }
        _ => return None,
    })
}

//! Subscriptions: accepted, because some clients subscribe when they connect. Nothing is published.

use std::collections::BTreeSet;

use super::command::{Command, now};
use super::parser::Args;
use super::reply::Reply;
use super::server_state::ServerState;
use super::session::Session;

/// Most channels and patterns of a connection.
const SUBSCRIPTIONS_MAX: usize = 1_000;

/// Longest name of a channel, in bytes.
const NAME_BYTES_MAX: usize = 255;

/// Memory of a name beside its bytes.
const NODE_BYTES: usize = 48;

/// The commands of this file.
#[rustfmt::skip]
pub const COMMANDS: &[Command] = &[
    now("subscribe", -2, subscribe, "channel [channel ...]", "Is accepted. No message is ever published."),
    now("psubscribe", -2, psubscribe, "pattern [pattern ...]", "Is accepted. No message is ever published."),
    now("unsubscribe", -1, unsubscribe, "[channel [channel ...]]", "Ends subscriptions."),
    now("punsubscribe", -1, punsubscribe, "[pattern [pattern ...]]", "Ends subscriptions to patterns."),
];

type Names = fn(&mut Session) -> &mut BTreeSet<Vec<u8>>;

fn channels(session: &mut Session) -> &mut BTreeSet<Vec<u8>> {
    &mut session.subscriptions.channels
}

fn patterns(session: &mut Session) -> &mut BTreeSet<Vec<u8>> {
    &mut session.subscriptions.patterns
}

fn subscribe(session: &mut Session, _: &ServerState, args: Args<'_>) -> Reply {
    begin(session, args, "subscribe", channels)
}

fn psubscribe(session: &mut Session, _: &ServerState, args: Args<'_>) -> Reply {
    begin(session, args, "psubscribe", patterns)
}

fn unsubscribe(session: &mut Session, _: &ServerState, args: Args<'_>) -> Reply {
    end(session, args, "unsubscribe", channels)
}

fn punsubscribe(session: &mut Session, _: &ServerState, args: Args<'_>) -> Reply {
    end(session, args, "punsubscribe", patterns)
}

fn begin(session: &mut Session, args: Args<'_>, kind: &'static str, names: Names) -> Reply {
    if session.subscriptions.len() + args.len() > SUBSCRIPTIONS_MAX {
        return Reply::err(format_args!(
            "a connection has at most {SUBSCRIPTIONS_MAX} subscriptions"
        ));
    }
    if let Some(name) = args.from(1).find(|name| name.len() > NAME_BYTES_MAX) {
        return Reply::err(format_args!(
            "name of a channel has {} bytes, expected at most {NAME_BYTES_MAX}",
            name.len()
        ));
    }
    let replies = args.from(1).map(|name| {
        if names(session).insert(name.to_vec()) {
            session.subscriptions.bytes += name.len() + NODE_BYTES;
        }
        message(session, kind, Reply::Bytes(name.to_vec()))
    });
    Reply::Several(replies.collect())
}

fn end(session: &mut Session, args: Args<'_>, kind: &'static str, names: Names) -> Reply {
    let ended: Vec<Vec<u8>> = match args.len() {
        1 => names(session).iter().cloned().collect(),
        _ => args.from(1).map(<[u8]>::to_vec).collect(),
    };
    if ended.is_empty() {
        return message(session, kind, Reply::Null);
    }
    let replies = ended.into_iter().map(|name| {
        if names(session).remove(&name) {
            session.subscriptions.bytes -= name.len() + NODE_BYTES;
        }
        message(session, kind, Reply::Bytes(name))
    });
    Reply::Several(replies.collect())
}

fn message(session: &Session, kind: &'static str, name: Reply) -> Reply {
    let count = i64::try_from(session.subscriptions.len()).unwrap_or(i64::MAX);
    Reply::Push(vec![Reply::Static(kind), name, Reply::Int(count)])
}

//! Commands about the server and the connection.

use super::{Answer, Call, Command};
use crate::events::Flags;
use crate::reply::Reply;
use crate::server::State;
use crate::{glob, pubsub};

/// The version that the model has.
const VERSION: &str = "7.0.15";

const NOTIFY: &str = "notify-keyspace-events";

pub(super) fn command(name: &str) -> Option<Command> {
    Some(match name {
        "ping" | "echo" => (ping, -1, false),
        "time" => (time, 1, false),
        "info" => (info, -1, false),
        "role" => (role, 1, false),
        "config" => (config, -2, false),
        "publish" => (publish, 3, false),
        "pubsub" => (query_pubsub, -2, false),
        "hello" => (hello, -1, false),
        "debug" => (debug, -2, false),
        _ => return None,
    })
}

fn ping(call: &mut Call<'_>) -> Answer {
    Ok(match call.words.len() {
        1 => Reply::Status("PONG".to_owned()),
        _ => Reply::bulk(call.word(1)),
    })
}

fn time(call: &mut Call<'_>) -> Answer {
    let now = call.state.now_us();
    let parts = [now.div_euclid(1_000_000), now.rem_euclid(1_000_000)];
    Ok(Reply::bulks(parts.map(|part| part.to_string())))
}

fn hello(call: &mut Call<'_>) -> Answer {
    match call.words.get(1).map_or(&b"2"[..], |version| version) {
        b"2" => {
            let facts = [
                ("server", "redis"),
                ("version", VERSION),
                ("mode", "standalone"),
            ];
            let facts = facts.into_iter().flat_map(|(name, value)| [name, value]);
            Ok(Reply::bulks(facts))
        }
        _ => Err("NOPROTO unsupported protocol version".to_owned()),
    }
}

/// `DEBUG SET-ACTIVE-EXPIRE 0 | 1`
fn debug(call: &mut Call<'_>) -> Answer {
    match (&call.option(1)[..], call.word(2)) {
        ("set-active-expire", on) => {
            call.state.expires_actively = on != b"0";
            call.state.expiries.notify_one();
            Ok(Reply::ok())
        }
        (verb, _) => Err(format!(
            "ERR Unknown subcommand or wrong number of arguments for '{verb}'. Try DEBUG HELP."
        )),
    }
}

fn info(call: &mut Call<'_>) -> Answer {
    let wanted: Vec<String> = (1..call.words.len()).map(|at| call.option(at)).collect();
    let state = &mut *call.state;
    let mode = if state.is_replica { "slave" } else { "master" };
    let uptime = state.started.elapsed().as_secs();
    let mut keyspace = String::new();
    for (number, db) in state.data.iter().filter(|(_, db)| db.len() > 0) {
        let (keys, expires) = (db.len(), db.expiring());
        keyspace += &format!("db{number}:keys={keys},expires={expires},avg_ttl=0\r\n");
    }
    let sections = [
        (
            "server",
            format!(
                "redis_version:{VERSION}\r\nredis_mode:standalone\r\nrun_id:{}\r\ntcp_port:6379\r\nserver_time_usec:{}\r\nuptime_in_seconds:{uptime}\r\nhz:{}\r\n",
                state.run_id,
                state.now_us(),
                state.options.hz,
            ),
        ),
        (
            "clients",
            format!("connected_clients:{}\r\n", state.clients.len()),
        ),
        ("persistence", "loading:0\r\n".to_owned()),
        (
            "stats",
            format!("expired_keys:{}\r\nevicted_keys:0\r\n", state.expired_keys),
        ),
        (
            "replication",
            format!("role:{mode}\r\nconnected_slaves:0\r\n"),
        ),
        ("cluster", "cluster_enabled:0\r\n".to_owned()),
        ("keyspace", keyspace),
    ];
    let all = ["all", "default", "everything"];
    let is_wanted = |name: &str| {
        wanted.is_empty()
            || wanted
                .iter()
                .any(|word| word == name || all.contains(&&word[..]))
    };
    let text = sections.iter().filter(|(name, _)| is_wanted(name));
    let text = text.map(|(name, fields)| {
        let (first, rest) = name.split_at(1);
        format!("# {}{rest}\r\n{fields}", first.to_ascii_uppercase())
    });
    Ok(Reply::bulk(text.collect::<Vec<_>>().join("\r\n")))
}

fn role(call: &mut Call<'_>) -> Answer {
    Ok(Reply::Array(match call.state.is_replica {
        false => vec![
            Reply::bulk("master"),
            Reply::Int(0),
            Reply::Array(Vec::new()),
        ],
        true => vec![
            Reply::bulk("slave"),
            Reply::bulk("model"),
            Reply::Int(6379),
            Reply::bulk("connected"),
            Reply::Int(0),
        ],
    }))
}

fn config(call: &mut Call<'_>) -> Answer {
    match &call.option(1)[..] {
        "get" => {
            let mut settings = call.state.settings.clone();
            settings.insert(NOTIFY.to_owned(), call.state.flags.to_string());
            let patterns = call.words_from(2);
            let is_wanted = |name: &str| {
                let mut patterns = patterns.iter().map(|pattern| pattern.to_ascii_lowercase());
                patterns.any(|pattern| glob::matches(&pattern, name.as_bytes()))
            };
            let found = settings.into_iter().filter(|(name, _)| is_wanted(name));
            Ok(Reply::bulks(found.flat_map(|(name, value)| [name, value])))
        }
        "set" => {
            for pair in call.words_from(2).chunks(2) {
                let text = |word: &Vec<u8>| String::from_utf8_lossy(word).into_owned();
                let (name, value) = (text(&pair[0]), pair.get(1).map(text).unwrap_or_default());
                set(call.state, &name.to_ascii_lowercase(), value)?;
            }
            Ok(Reply::ok())
        }
        "resetstat" | "rewrite" => Ok(Reply::ok()),
        verb => Err(format!(
            "ERR Unknown subcommand or wrong number of arguments for '{verb}'. Try CONFIG HELP."
        )),
    }
}

fn set(state: &mut State, name: &str, value: String) -> Result<(), String> {
    if name == NOTIFY {
        state.flags = Flags::parse(&value).ok_or_else(|| {
            format!(
                "ERR CONFIG SET failed (possibly related to argument '{NOTIFY}') - Invalid event class character. Use 'Ag$lshzxeKEtmdn'."
            )
        })?;
        return Ok(());
    }
    match state.settings.get_mut(name) {
        Some(setting) => *setting = value,
        None => {
            return Err(format!(
                "ERR Unknown option or number of arguments for CONFIG SET - '{name}'"
            ));
        }
    }
    if name == "hz" {
        state.options.hz = state.settings[name]
            .parse()
            .unwrap_or(state.options.hz)
            .clamp(1, 500);
    }
    Ok(())
}

fn publish(call: &mut Call<'_>) -> Answer {
    let receivers = call.state.publish(call.word(1), call.word(2), false);
    Ok(Reply::count(receivers))
}

fn query_pubsub(call: &mut Call<'_>) -> Answer {
    pubsub::query(call.state, call.words_from(1)).ok_or_else(|| {
        let verb = call.option(1);
        format!(
            "ERR Unknown subcommand or wrong number of arguments for '{verb}'. Try PUBSUB HELP."
        )
    })
}

/// `CLIENT`
pub(crate) fn client(state: &mut State, id: u64, verb: &[u8], words: &[Vec<u8>]) -> Reply {
    let verb = String::from_utf8_lossy(verb).to_ascii_lowercase();
    match (&verb[..], words) {
        ("id", []) => Reply::Int(i64::try_from(id).unwrap_or(i64::MAX)),
        ("setname", [name]) => {
            if let Some(client) = state.clients.get_mut(&id) {
                client.name = String::from_utf8_lossy(name).into_owned();
            }
            Reply::ok()
        }
        ("getname", []) => {
            let name = state.clients.get(&id).map(|client| client.name.clone());
            Reply::bulk(name.unwrap_or_default())
        }
        ("setinfo" | "no-evict" | "no-touch", _) => Reply::ok(),
        ("list", _) => {
            let is_pubsub = words
                .last()
                .is_some_and(|kind| kind.eq_ignore_ascii_case(b"pubsub"));
            let clients = state.clients.iter();
            let clients = clients.filter(|(_, client)| {
                !is_pubsub || client.channels.len() + client.patterns.len() > 0
            });
            let lines = clients.map(|(id, client)| {
                let (sub, psub) = (client.channels.len(), client.patterns.len());
                format!(
                    "id={id} addr={} name={} sub={sub} psub={psub}\n",
                    client.link, client.name
                )
            });
            Reply::bulk(lines.collect::<String>())
        }
        ("kill", [.., kind, what])
            if kind.eq_ignore_ascii_case(b"type") && what.eq_ignore_ascii_case(b"pubsub") =>
        {
            let before = state.clients.len();
            state
                .clients
                .retain(|_, client| client.channels.is_empty() && client.patterns.is_empty());
            Reply::count(before - state.clients.len())
        }
        _ => Reply::Error(format!(
            "ERR Unknown subcommand or wrong number of arguments for '{verb}'. Try CLIENT HELP."
        )),
    }
}

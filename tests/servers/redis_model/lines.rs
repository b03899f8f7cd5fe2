//! Each line of what Redis does with keys that are due: before `act`, the key `k` was armed for a moment that has passed.

use super::server::{Client, Done, ModelServer, SHORT_MS, bytes, redis_server};
use crate::support::resp_wire::Reply;

/// A name, commands before, the command, what is in its reply, and the events that it causes.
type Line = (
    &'static str,
    &'static [&'static str],
    &'static str,
    &'static str,
    &'static [&'static str],
);

/// `k` is due and not deleted yet.
const DUE: &[&str] = &["SET k v PX 100", "WAIT"];
const DUE_AND_LIVE: &[&str] = &["SET k v PX 100", "SET live v", "WAIT"];
const LIVE: &[&str] = &["SET k v PX 100000"];

const LINES: &[Line] = &[
    (
        "set_over_due",
        DUE,
        "SET k v",
        "OK",
        &["expired k", "set k"],
    ),
    (
        "setex_over_due",
        DUE,
        "SETEX k 100 v",
        "OK",
        &["expired k", "set k", "expire k"],
    ),
    (
        "psetex_over_due",
        DUE,
        "PSETEX k 100000 v",
        "OK",
        &["expired k", "set k", "expire k"],
    ),
    (
        "getset_over_due",
        DUE,
        "GETSET k v",
        "nil",
        &["expired k", "set k"],
    ),
    (
        "set_keepttl_over_due",
        DUE,
        "SET k v KEEPTTL",
        "OK",
        &["expired k", "set k"],
    ),
    ("del_of_due", DUE, "DEL k", "0", &["expired k"]),
    ("unlink_of_due", DUE, "UNLINK k", "0", &["expired k"]),
    ("getdel_of_due", DUE, "GETDEL k", "nil", &["expired k"]),
    ("persist_of_due", DUE, "PERSIST k", "0", &["expired k"]),
    ("getex_of_due", DUE, "GETEX k EX 100", "nil", &["expired k"]),
    ("expire_of_due", DUE, "EXPIRE k 100", "0", &["expired k"]),
    (
        "rename_of_due",
        DUE,
        "RENAME k k2",
        "ERR no such key",
        &["expired k"],
    ),
    (
        "rename_over_due",
        DUE_AND_LIVE,
        "RENAME live k",
        "OK",
        &["expired k", "rename_from live", "rename_to k"],
    ),
    ("copy_of_due", DUE, "COPY k k2", "0", &["expired k"]),
    (
        "copy_over_due",
        DUE_AND_LIVE,
        "COPY live k",
        "1",
        &["expired k", "copy_to k"],
    ),
    ("exists_of_due", DUE, "EXISTS k", "0", &["expired k"]),
    ("touch_of_due", DUE, "TOUCH k", "0", &["expired k"]),
    ("ttl_of_due", DUE, "TTL k", "-2", &["expired k"]),
    ("pttl_of_due", DUE, "PTTL k", "-2", &["expired k"]),
    ("type_of_due", DUE, "TYPE k", "none", &["expired k"]),
    (
        "object_of_due",
        DUE,
        "OBJECT ENCODING k",
        "nil",
        &["expired k"],
    ),
    ("dump_of_due", DUE, "DUMP k", "nil", &["expired k"]),
    ("move_of_due", DUE, "MOVE k 1", "0", &["expired k"]),
    ("getrange_of_due", DUE, "GETRANGE k 0 6", "", &["expired k"]),
    ("set_xx_over_due", DUE, "SET k v XX", "nil", &["expired k"]),
    (
        "set_nx_over_due",
        DUE,
        "SET k v NX",
        "OK",
        &["expired k", "set k"],
    ),
    ("scan_visits_due", DUE, "SCAN 0", "0 []", &["expired k"]),
    ("keys_leaves_due_ones_alone", DUE, "KEYS *", "[]", &[]),
    (
        "exists_in_a_script",
        DUE,
        "EVAL return+redis.call('EXISTS',KEYS[1]) 1 k",
        "0",
        &["expired k"],
    ),
    ("dbsize_counts_due", DUE, "DBSIZE", "1", &[]),
    ("flushdb_of_due", DUE, "FLUSHDB", "OK", &[]),
    ("expire_in_the_past", LIVE, "EXPIRE k -1", "1", &["del k"]),
    (
        "expireat_in_the_past",
        LIVE,
        "EXPIREAT k 1",
        "1",
        &["del k"],
    ),
    (
        "pexpireat_in_the_past",
        LIVE,
        "PEXPIREAT k 1",
        "1",
        &["del k"],
    ),
    (
        "set_pxat_in_the_past_stores",
        &[],
        "SET k v PXAT 1",
        "OK",
        &["set k", "expire k"],
    ),
    (
        "set_pxat_in_the_past_expires",
        &["SET k v PXAT 1"],
        "EXISTS k",
        "0",
        &["expired k"],
    ),
    (
        "psetex_zero",
        LIVE,
        "PSETEX k 0 v",
        "ERR invalid expire time in 'psetex' command",
        &[],
    ),
    (
        "setex_negative",
        LIVE,
        "SETEX k -1 v",
        "ERR invalid expire time in 'setex' command",
        &[],
    ),
    (
        "setex_far",
        LIVE,
        "SETEX k 9223372036854775807 v",
        "ERR invalid expire time in 'setex' command",
        &[],
    ),
    (
        "setex_in_three_centuries",
        &[],
        "SETEX k 9223372036 v",
        "OK",
        &["set k", "expire k"],
    ),
    (
        "setex_over_live",
        LIVE,
        "SETEX k 200 v",
        "OK",
        &["set k", "expire k"],
    ),
    ("set_over_live", LIVE, "SET k v", "OK", &["set k"]),
    (
        "set_drops_the_expiry",
        &["SET k v PX 100000", "SET k v"],
        "PTTL k",
        "-1",
        &[],
    ),
    (
        "set_keepttl_over_live",
        LIVE,
        "SET k v KEEPTTL",
        "OK",
        &["set k"],
    ),
    ("persist_of_live", LIVE, "PERSIST k", "1", &["persist k"]),
    (
        "getex_persist_of_live",
        LIVE,
        "GETEX k PERSIST",
        "v",
        &["persist k"],
    ),
    ("expire_of_live", LIVE, "EXPIRE k 500", "1", &["expire k"]),
    ("del_of_live", LIVE, "DEL k", "1", &["del k"]),
    (
        "rename_moves_the_expiry",
        &["SET k v PX 100", "RENAME k k2", "WAIT"],
        "EXISTS k2",
        "0",
        &["expired k2"],
    ),
    (
        "copy_has_the_expiry",
        &["SET k v PX 100", "COPY k k2", "WAIT"],
        "EXISTS k2 k",
        "0",
        &["expired k2", "expired k"],
    ),
    (
        "move_moves_the_expiry",
        &["SET k v PX 100", "MOVE k 1", "WAIT", "SWAPDB 0 1"],
        "EXISTS k",
        "0",
        &["expired k"],
    ),
    (
        "swapdb_moves_the_expiry",
        &["SET k v PX 100", "SWAPDB 0 1", "WAIT", "SELECT 1"],
        "EXISTS k",
        "0",
        &["@1 expired k"],
    ),
    (
        "a_forged_event",
        &[],
        "PUBLISH __keyevent@0__:expired x",
        "1",
        &["expired x"],
    ),
    (
        "flags_without_e",
        &[
            "SET k v PX 100",
            "CONFIG SET notify-keyspace-events Kx",
            "WAIT",
        ],
        "EXISTS k",
        "0",
        &[],
    ),
    (
        "flags_without_x",
        &[
            "SET k v PX 100",
            "CONFIG SET notify-keyspace-events Eg",
            "WAIT",
        ],
        "EXISTS k",
        "0",
        &[],
    ),
    (
        "flags_with_another_letter",
        &[],
        "CONFIG SET notify-keyspace-events Q",
        "ERR",
        &[],
    ),
    (
        "flags_are_shown_in_order",
        &["CONFIG SET notify-keyspace-events gxE"],
        "CONFIG GET notify-keyspace-events",
        "notify-keyspace-events gxE",
        &[],
    ),
    (
        "all_flags_are_shown_short",
        &["CONFIG SET notify-keyspace-events KEg$lshzxetd"],
        "CONFIG GET notify-keyspace-events",
        "notify-keyspace-events AKE",
        &[],
    ),
    (
        "a_list_that_is_emptied",
        &["RPUSH l a"],
        "LPOP l",
        "a",
        &["lpop l", "del l"],
    ),
    (
        "a_sorted_set_that_is_emptied",
        &["ZADD z 1 a"],
        "ZREM z a",
        "1",
        &["zrem z", "del z"],
    ),
    (
        "a_score_that_is_emptied",
        &["ZADD z 1 a"],
        "ZREMRANGEBYSCORE z 1 1",
        "1",
        &["zremrangebyscore z", "del z"],
    ),
    (
        "a_score_that_is_written_again",
        &["ZADD z 1 a"],
        "ZADD z 1 a",
        "0",
        &[],
    ),
    (
        "a_hash_that_is_emptied",
        &["HSET h f v"],
        "HDEL h f",
        "1",
        &["hdel h", "del h"],
    ),
];

/// What Valkey 9 does where it differs: a time in the past is that of a key that has expired.
const ON_VALKEY: &[(&str, &[&str])] = &[
    ("expire_in_the_past", &["expired k"]),
    ("expireat_in_the_past", &["expired k"]),
    ("pexpireat_in_the_past", &["expired k"]),
    ("set_pxat_in_the_past_stores", &[]),
    ("set_pxat_in_the_past_expires", &[]),
];

macro_rules! servers {
    ($($name:ident: $server:expr, $port:expr;)*) => {$(
        #[tokio::test]
        async fn $name() {
            let server = $server;
            #[allow(clippy::redundant_closure_call, reason = "ports are told in two ways")]
            let mut client = Client::new($port(&server));
            let is_valkey = shown(&run(&mut client, "INFO server").reply).contains("valkey_version");
            let failed: Vec<String> = LINES
                .iter()
                .map(|line| if is_valkey { on_valkey(*line) } else { *line })
                .filter_map(|line| check(&mut client, &line))
                .collect();
            assert!(failed.is_empty(), "{}", failed.join("\n"));
            restored(&mut client);
            names_arrive_intact(&mut client);
            transactions(&mut client);
            killed(client);
        }
    )*};
}

servers! {
    redis_server_does_what_each_line_says: redis_server().await, lapsed_sandbox::PrivateRedis::port;
    the_model_does_what_each_line_says: ModelServer::start(), |server: &ModelServer| server.port;
}

fn on_valkey(line: Line) -> Line {
    let (name, before, act, reply, events) = line;
    let mut other = ON_VALKEY.iter().filter(|(differs, _)| *differs == name);
    (
        name,
        before,
        act,
        reply,
        other.next().map_or(events, |(_, events)| events),
    )
}

/// What differs from the line.
fn check(client: &mut Client, (name, before, act, reply, events): &Line) -> Option<String> {
    for command in [
        "SELECT 0",
        "FLUSHALL",
        "CONFIG SET notify-keyspace-events KEA",
    ] {
        run(client, command);
    }
    for command in *before {
        run(client, command);
    }
    client.heard();
    let done = run(client, act);
    let found = shown(&done.reply);
    let is_same = if *reply == "ERR" {
        found.starts_with("ERR ")
    } else {
        found == *reply
    };
    (!is_same || done.events != *events).then(|| format!("{name}: {found:?} {:?}", done.events))
}

/// Words are separated by spaces; a `+` stands for a space in a word.
fn run(client: &mut Client, command: &str) -> Done {
    if command == "WAIT" {
        client.wait(SHORT_MS);
        return Done {
            reply: Reply::NoBulk,
            events: Vec::new(),
        };
    }
    let words: Vec<String> = command
        .split(' ')
        .map(|word| word.replace('+', " "))
        .collect();
    client.run(&words)
}

/// A reply on one line.
fn shown(reply: &Reply) -> String {
    match reply {
        Reply::Simple(text) | Reply::Error(text) => text.clone(),
        Reply::Integer(number) => number.to_string(),
        Reply::Bulk(bytes) => String::from_utf8_lossy(bytes).into_owned(),
        Reply::Array(all) if all.is_empty() => "[]".to_owned(),
        Reply::Array(all) => all.iter().map(shown).collect::<Vec<_>>().join(" "),
        _ => "nil".to_owned(),
    }
}

/// `RESTORE` over a due key loses its event, and stores nothing for a moment that has passed.
fn restored(client: &mut Client) {
    run(client, "SET k v");
    let dump = bytes(run(client, "DUMP k").reply);
    run(client, &format!("SET k v PX {SHORT_MS}"));
    run(client, "WAIT");
    let done = client.run(&[&b"RESTORE"[..], b"k", b"0", &dump, b"REPLACE"]);
    assert_eq!(
        (shown(&done.reply), done.events),
        ("OK".to_owned(), vec!["restore k".to_owned()])
    );
    let done = client.run(&[&b"RESTORE"[..], b"other", b"1", &dump, b"ABSTTL"]);
    assert_eq!((shown(&done.reply), done.events), ("OK".to_owned(), vec![]));
    assert_eq!(shown(&run(client, "EXISTS other").reply), "0");
}

fn names_arrive_intact(client: &mut Client) {
    for name in [
        "a\r\nb",
        "\0",
        "",
        "@@",
        "Job@run@a@b",
        &"x".repeat(100_000),
    ] {
        client.run(&["SET", name, "v", "PX", "100"]);
        client.wait(SHORT_MS);
        let done = client.run(&["EXISTS", name]);
        assert_eq!(done.events, [format!("expired {name}")]);
    }
}

fn transactions(client: &mut Client) {
    run(client, &format!("SET k v PX {SHORT_MS}"));
    run(client, "WAIT");
    let sent = ["MULTI", "GET k", "EXEC"].map(|command| {
        let words: Vec<&str> = command.split(' ').collect();
        shown(&client.commands.ask(&words))
    });
    assert_eq!(sent, ["OK", "QUEUED", "nil"]);
    assert_eq!(client.heard(), ["expired k"]);
}

/// `CLIENT KILL TYPE pubsub`: the subscriber reads the end.
fn killed(mut client: Client) {
    let killed = client.commands.ask(&["CLIENT", "KILL", "TYPE", "pubsub"]);
    assert_eq!(killed, Reply::Integer(1));
    assert!(client.has_ended());
}

//! Each line of what Redis does with keys that are due: before `act`, the key `k` was armed for a moment that has passed.

mod table;

use self::table::{LINES, Line, ON_VALKEY};
use super::server::{Client, Done, ModelServer, SHORT_MS, bytes, redis_server};
use crate::support::resp_wire::Reply;

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

//! Clients that no registry of this project has. Their own tests of a server at connect are repeated here, as their sources
//! send them, in one go.

use crate::support::resp_wire::{Reply, Wire, command};

/// What a client asks for, and the replies without which it does not go on.
struct Handshake {
    client: &'static str,
    commands: &'static [&'static [&'static str]],
    needs: &'static [(&'static str, Check)],
}

/// What a reply must be.
type Check = fn(&Reply) -> bool;

const HANDSHAKES: [Handshake; 4] = [
    Handshake {
        client: "go-redis 9",
        commands: &[
            &["hello", "3"],
            &[
                "client",
                "maint_notifications",
                "on",
                "moving-endpoint-type",
                "internal-ip",
            ],
            &["client", "setinfo", "LIB-NAME", "go-redis(,go1.24)"],
            &["client", "setinfo", "LIB-VER", "9.22.0"],
            &["ping"],
        ],
        needs: &[("hello", is_greeting), ("ping", is_pong)],
    },
    Handshake {
        client: "jedis 7",
        commands: &[
            &["HELLO", "3"],
            &["CLIENT", "SETINFO", "LIB-NAME", "jedis"],
            &["CLIENT", "SETINFO", "LIB-VER", "7.5.3"],
            &["SELECT", "0"],
            &["PING"],
        ],
        needs: &[("HELLO", is_greeting), ("SELECT", is_ok), ("PING", is_pong)],
    },
    Handshake {
        client: "lettuce 7",
        commands: &[
            &["HELLO", "3"],
            &["CLIENT", "SETINFO", "lib-name", "Lettuce"],
            &["CLIENT", "SETINFO", "lib-ver", "7.7.0"],
            &[
                "CLIENT",
                "MAINT_NOTIFICATIONS",
                "ON",
                "moving-endpoint-type",
                "internal-ip",
            ],
            &["PING"],
        ],
        needs: &[("HELLO", is_greeting), ("PING", is_pong)],
    },
    Handshake {
        client: "StackExchange.Redis 3",
        commands: &[
            &["HELLO", "3"],
            &["CLIENT", "SETNAME", "shop"],
            &["CLIENT", "SETINFO", "lib-name", "SE.Redis"],
            &["CLIENT", "SETINFO", "lib-ver", "3.1.0"],
            &["CLIENT", "ID"],
            &["CONFIG", "GET", "timeout"],
            &["CONFIG", "GET", "replica-read-only"],
            &["CONFIG", "GET", "databases"],
            &["SENTINEL", "MASTERS"],
            &["INFO", "replication"],
            &["INFO", "server"],
            &["CLUSTER", "NODES"],
            &["GET", "__Booksleeve_TieBreak"],
            &["ECHO", "\u{1}\u{2}tracer"],
        ],
        needs: &[
            ("HELLO", is_greeting),
            ("INFO", has_a_role_or_version),
            ("ECHO", is_tracer),
        ],
    },
];

/// What stands for the clients that cannot be had.
pub const NOT_HAD: &str = "go-redis 9, jedis, lettuce and StackExchange.Redis are in none of the registries of Debian, npm, PyPI \
                           and Rust: only their handshakes are repeated";

/// Sends each handshake. Every command gets one reply, and those that the client needs fit.
pub fn all(port: u16) {
    for Handshake {
        client,
        commands,
        needs,
    } in HANDSHAKES
    {
        let mut wire = Wire::connect(port);
        let bytes: Vec<u8> = commands.iter().flat_map(|words| command(words)).collect();
        wire.send(&bytes);
        for words in commands {
            let reply = wire.reply();
            let mut needs = needs.iter().filter(|(name, _)| *name == words[0]);
            let fits = needs.all(|(_, fits)| fits(&reply));
            assert!(fits, "{client}: {words:?}: {reply:?}");
        }
        // Nothing more was sent.
        let echo = wire.ask(&["ECHO", client]);
        assert_eq!(echo, Reply::Bulk(client.into()));
    }
}

fn text<'a>(pairs: &'a [(Reply, Reply)], name: &str) -> Option<&'a Reply> {
    let is_it = |key: &Reply| matches!(key, Reply::Bulk(key) if key == name.as_bytes());
    pairs
        .iter()
        .find_map(|(key, value)| is_it(key).then_some(value))
}

/// Lettuce fails without a version or an id, StackExchange.Redis without a mode.
fn is_greeting(reply: &Reply) -> bool {
    let Reply::Map(pairs) = reply else {
        return false;
    };
    let texts = ["server", "version", "mode", "role"];
    let has_text = |name: &&str| matches!(text(pairs, name), Some(Reply::Bulk(_)));
    texts.iter().all(has_text)
        && text(pairs, "proto") == Some(&Reply::Integer(3))
        && matches!(text(pairs, "id"), Some(Reply::Integer(_)))
        && matches!(text(pairs, "modules"), Some(Reply::Array(_)))
}

fn is_ok(reply: &Reply) -> bool {
    *reply == Reply::Simple("OK".to_owned())
}

fn is_pong(reply: &Reply) -> bool {
    *reply == Reply::Simple("PONG".to_owned())
}

fn is_tracer(reply: &Reply) -> bool {
    *reply == Reply::Bulk(b"\x01\x02tracer".to_vec())
}

fn has_a_role_or_version(reply: &Reply) -> bool {
    let Reply::Other('=', text) = reply else {
        return false;
    };
    text.contains("role:master\r\n") || text.contains("redis_version:7.")
}

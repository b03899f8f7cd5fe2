//! What each principal may do: every command, by scope, by class and by masks.

use std::collections::BTreeSet;

use super::rig::{RespServer, Wire};

/// A command about a key, `{}`, with the scope that it needs.
const KEYED: [(&str, &str); 28] = [
    ("SET {} v EX 100", "schedule"),
    ("SETEX {} 100 v", "schedule"),
    ("PSETEX {} 100000 v", "schedule"),
    ("SETNX {} v", "schedule"),
    ("MSETEX 1 {} v EX 100", "schedule"),
    ("MSETEX 2 A@b v {} v EX 100", "schedule"),
    ("DELEX {}", "schedule"),
    ("GET {}", "read"),
    ("DIGEST {}", "read"),
    ("EXISTS {}", "read"),
    ("TOUCH {}", "read"),
    ("TYPE {}", "read"),
    ("TTL {}", "read"),
    ("PTTL {}", "read"),
    ("EXPIRETIME {}", "read"),
    ("PEXPIRETIME {}", "read"),
    ("EXPIRE {} 100", "schedule"),
    ("PEXPIRE {} 100000", "schedule"),
    ("EXPIREAT {} 4000000000", "schedule"),
    ("PEXPIREAT {} 4000000000000", "schedule"),
    ("WATCH {}", "read"),
    ("LAPSED.SCHEDULE {} IN 100000", "schedule"),
    ("LAPSED.SHOW {}", "read"),
    ("LAPSED.CANCEL {}", "schedule"),
    ("PERSIST {}", "schedule"),
    ("DEL {}", "schedule"),
    ("UNLINK {}", "schedule"),
    ("DEL A@b {}", "schedule"),
];

/// Every other command that needs a scope.
const WITH_SCOPE: [(&str, &str); 9] = [
    ("SCAN 0", "read"),
    ("DBSIZE", "read"),
    ("LAPSED.TAKE queue", "work"),
    ("LAPSED.DONE claim", "work"),
    ("LAPSED.FAIL claim error", "work"),
    ("LAPSED.SNOOZE claim 1000", "work"),
    ("LAPSED.RELEASE claim", "work"),
    ("LAPSED.RENEW claim", "work"),
    ("LAPSED.ADVANCE 1000", "admin"),
];

/// Every command for which a login suffices.
const WITH_LOGIN: [&str; 19] = [
    "MULTI",
    "EXEC",
    "DISCARD",
    "UNWATCH",
    "COMMAND COUNT",
    "CLIENT ID",
    "PING",
    "ECHO text",
    "SELECT 1",
    "INFO server",
    "CONFIG GET save",
    "TIME",
    "ROLE",
    "SUBSCRIBE name",
    "PSUBSCRIBE name",
    "UNSUBSCRIBE name",
    "PUNSUBSCRIBE name",
    "RESET",
    "QUIT",
];

/// Every command of a client that has not authenticated.
const OPEN: [&str; 4] = ["AUTH wrong", "HELLO", "RESET", "QUIT"];

/// A server with the user `default`, who may do everything, and users with one scope each, or one class.
fn server(more: &str) -> RespServer {
    let hash = lapsed_server::resp::hash_password(b"secret").unwrap();
    let user = |name: &str, settings: &str| {
        format!("[[resp.users]]\nname = '{name}'\npassword = '{hash}'\n{settings}\n")
    };
    let users = [
        user("read", "scopes = 'read'"),
        user("schedule", "scopes = 'schedule'"),
        user("work", "scopes = 'work'"),
        user("operate", "scopes = 'operate'"),
        user("admin", "scopes = 'admin'"),
        user("shop", "classes = ['Order', 'Mail@send*']"),
    ];
    RespServer::with(&format!("password = '{hash}'\n{}{more}", users.concat()))
}

async fn log_in(server: &RespServer, user: &str) -> Wire {
    let mut wire = server.connect().await;
    wire.send(format!("AUTH {user} secret\r\n")).await;
    wire.read_until("+OK\r\n").await;
    wire
}

/// The reply to a command on a connection of its own, or its beginning.
async fn reply(server: &RespServer, user: &str, line: &str) -> String {
    let mut wire = log_in(server, user).await;
    wire.send(format!("{line}\r\n")).await;
    wire.read_until("\r\n").await
}

fn name(line: &str) -> String {
    line.split(' ').next().unwrap().to_lowercase()
}

#[tokio::test(flavor = "multi_thread")]
async fn the_tables_of_this_file_have_every_command() {
    let server = server("");
    let mut wire = log_in(&server, "default").await;
    let listed = wire.says("COMMAND LIST").await;
    let lines = listed
        .split("\r\n")
        .filter(|line| !line.starts_with(['*', '$']));
    let listed: BTreeSet<String> = lines.map(str::to_owned).collect();
    let keyed = KEYED.iter().chain(&WITH_SCOPE).map(|(line, _)| *line);
    let known = keyed.chain(WITH_LOGIN).chain(OPEN).map(name);
    assert_eq!(known.collect::<BTreeSet<String>>(), listed);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_scope_allows_its_commands_and_no_others() {
    let server = server("");
    for (line, scope) in KEYED.into_iter().chain(WITH_SCOPE) {
        let line = line.replace("{}", "Order@close@1");
        for user in ["read", "schedule", "work", "operate", "admin", "default"] {
            let reply = reply(&server, user, &line).await;
            let refused = format!(
                "-NOPERM this user has no permissions to run the '{}' command\r\n",
                name(&line)
            );
            let may = user == scope || matches!(user, "admin" | "default");
            assert_eq!(reply == refused, !may, "{user}: {line}: {reply}");
            assert!(
                !may || !reply.starts_with("-NOPERM"),
                "{user}: {line}: {reply}"
            );
        }
    }
    for line in WITH_LOGIN {
        let reply = reply(&server, "operate", line).await;
        assert!(!reply.starts_with("-NOPERM"), "{line}: {reply}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn without_a_login_only_open_commands_are_answered() {
    let server = server("");
    let keyed = KEYED.into_iter().chain(WITH_SCOPE).map(|(line, _)| line);
    let closed = |line: &&str| !OPEN.contains(line);
    for line in keyed.chain(WITH_LOGIN.into_iter().filter(closed)) {
        let mut wire = server.connect().await;
        wire.send(format!("{}\r\n", line.replace("{}", "Order@close@1")))
            .await;
        let reply = wire.read_until("\r\n").await;
        assert_eq!(reply, "-NOAUTH Authentication required.\r\n", "{line}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_user_of_some_classes_touches_tasks_of_no_others() {
    let server = server("");
    let refused = "-NOPERM this caller may touch tasks of `Order`, `Mail@send*` only\r\n";
    for (line, _) in KEYED {
        for own in ["Order@close@1", "Mail@sendNow@1", "no-task-key"] {
            let line = line.replace("A@b", "Order@b").replace("{}", own);
            let reply = reply(&server, "shop", &line).await;
            assert!(!reply.starts_with("-NOPERM"), "{line}: {reply}");
        }
        for other in ["Orders@close@1", "Mail@read@1", "order@close@1"] {
            let line = line.replace("A@b", "Order@b").replace("{}", other);
            assert_eq!(reply(&server, "shop", &line).await, refused, "{line}");
        }
    }
    let mut wire = log_in(&server, "shop").await;
    wire.send("MULTI\r\nSETEX User@end 100 v\r\nEXEC\r\n").await;
    let aborted = "-EXECABORT Transaction discarded because of previous errors.\r\n";
    let replies = wire.read_until(aborted).await;
    assert_eq!(replies, format!("+OK\r\n{refused}{aborted}"));
}

#[tokio::test(flavor = "multi_thread")]
async fn lists_and_counts_of_a_user_of_some_classes_are_of_those_alone() {
    let server = server("");
    let mut all = log_in(&server, "default").await;
    for key in ["Order@close@1", "Mail@send@1", "Mail@read@1", "User@end@1"] {
        assert_eq!(all.says(&format!("SETEX {key} 100 v")).await, "+OK");
    }
    let mut shop = log_in(&server, "shop").await;
    assert_eq!(all.says("DBSIZE").await, ":4");
    assert_eq!(shop.says("DBSIZE").await, ":2");
    let scanned = shop.says("SCAN 0 COUNT 1000").await;
    for (key, is_own) in [
        ("Order@close@1", true),
        ("Mail@send@1", true),
        ("Mail@read@1", false),
        ("User@end@1", false),
    ] {
        assert_eq!(scanned.contains(key), is_own, "{key}: {scanned}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn masks_hold_for_every_principal_wherever_they_are_configured() {
    for masks in [
        "[access]\nmask_payloads = 'Mail'\nmask_arguments = 'User'",
        "[http]\nmask_payloads = 'Mail'\nmask_arguments = 'User'",
        "[access]\nmask_payloads = 'Mail'\n[http]\nmask_arguments = 'User'",
    ] {
        let server = server(masks);
        let mut all = log_in(&server, "default").await;
        for key in ["Mail@send@1", "User@end@me", "Order@close@1"] {
            assert_eq!(all.says(&format!("SETEX {key} 100 hush")).await, "+OK");
        }
        let masked = "-NOPERM payloads of this class are masked";
        for user in ["default", "admin", "read", "shop"] {
            let mut wire = log_in(&server, user).await;
            assert_eq!(wire.says("GET Mail@send@1").await, masked, "{user}");
            assert_eq!(wire.says("GET Order@close@1").await, "$4\r\nhush", "{user}");
            let shown = wire.says("LAPSED.SHOW Mail@send@1").await;
            assert!(shown.contains("\"payload\":null"), "{user}: {shown}");
            let scanned = wire.says("SCAN 0 COUNT 1000 MATCH User@*").await;
            assert!(!scanned.contains("User@end@me"), "{user}: {scanned}");
            let shows = user != "shop";
            assert_eq!(scanned.contains("User@end@hidden"), shows, "{user}");
        }
        for line in [
            "SET Mail@send@1 x EX 5 GET",
            "SET Mail@send@1 x EX 5 IFEQ hush",
            "DELEX Mail@send@1 IFNE hush",
        ] {
            assert_eq!(all.says(line).await, masked, "{line}");
        }
    }
}

//! Commands of pull workers.

use std::time::Duration;

use lapsed::TaskKey;
use lapsed::clock::wall;
use lapsed::task::State;

use super::rig::{RespServer, Wire};
use crate::support::wait::until;

pub const MAIL: &str =
    "[[routes]]\nmatch = '^Mail@'\npull = { queue = 'mail', visibility = '10s' }\n";

pub async fn due_now(server: &RespServer, key: &str) {
    let key = TaskKey::parse(key).unwrap();
    server.tasks.create(key, Duration::ZERO).await.unwrap();
}

/// Takes one task, and returns its claim.
pub async fn claim(wire: &mut Wire) -> String {
    let taken = wire.says("LAPSED.TAKE mail BLOCK 60000").await;
    claims(&taken).remove(0)
}

pub fn claims(taken: &str) -> Vec<String> {
    let lines: Vec<&str> = taken.split("\r\n").collect();
    let behind = |two: &[&str]| (two[0] == "claim").then(|| two[2].to_owned());
    lines.windows(3).filter_map(behind).collect()
}

pub async fn state(server: &RespServer, key: &str) -> State {
    let found = server.tasks.find(TaskKey::parse(key).unwrap()).await;
    found.unwrap().unwrap().state
}

#[tokio::test]
async fn a_worker_takes_a_task_and_completes_it() {
    let server = RespServer::working(MAIL);
    let mut wire = server.connect().await;
    assert_eq!(
        wire.says("SET Mail@send@7@x '{\"to\": 1.10}' PX 30").await,
        "+OK"
    );
    let taken = wire
        .says("LAPSED.TAKE mail COUNT 10 BLOCK 60000 WORKER w-1")
        .await;
    let members = [
        ("key", "$13\r\nMail@send@7@x"),
        ("class", "$4\r\nMail"),
        ("method", "$4\r\nsend"),
        ("args", "*2\r\n$1\r\n7\r\n$1\r\nx"),
        ("attempt", ":1"),
        ("payload", "$12\r\n{\"to\": 1.10}"),
        ("tag", "$-1"),
        ("max_attempts", ":16"),
        ("last", ":0"),
    ];
    assert!(taken.starts_with("*1\r\n*26\r\n$2\r\nid\r\n"), "{taken}");
    for (name, value) in members {
        let expected = format!("${}\r\n{name}\r\n{value}\r\n", name.len());
        assert!(taken.contains(&expected), "{name}: {taken}");
    }
    let claim = claims(&taken).remove(0);
    let done = format!("LAPSED.DONE {claim} RESULT '[1]'");
    assert_eq!(wire.says(&done).await, "+OK");
    assert_eq!(wire.says(&done).await, "+OK", "it may be repeated");
    let key = TaskKey::parse("Mail@send@7@x").unwrap();
    let task = server.tasks.find(key).await.unwrap().unwrap();
    assert_eq!(
        (task.state, task.result.as_deref()),
        (State::Done, Some("[1]"))
    );
}

#[tokio::test]
async fn with_resp3_a_task_is_a_map() {
    let server = RespServer::working(MAIL);
    let mut wire = server.connect().await;
    wire.says("HELLO 3").await;
    assert_eq!(wire.says("LAPSED.TAKE mail").await, "*0");
    due_now(&server, "Mail@send").await;
    let taken = wire.says("LAPSED.TAKE mail BLOCK 60000").await;
    assert!(taken.starts_with("*1\r\n%13\r\n"), "{taken}");
    assert!(taken.contains("payload\r\n_\r\n"), "{taken}");
}

#[tokio::test]
async fn each_report_has_its_effect() {
    let server = RespServer::working(MAIL);
    let mut wire = server.connect().await;
    for (report, options, expected) in [
        ("FAIL", "'no such mailbox'", State::Waiting),
        ("FAIL", "gone PERMANENT", State::Dead),
        ("FAIL", "busy RETRYAFTER 60000", State::Waiting),
        ("FAIL", "busy retry-after 60000", State::Waiting),
        ("SNOOZE", "60000", State::Waiting),
        ("RELEASE", "", State::Pending),
    ] {
        let key = format!("Mail@send@{report}{}", options.len());
        due_now(&server, &key).await;
        let claim = claim(&mut wire).await;
        assert_eq!(wire.says(&format!("LAPSED.RENEW {claim}")).await, "+OK");
        let said = wire
            .says(&format!("LAPSED.{report} {claim} {options}"))
            .await;
        assert_eq!(said, "+OK", "{report} {options}");
        assert_eq!(state(&server, &key).await, expected, "{report} {options}");
    }
}

#[tokio::test]
async fn keepttl_keeps_the_time_of_a_retry() {
    let server = RespServer::working(MAIL);
    let mut wire = server.connect().await;
    due_now(&server, "Mail@send").await;
    let claim = claim(&mut wire).await;
    wire.says(&format!("LAPSED.FAIL {claim} no RETRYAFTER 60000"))
        .await;
    let due = wire.says("PEXPIRETIME Mail@send").await;
    for line in ["SET Mail@send a XX KEEPTTL", "SET Mail@send b KEEPTTL"] {
        assert_eq!(wire.says(line).await, "+OK");
        assert_eq!(wire.says("PEXPIRETIME Mail@send").await, due);
    }
    assert_eq!(wire.says("GET Mail@send").await, "$1\r\nb");
    assert_eq!(wire.says("LAPSED.TAKE mail").await, "*0");
}

#[tokio::test]
async fn a_retry_that_becomes_due_is_no_change_of_a_watched_key() {
    let server = RespServer::working(MAIL);
    let mut wire = server.connect().await;
    due_now(&server, "Mail@send").await;
    let claim = claim(&mut wire).await;
    wire.says(&format!("LAPSED.FAIL {claim} no RETRYAFTER 300"))
        .await;
    wire.says("WATCH Mail@send").await;
    assert_eq!(state(&server, "Mail@send").await, State::Waiting);
    until("the retry is due", async || {
        state(&server, "Mail@send").await == State::Pending
    })
    .await;
    let said = wire.says("MULTI\r\nDEL Mail@send\r\nEXEC").await;
    assert_eq!(said, "+OK\r\n+QUEUED\r\n*1\r\n:1");
}

#[tokio::test]
async fn an_arming_behind_a_run_exists_inside_and_outside_of_a_transaction() {
    let server = RespServer::working(MAIL);
    let mut wire = server.connect().await;
    let replies = [
        ("GET Mail@send", "$1\r\nb"),
        ("EXISTS Mail@send", ":1"),
        ("TYPE Mail@send", "+string"),
        ("PEXPIRETIME Mail@send", ":1900000000000"),
        ("SET Mail@send c NX PX 60000", "$-1"),
        ("SET Mail@send c XX PXAT 1900000000001", "+OK"),
        ("GET Mail@send", "$1\r\nc"),
        ("PEXPIREAT Mail@send 1900000000002", ":1"),
        ("PEXPIRETIME Mail@send", ":1900000000002"),
        ("LAPSED.SCHEDULE Mail@send IN 60000 IFPENDING REFUSE", "$-1"),
        (
            "LAPSED.SCHEDULE Mail@send IN 60000 IFPENDING KEEP",
            ":1900000000002",
        ),
        ("DEL Mail@send", ":1"),
        ("EXISTS Mail@send", ":0"),
        ("DEL Mail@send", ":0"),
        ("SET Mail@send d PXAT 1900000000003", "+OK"),
        ("EXPIRE Mail@send -1", ":1"),
        ("PTTL Mail@send", ":-2"),
        ("SET Mail@send e PXAT 1900000000004", "+OK"),
        ("LAPSED.CANCEL Mail@send", "*1\r\n$7\r\nrunning"),
        ("LAPSED.CANCEL Mail@send", "*1\r\n$7\r\nrunning"),
        ("GET Mail@send", "$-1"),
    ];
    for inside in [false, true] {
        due_now(&server, "Mail@send").await;
        let claim = claim(&mut wire).await;
        assert_eq!(wire.says("SET Mail@send b PXAT 1900000000000").await, "+OK");
        for line in ["DBSIZE", "SCAN 0 MATCH Mail*"] {
            let said = wire.says(line).await;
            assert!(said == ":1" || said.contains("Mail@send"), "{line}: {said}");
        }
        match inside {
            false => {
                for (line, reply) in replies {
                    assert_eq!(wire.says(line).await, reply, "{line}");
                }
            }
            true => {
                let lines: String = replies
                    .iter()
                    .map(|(line, _)| format!("{line}\r\n"))
                    .collect();
                let said = wire.says(&format!("MULTI\r\n{lines}EXEC")).await;
                let queued = "+QUEUED\r\n".repeat(replies.len());
                let replied: Vec<&str> = replies.iter().map(|(_, reply)| *reply).collect();
                let (count, replied) = (replies.len(), replied.join("\r\n"));
                assert_eq!(said, format!("+OK\r\n{queued}*{count}\r\n{replied}"));
            }
        }
        assert_eq!(wire.says("DBSIZE").await, ":0");
        let done = wire.says(&format!("LAPSED.DONE {claim}")).await;
        assert!(done.starts_with("-FENCED "), "{done}");
        assert_eq!(state(&server, "Mail@send").await, State::Cancelled);
    }
}

#[tokio::test]
async fn a_value_for_the_due_time_of_a_run_is_another_task_and_the_same_one_is_not() {
    let server = RespServer::working(MAIL);
    let mut wire = server.connect().await;
    let now = server.tasks.clock_now().0;
    let set = |value: &str| format!("SET Mail@send {value} PXAT {now}");
    assert_eq!(wire.says(&set("a")).await, "+OK");
    let first = claim(&mut wire).await;
    // Its reply was lost, as it were.
    assert_eq!(wire.says(&set("a")).await, "+OK");
    assert_eq!(wire.says(&format!("LAPSED.DONE {first}")).await, "+OK");
    assert_eq!(wire.says(&set("a")).await, "+OK");
    assert_eq!(state(&server, "Mail@send").await, State::Done);
    assert_eq!(wire.says(&set("b")).await, "+OK");
    let taken = wire.says("LAPSED.TAKE mail BLOCK 60000").await;
    assert!(taken.contains("$1\r\nb\r\n"), "{taken}");
    assert_eq!(wire.says(&set("c")).await, "+OK");
    let second = claims(&taken).remove(0);
    let done = wire.says(&format!("LAPSED.DONE {second}")).await;
    assert_eq!(state(&server, "Mail@send").await, State::Pending, "{done}");
    assert_eq!(wire.says("GET Mail@send").await, "$1\r\nc");
}

#[tokio::test]
async fn wrong_commands_are_refused() {
    let server = RespServer::working(MAIL);
    let mut wire = server.connect().await;
    for (line, error) in [
        (
            "LAPSED.TAKE",
            "ERR wrong number of arguments for 'lapsed.take' command",
        ),
        ("LAPSED.TAKE post", "ERR no route has a pull queue `post`"),
        ("LAPSED.TAKE mail COUNT", "ERR syntax error"),
        (
            "LAPSED.TAKE mail COUNT x",
            "ERR value is not an integer or out of range",
        ),
        (
            "LAPSED.TAKE mail COUNT 0",
            "ERR expected a count of 1 to 512, found 0",
        ),
        (
            "LAPSED.TAKE mail COUNT -1",
            "ERR expected a count of 1 to 512, found 0",
        ),
        ("LAPSED.TAKE mail BLOCK -1", "ERR timeout is negative"),
        ("LAPSED.TAKE mail GENTLY 1", "ERR syntax error"),
        (
            "LAPSED.DONE 1-2-3",
            "ERR not a claim token: expected the text that came with the task",
        ),
        ("LAPSED.DONE x RESULT", "ERR syntax error"),
        ("LAPSED.FAIL x why MAYBE", "ERR syntax error"),
        ("LAPSED.FAIL x why RETRYAFTER -1", "ERR delay is negative"),
        (
            "LAPSED.TAKE mail BLOCK 5s",
            "ERR value is not an integer or out of range, expected milliseconds: 30000 for 30 seconds",
        ),
        (
            "LAPSED.SNOOZE x soon",
            "ERR value is not an integer or out of range, expected milliseconds: 30000 for 30 seconds",
        ),
    ] {
        assert_eq!(wire.says(line).await, format!("-{error}"), "{line}");
    }
    let idle = RespServer::open();
    assert_eq!(
        idle.says("LAPSED.TAKE mail").await,
        "-ERR no engine runs in this process"
    );
    let said = wire.says("MULTI\r\nLAPSED.TAKE mail\r\nDISCARD").await;
    let refused = "-ERR 'lapsed.take' is not allowed between MULTI and EXEC";
    assert_eq!(said, format!("+OK\r\n{refused}\r\n+OK"));
}

#[tokio::test]
async fn a_pipeline_of_reports_is_answered_in_order() {
    let server = RespServer::working(MAIL);
    let mut wire = server.connect().await;
    for n in 0..5 {
        due_now(&server, &format!("Mail@send@{n}")).await;
    }
    let mut taken = Vec::new();
    while taken.len() < 5 {
        taken.extend(claims(
            &wire.says("LAPSED.TAKE mail COUNT 5 BLOCK 60000").await,
        ));
    }
    let lines = [
        format!("LAPSED.DONE {}", taken[0]),
        "SETEX Mail@later 1000 1".to_owned(),
        format!("LAPSED.DONE {}", taken[1]),
        "LAPSED.DONE nonsense".to_owned(),
        "NOSUCH".to_owned(),
        format!("LAPSED.RENEW {} {}", taken[2], taken[3]),
        format!("LAPSED.FAIL {} why PERMANENT", taken[2]),
        format!("LAPSED.SNOOZE {} 1000000", taken[3]),
        "TTL Mail@later".to_owned(),
        format!("LAPSED.RELEASE {}", taken[4]),
    ];
    let said = wire.says(&lines.join("\r\n")).await;
    let replies: Vec<&str> = said
        .split("\r\n")
        .map(|line| line.split(' ').next().unwrap())
        .collect();
    assert_eq!(
        replies,
        [
            "+OK", "+OK", "+OK", "-ERR", "-ERR", "*2", ":1", ":1", "+OK", "+OK", ":1000", "+OK"
        ],
        "{said}"
    );
}

#[tokio::test]
async fn a_user_of_some_classes_reports_about_no_others() {
    let hash = lapsed_server::resp::hash_password(b"secret").unwrap();
    let server = RespServer::working(&format!(
        "password = '{hash}'\n[[resp.users]]\nname = 'shop'\npassword = '{hash}'\nclasses = ['Order']\n{MAIL}"
    ));
    let mut wire = server.connect().await;
    assert_eq!(wire.says("AUTH secret").await, "+OK");
    due_now(&server, "Mail@send").await;
    let claim = claim(&mut wire).await;
    let mut shop = server.connect().await;
    assert_eq!(shop.says("AUTH shop secret").await, "+OK");
    let refused = "-NOPERM this caller may touch tasks of `Order` only";
    for report in [
        format!("LAPSED.DONE {claim}"),
        format!("LAPSED.FAIL {claim} no PERMANENT"),
        format!("LAPSED.SNOOZE {claim} 1000"),
        format!("LAPSED.RELEASE {claim}"),
        format!("LAPSED.RENEW {claim}"),
    ] {
        assert_eq!(shop.says(&report).await, refused, "{report}");
    }
    assert_eq!(state(&server, "Mail@send").await, State::Running);
    assert_eq!(wire.says(&format!("LAPSED.DONE {claim}")).await, "+OK");
}

#[tokio::test]
async fn a_worker_reports_its_progress_with_a_renewal() {
    let server = RespServer::working(MAIL);
    let mut wire = server.connect().await;
    due_now(&server, "Mail@send").await;
    let claim = claim(&mut wire).await;
    let shown = async || {
        let found = server
            .tasks
            .find(TaskKey::parse("Mail@send").unwrap())
            .await;
        let progress = found.unwrap().unwrap().progress;
        progress.map_or_else(String::new, |progress| progress.to_string())
    };
    for (options, expected) in [
        ("", ""),
        ("PROGRESS 0", "0 %"),
        ("PROGRESS 40 TEXT 'row 4 of 10'", "40 %, row 4 of 10"),
        ("", "40 %, row 4 of 10"),
        ("progress 100 text ''", "100 %"),
    ] {
        let said = wire.says(&format!("LAPSED.RENEW {claim} {options}")).await;
        assert_eq!((said.as_str(), shown().await.as_str()), ("+OK", expected));
    }
    for (line, expected) in [
        (
            format!("LAPSED.RENEW {claim} PROGRESS 101"),
            "-ERR expected a percentage from 0 to 100, found 101",
        ),
        (
            format!("LAPSED.RENEW {claim} PROGRESS -1 TEXT x"),
            "-ERR expected a percentage from 0 to 100, found -1",
        ),
        (
            format!("LAPSED.RENEW {claim} PROGRESS 4.5"),
            "-ERR value is not an integer or out of range",
        ),
        (
            format!("LAPSED.RENEW {claim} {claim} PROGRESS 4"),
            "-ERR expected one claim with PROGRESS",
        ),
        (
            format!("LAPSED.RENEW {claim} PROGRESS"),
            "-ERR syntax error",
        ),
        (
            format!("LAPSED.RENEW {claim} PROGRESS 4 x"),
            "-ERR syntax error",
        ),
        (
            format!("LAPSED.RENEW {claim} PROGRESS 4 TEXT"),
            "-ERR syntax error",
        ),
        (
            format!("LAPSED.RENEW {claim} PROGRESS 4 TEXT x y"),
            "-ERR syntax error",
        ),
        (
            format!("LAPSED.RENEW {claim} PROGRESS 4 LINE x"),
            "-ERR syntax error",
        ),
        ("LAPSED.RENEW PROGRESS 4".to_owned(), "-ERR syntax error"),
    ] {
        assert_eq!(wire.says(&line).await, expected, "{line}");
        assert_eq!(shown().await, "100 %", "{line}");
    }
    assert_eq!(wire.says(&format!("LAPSED.DONE {claim}")).await, "+OK");
    assert_eq!(shown().await, "");
}

/// No arming begins twice. One that has not begun is the same if it is set again.
#[tokio::test]
async fn a_key_that_is_set_for_the_due_time_of_its_run_is_another_task() {
    let server = RespServer::working(MAIL);
    let mut wire = server.connect().await;
    let due = wall().0 + 30;
    let set = |value: &str, due: i64| format!("SET Mail@send@7 {value} PXAT {due}");
    assert_eq!(wire.says(&set("first", due)).await, "+OK");
    let claimed = claim(&mut wire).await;
    let behind = due + 1;
    for (value, at) in [("second", due), ("third", behind)] {
        assert_eq!(wire.says(&set(value, at)).await, "+OK");
        let expires = wire.says("PEXPIRETIME Mail@send@7").await;
        assert_eq!(expires, format!(":{behind}"), "{value}");
    }
    assert_eq!(wire.says("GET Mail@send@7").await, "$5\r\nthird");
    let done = wire.says(&format!("LAPSED.DONE {claimed}")).await;
    assert!(done.starts_with("-FENCED"), "{done}");
    let again = wire.says("LAPSED.TAKE mail BLOCK 60000").await;
    assert!(again.contains("third"), "{again}");
}

//! Commands that create, move and cancel tasks.

use super::rig::RespServer;

#[tokio::test]
async fn a_setex_is_a_task_with_its_value_as_payload() {
    let server = RespServer::open();
    let mut wire = server.connect().await;
    assert_eq!(
        wire.says("SETEX Order@close@42 1800 '{\"a\": 1.10}'").await,
        "+OK"
    );
    assert_eq!(wire.says("TTL Order@close@42").await, ":1800");
    assert_eq!(
        wire.says("GET Order@close@42").await,
        "$11\r\n{\"a\": 1.10}"
    );
    let task = server.tasks.find("Order@close@42").await.unwrap().unwrap();
    assert_eq!(task.payload.as_deref(), Some("{\"a\": 1.10}"));
    assert_eq!(wire.says("DEL Order@close@42").await, ":1");
    assert_eq!(wire.says("DEL Order@close@42").await, ":0");
    assert_eq!(wire.says("TTL Order@close@42").await, ":-2");
}

/// Commands on one connection, and the replies of Redis 7.
async fn all_say(said: &[(&str, &str)]) {
    let server = RespServer::open();
    let mut wire = server.connect().await;
    for (line, reply) in said {
        assert_eq!(wire.says(line).await, *reply, "{line}");
    }
}

#[tokio::test]
async fn a_task_that_is_created_and_moved_in_one_transaction_is_due_at_the_later_word() {
    let server = RespServer::open();
    let mut wire = server.connect().await;
    wire.send("MULTI\r\nSETEX C@m 100 v\r\nEXPIRE C@m 50\r\nEXEC\r\n")
        .await;
    wire.read_until("*2\r\n+OK\r\n:1\r\n").await;
    assert_eq!(wire.says("TTL C@m").await, ":50");
    assert_eq!(wire.says("GET C@m").await, "$1\r\nv");
}

#[tokio::test]
async fn set_takes_the_options_of_redis() {
    all_say(&[
        ("SET C@m v EX 100", "+OK"),
        ("SET C@m w EX 100 NX", "$-1"),
        ("SET C@m w NX GET EX 100", "$1\r\nv"),
        ("GET C@m", "$1\r\nv"),
        ("SET C@m w XX GET PX 50000", "$1\r\nv"),
        ("TTL C@m", ":50"),
        ("SET C@m x KEEPTTL", "+OK"),
        ("GET C@m", "$1\r\nx"),
        ("TTL C@m", ":50"),
        ("SET C@other v XX EX 10", "$-1"),
        ("SET C@other v GET EX 10", "$-1"),
        ("EXISTS C@m C@other C@m nothing", ":3"),
        ("TYPE C@m", "+string"),
        ("TYPE C@none", "+none"),
        (
            "SET C@m v EX 0",
            "-ERR invalid expire time in 'set' command",
        ),
        ("SET C@m v EX 10 PX 10", "-ERR syntax error"),
        ("SET C@m v NX XX EX 10", "-ERR syntax error"),
        ("SET C@m v EX", "-ERR syntax error"),
        (
            "SET C@m v EX abc",
            "-ERR value is not an integer or out of range",
        ),
        (
            "SETEX C@m 9223372036854775 v",
            "-ERR invalid expire time in 'setex' command",
        ),
        (
            "SETEX C@m 1",
            "-ERR wrong number of arguments for 'setex' command",
        ),
    ])
    .await;
}

#[tokio::test]
async fn due_times_move_as_expiries_do() {
    all_say(&[
        ("SETEX C@m 100 v", "+OK"),
        ("EXPIRE C@m 50 GT", ":0"),
        ("EXPIRE C@m 50 LT", ":1"),
        ("TTL C@m", ":50"),
        ("EXPIRE C@m 60 NX", ":0"),
        ("PEXPIRE C@m 60000 XX", ":1"),
        ("GET C@m", "$1\r\nv"),
        ("PEXPIREAT C@m 4000000000000", "-ERR invalid expire time in 'pexpireat' command: due time is too far ahead, expected at most 10 years (3650 days) from now"),
        ("EXPIRE C@m 10 NX XX", "-ERR NX and XX, GT or LT options at the same time are not compatible"),
        ("EXPIRE C@m 10 GT LT", "-ERR GT and LT options at the same time are not compatible"),
        ("EXPIRE C@m 10 foo", "-ERR Unsupported option foo"),
        ("EXPIRE C@none 10", ":0"),
        ("EXPIRE C@m -1", ":1"),
        ("EXISTS C@m", ":0"),
        ("EXPIRETIME C@m", ":-2"),
        ("SETEX C@m 100 v", "+OK"),
        ("PERSIST C@m", ":1"),
        ("PERSIST C@m", ":0"),
    ])
    .await;
}

#[tokio::test]
async fn the_same_due_time_with_another_value_is_another_task() {
    all_say(&[
        ("SET C@m a PXAT 1900000000000", "+OK"),
        ("SET C@m b PXAT 1900000000000", "+OK"),
        ("GET C@m", "$1\r\nb"),
        ("PEXPIRETIME C@m", ":1900000000000"),
        ("EXPIRETIME C@m", ":1900000000"),
    ])
    .await;
}

#[tokio::test]
async fn a_relative_due_time_that_a_task_has_already_stores_the_value() {
    const KEYS: i64 = 100;
    let server = RespServer::open();
    let mut wire = server.connect().await;
    for attempt in 0.. {
        let now = server.tasks.clock_now().0;
        let key = |n: i64| format!("C@m@{attempt}@{n}");
        let absolute = |n| format!("SET {} a PXAT {}\r\n", key(n), now + 60_000 + n);
        let relative = |n| format!("PSETEX {} 60000 b\r\n", key(n));
        let all: String = (0..KEYS)
            .map(absolute)
            .chain((0..KEYS).map(relative))
            .collect();
        wire.send(all).await;
        wire.read_until(&"+OK\r\n".repeat(2 * KEYS as usize)).await;
        let mut met = false;
        for n in 0..KEYS {
            let due = wire.says(&format!("PEXPIRETIME {}", key(n))).await;
            met |= due == format!(":{}", now + 60_000 + n);
            let value = wire.says(&format!("GET {}", key(n))).await;
            assert_eq!(value, "$1\r\nb", "{due}");
        }
        if met {
            return;
        }
        assert!(attempt < 50, "none of the due times was met");
    }
}

#[tokio::test]
async fn a_transaction_answers_all_or_nothing() {
    let server = RespServer::open();
    let mut wire = server.connect().await;
    for line in [
        "MULTI",
        "SETEX C@one 100 a",
        "GET C@one",
        "DEL C@one",
        "SETEX C@two 100 b",
        "SET C@two c EX abc",
    ] {
        wire.send(format!("{line}\r\n")).await;
    }
    wire.read_until("+QUEUED\r\n+QUEUED\r\n+QUEUED\r\n+QUEUED\r\n+QUEUED\r\n")
        .await;
    wire.send("EXEC\r\n").await;
    let replies =
        "*5\r\n+OK\r\n$1\r\na\r\n:1\r\n+OK\r\n-ERR value is not an integer or out of range\r\n";
    assert_eq!(wire.read_until("range\r\n").await, replies);
    assert_eq!(wire.says("EXISTS C@one C@two").await, ":1");
}

#[tokio::test]
async fn a_broken_or_discarded_transaction_changes_nothing() {
    all_say(&[
        ("EXEC", "-ERR EXEC without MULTI"),
        ("DISCARD", "-ERR DISCARD without MULTI"),
    ])
    .await;
    let server = RespServer::open();
    let mut wire = server.connect().await;
    wire.send("MULTI\r\nSETEX C@one 100 a\r\nnothing\r\nEXEC\r\n")
        .await;
    let end = "-EXECABORT Transaction discarded because of previous errors.\r\n";
    let said = wire.read_until(end).await;
    assert!(
        said.starts_with("+OK\r\n+QUEUED\r\n-ERR unknown command 'nothing'"),
        "{said}"
    );
    wire.send("MULTI\r\nSETEX C@one 100 a\r\nDISCARD\r\n").await;
    wire.read_until("+QUEUED\r\n+OK\r\n").await;
    assert_eq!(wire.says("EXISTS C@one").await, ":0");
}

#[tokio::test]
async fn commands_about_the_connection_are_queued_as_in_redis() {
    let server = RespServer::open();
    let mut wire = server.connect().await;
    wire.send("MULTI\r\nCOMMAND COUNT\r\nCLIENT SETNAME one\r\nSETEX C@m 100 a\r\nCLIENT GETNAME\r\nEXEC\r\n")
        .await;
    let said = wire.read_until("$3\r\none\r\n").await;
    let (queued, replies) = said.split_once("*4\r\n:").expect("four replies");
    assert_eq!(queued, "+OK\r\n".to_owned() + &"+QUEUED\r\n".repeat(4));
    assert!(
        replies.ends_with("\r\n+OK\r\n+OK\r\n$3\r\none\r\n"),
        "{replies}"
    );
    wire.send("MULTI\r\nCLIENT SETNAME two\r\nDISCARD\r\n")
        .await;
    wire.read_until("+QUEUED\r\n+OK\r\n").await;
    assert_eq!(wire.says("CLIENT GETNAME").await, "$3\r\none");
    for wrong in [
        "CLIENT NOSUCH",
        "CLIENT SETNAME",
        "COMMAND NOSUCH",
        "CONFIG GET",
        "EXEC x",
    ] {
        wire.send(format!("MULTI\r\nSETEX C@other 100 a\r\n{wrong}\r\n"))
            .await;
        if wrong != "EXEC x" {
            wire.send("EXEC\r\n").await;
        }
        wire.send("PING\r\n").await;
        let said = wire.read_until("+PONG\r\n").await;
        assert!(
            said.contains("-EXECABORT Transaction discarded because of"),
            "{said}"
        );
        assert_eq!(wire.says("EXISTS C@other").await, ":0", "{wrong}");
    }
}

#[tokio::test]
async fn a_watched_task_that_changed_prevents_the_transaction() {
    let server = RespServer::open();
    let mut wire = server.connect().await;
    assert_eq!(wire.says("WATCH C@m").await, "+OK");
    assert_eq!(server.says("SETEX C@m 100 other").await, "+OK");
    wire.send("MULTI\r\nSETEX C@m 10 mine\r\nEXEC\r\n").await;
    assert_eq!(
        wire.read_until("*-1\r\n").await,
        "+OK\r\n+QUEUED\r\n*-1\r\n"
    );
    assert_eq!(wire.says("GET C@m").await, "$5\r\nother");
    wire.send("WATCH C@m\r\nMULTI\r\nSETEX C@m 10 mine\r\nEXEC\r\n")
        .await;
    wire.read_until("*1\r\n+OK\r\n").await;
    assert_eq!(wire.says("GET C@m").await, "$4\r\nmine");
}

#[tokio::test]
async fn a_pipeline_is_answered_in_order() {
    let server = RespServer::open();
    let wire = server.connect().await;
    let mut sent = String::new();
    let mut expected = String::new();
    for n in 0..3_000 {
        sent += &format!("SETEX C@m@{} 100 {n}\r\nGET C@m@{0}\r\n", n % 7);
        let n = n.to_string();
        expected += &format!("+OK\r\n${}\r\n{n}\r\n", n.len());
        if n.ends_with('5') {
            sent += "PING\r\nnothing\r\nDEL C@m@1 C@none\r\nEXISTS C@m@1\r\n";
            expected += "+PONG\r\n-ERR unknown command 'nothing', with args beginning with: \r\n:1\r\n:0\r\n";
            sent += "SETEX C@m@1 50 again\r\n";
            expected += "+OK\r\n";
        }
    }
    sent += "ECHO end\r\n";
    expected += "$3\r\nend\r\n";
    let (mut reader, mut writer) = wire.0.into_split();
    let writing = tokio::spawn(async move {
        tokio::io::AsyncWriteExt::write_all(&mut writer, sent.as_bytes())
            .await
            .unwrap();
        writer
    });
    let mut read = vec![0; expected.len()];
    tokio::io::AsyncReadExt::read_exact(&mut reader, &mut read)
        .await
        .unwrap();
    assert!(String::from_utf8(read).unwrap() == expected);
    writing.await.unwrap();
}

#[tokio::test]
async fn commands_that_do_not_schedule_are_rejected_with_a_reason() {
    let server = RespServer::open();
    let store = "-ERR a key is a task here and needs a due time, expected EX, PX, EXAT or PXAT: this is a scheduler, not a store";
    for (line, reply) in [
        ("SET C@m v", store),
        ("SET C@m v KEEPTTL", store),
        ("SETNX C@m v", store),
        (
            "SETEX nokey 10 v",
            "-ERR key has no `@`, expected `Class@method` and then any `@argument`",
        ),
        (
            "INCR C@m",
            "-ERR unknown command 'INCR', with args beginning with: 'C@m' ",
        ),
        (
            "SETEX C@m 10 '{\"$lapsed\":1}'",
            "-ERR payload has a top-level member `$lapsed`, which is reserved: expected another name",
        ),
        (
            "SETEX C@m 10 \"\\xff\"",
            "-ERR value is not UTF-8, expected JSON or text: it is the payload of a task",
        ),
        ("GET nokey", "$-1"),
        ("DEL nokey", ":0"),
    ] {
        assert_eq!(server.says(line).await, reply, "{line}");
    }
}

#[tokio::test]
async fn a_task_is_scheduled_with_all_its_options() {
    let server = RespServer::open();
    let mut wire = server.connect().await;
    let asked = "LAPSED.SCHEDULE C@m AT 1900000000000 TAG shop PAYLOAD '{\"a\":1}' MAXATTEMPTS 3";
    assert_eq!(wire.says(asked).await, ":1900000000000");
    let task = server.tasks.find("C@m").await.unwrap().unwrap();
    assert_eq!(
        (task.tag.as_deref(), task.max_attempts),
        (Some("shop"), Some(3))
    );
    for (line, reply) in [
        ("LAPSED.SCHEDULE C@m IN 5 IFPENDING KEEP", ":1900000000000"),
        ("LAPSED.SCHEDULE C@m IN 5 IFPENDING REFUSE", "$-1"),
        (
            "LAPSED.SCHEDULE C@m AT 1900000000001 IFPENDING MOVE",
            ":1900000000001",
        ),
        ("LAPSED.SCHEDULE C@m IN 5 IN 6", "-ERR syntax error"),
        (
            "LAPSED.SCHEDULE C@m IN 5m",
            "-ERR value is not an integer or out of range, expected milliseconds: 30000 for 30 seconds",
        ),
        (
            "LAPSED.SCHEDULE C@m TAG a",
            "-ERR expected IN, AT, EVERY or CRON",
        ),
        (
            "LAPSED.SCHEDULE C@m IN 5 PAYLOAD no",
            "-ERR payload is not JSON: expected ident at line 1 column 2",
        ),
        ("LAPSED.SCHEDULE C@m IN 5 IFDEAD WAIT", "-ERR syntax error"),
        (
            "LAPSED.SCHEDULE C@m IN 5 AFTERTAG a IFDEAD no",
            "-ERR syntax error",
        ),
        (
            "LAPSED.SCHEDULE C@m IN 5 TAG a AFTERTAG a",
            "-ERR the task has the tag `a` itself and would wait for itself, expected another tag",
        ),
        (
            "LAPSED.SCHEDULE C@m EVERY 60000 AFTERTAG a",
            "-ERR `after` is for a task that runs once, and this one recurs",
        ),
        (
            "LAPSED.SCHEDULE C@after AT 1900000000000 AFTERTAG shop IFDEAD IGNORE",
            ":1900000000000",
        ),
        (
            "LAPSED.CANCEL C@m C@none C@m",
            "*3\r\n$9\r\ncancelled\r\n$-1\r\n$-1",
        ),
        ("LAPSED.SHOW C@none", "$-1"),
    ] {
        assert_eq!(wire.says(line).await, reply, "{line}");
    }
    let after = server.tasks.find("C@after").await.unwrap().unwrap().after;
    assert_eq!(
        after.map(|after| after.summary()).as_deref(),
        Some("all tasks with tag shop, done or dead")
    );
    let every = wire.says("LAPSED.SCHEDULE C@every EVERY 60000").await;
    assert!(every.starts_with(":1"), "{every}");
    let shown = wire.says("LAPSED.SHOW C@every").await;
    assert!(shown.contains("\"recurrence\":{"), "{shown}");
    let cron = wire
        .says("LAPSED.SCHEDULE C@cron CRON '0 9 * * *' TZ Europe/Berlin")
        .await;
    assert!(cron.starts_with(':'), "{cron}");
}

#[tokio::test]
async fn only_the_clock_of_dev_can_be_set() {
    let server = RespServer::with("");
    let mut wire = server.connect().await;
    let refused = "-ERR only `lapsed dev` has a clock that can be set: this daemon follows that of its ledger";
    assert_eq!(wire.says("LAPSED.ADVANCE 1000").await, refused);
    let invalid = "-ERR invalid expire time in 'lapsed.advance' command";
    assert_eq!(wire.says("LAPSED.ADVANCE 0").await, invalid);
    assert_eq!(wire.says("LAPSED.ADVANCE -5").await, invalid);
}

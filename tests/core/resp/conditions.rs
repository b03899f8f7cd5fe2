//! Conditions on values, `DELEX` and `MSETEX`: those of Redis 8.4, `IFEQ` also of Valkey 8.1.

use super::rig::RespServer;

/// Commands on one connection, and the replies of Redis 8.4.
async fn all_say(said: &[(&str, &str)]) {
    let server = RespServer::open();
    let mut wire = server.connect().await;
    for (line, reply) in said {
        assert_eq!(wire.says(line).await, *reply, "{line}");
    }
}

/// The XXH3 digests of `hello` and of an empty text.
const HELLO: &str = "9555e8555c62dcfd";
const EMPTY: &str = "2d06800538d394c2";

#[tokio::test]
async fn set_depends_on_the_value() {
    all_say(&[
        ("SET C@m b EX 100 IFEQ a", "$-1"),
        ("SET C@m b EX 100 IFEQ a GET", "$-1"),
        ("EXISTS C@m", ":0"),
        ("SET C@m a EX 100 IFNE x", "+OK"),
        ("SET C@m b EX 200 IFEQ x", "$-1"),
        ("SET C@m b EX 200 IFEQ x GET", "$1\r\na"),
        ("SET C@m b EX 200 IFNE a", "$-1"),
        ("TTL C@m", ":100"),
        ("SET C@m b IFEQ a KEEPTTL", "+OK"),
        ("GET C@m", "$1\r\nb"),
        ("TTL C@m", ":100"),
        ("SET C@m c EX 200 ifeq x IFEQ b GET", "$1\r\nb"),
        ("TTL C@m", ":200"),
        ("SET C@m '{\"a\": 1}' EX 200 IFNE b", "+OK"),
        ("SET C@m '' EX 200 IFEQ '{\"a\":1}'", "$-1"),
        ("SET C@m '' EX 200 IFEQ '{\"a\": 1}'", "+OK"),
        ("SET C@m a EX 200 IFNE ''", "$-1"),
        ("SET C@m a EX 200 IFEQ ''", "+OK"),
        ("SET C@m b IFEQ a", "-ERR a key is a task here and needs a due time, expected EX, PX, EXAT or PXAT: this is a scheduler, not a store"),
        ("SET C@m b EX 100 IFEQ", "-ERR syntax error"),
        ("SET C@m b EX 100 IFEQ a XX", "-ERR syntax error"),
        ("SET C@m b EX 100 NX IFEQ a", "-ERR syntax error"),
        ("SET C@m b EX 100 IFEQ a IFNE b", "-ERR syntax error"),
        ("GET C@m", "$1\r\na"),
    ])
    .await;
}

#[tokio::test]
async fn a_key_is_deleted_if_its_value_is_the_expected_one() {
    all_say(&[
        ("DELEX C@m", ":0"),
        ("DELEX C@m IFEQ a", ":0"),
        ("DELEX C@m IFNE a", ":0"),
        ("SET C@m a EX 100", "+OK"),
        ("DELEX C@m IFEQ b", ":0"),
        ("DELEX C@m IFNE a", ":0"),
        ("EXISTS C@m", ":1"),
        ("DELEX C@m ifeq a", ":1"),
        ("EXISTS C@m", ":0"),
        ("SET C@m a EX 100", "+OK"),
        ("DELEX C@m IFNE b", ":1"),
        ("SET C@m a EX 100", "+OK"),
        (
            "DELEX C@m IFEQ",
            "-ERR wrong number of arguments for 'delex' command",
        ),
        (
            "DELEX C@m IFEQ a b",
            "-ERR wrong number of arguments for 'delex' command",
        ),
        (
            "DELEX C@m XX a",
            "-ERR Invalid condition. Use IFEQ, IFNE, IFDEQ, or IFDNE",
        ),
        ("DELEX C@m", ":1"),
        ("DELEX no-task IFEQ a", ":0"),
    ])
    .await;
}

#[tokio::test]
async fn a_value_is_compared_by_its_digest() {
    let wrong = "-ERR the digest of `IFDEQ` must be exactly 16 hexadecimal characters";
    let upper = HELLO.to_uppercase();
    all_say(&[
        ("DIGEST C@m", "$-1"),
        ("DIGEST no-task", "$-1"),
        (
            "DIGEST",
            "-ERR wrong number of arguments for 'digest' command",
        ),
        ("SET C@m hello EX 100", "+OK"),
        ("DIGEST C@m", &format!("$16\r\n{HELLO}")),
        // Its digest begins with a zero.
        ("SET C@zero v8 EX 100", "+OK"),
        ("DIGEST C@zero", "$16\r\n0cc76dbb41381419"),
        (&format!("SET C@m x EX 100 IFDEQ {EMPTY}"), "$-1"),
        (&format!("SET C@m x EX 100 IFDNE {HELLO}"), "$-1"),
        (&format!("SET C@m '' EX 100 IFDEQ {upper}"), "+OK"),
        (&format!("SET C@none x EX 100 IFDEQ {HELLO}"), "$-1"),
        (&format!("SET C@none x EX 100 IFDNE {HELLO}"), "+OK"),
        (&format!("DELEX C@m IFDEQ {HELLO}"), ":0"),
        (&format!("DELEX C@m IFDEQ {EMPTY}"), ":1"),
        (&format!("DELEX C@none IFDNE {HELLO}"), ":1"),
        ("DELEX C@m IFDEQ 1", wrong),
        ("SET C@m x EX 100 IFDEQ +123456789abcdef", wrong),
    ])
    .await;
}

#[tokio::test]
async fn several_tasks_are_written_or_none() {
    let needs = "-ERR a key is a task here and needs a due time, expected EX, PX, EXAT or PXAT: this is a scheduler, not a store";
    let numkeys = "-ERR invalid numkeys value";
    let pairs = "-ERR wrong number of key-value pairs";
    all_say(&[
        ("MSETEX 2 C@a 1 C@b 2 EX 100", ":1"),
        ("GET C@b", "$1\r\n2"),
        ("TTL C@a", ":100"),
        ("MSETEX 2 C@c 3 C@b 3 NX EX 200", ":0"),
        ("EXISTS C@c", ":0"),
        ("MSETEX 2 C@c 3 C@b 3 XX EX 200", ":0"),
        ("MSETEX 2 C@c 3 C@b 3 KEEPTTL", needs),
        ("GET C@b", "$1\r\n2"),
        ("MSETEX 2 C@a 4 C@b 4 XX KEEPTTL", ":1"),
        ("GET C@b", "$1\r\n4"),
        ("TTL C@b", ":100"),
        ("MSETEX 2 C@c 5 C@d 5 PXAT 1900000000000 nx", ":1"),
        ("PEXPIRETIME C@d", ":1900000000000"),
        ("MSETEX 2 C@e 1 C@e 2 PX 90000 NX", ":1"),
        ("GET C@e", "$1\r\n2"),
        ("MSETEX 1 C@f 1 EXAT 1900000000", ":1"),
        ("MSETEX 1 C@g 1", needs),
        ("MSETEX 0 C@g 1 EX 100", numkeys),
        ("MSETEX -1 C@g 1 EX 100", numkeys),
        ("MSETEX one C@g 1 EX 100", numkeys),
        ("MSETEX 9223372036854775807 C@g 1 EX 100", numkeys),
        ("MSETEX 2147483647 C@g 1 EX 100", pairs),
        ("MSETEX 3 C@g 1 C@h 1", pairs),
        ("MSETEX 1 C@g 1 C@h 1 EX 100", "-ERR syntax error"),
        ("MSETEX 1 C@g 1 EX 100 GET", "-ERR syntax error"),
        ("MSETEX 1 C@g 1 EX 100 IFEQ 1", "-ERR syntax error"),
        ("MSETEX 1 C@g 1 EX 100 NX XX", "-ERR syntax error"),
        (
            "MSETEX 1 C@g 1 EX 0",
            "-ERR invalid expire time in 'msetex' command",
        ),
        (
            "MSETEX 1 C@g",
            "-ERR wrong number of arguments for 'msetex' command",
        ),
        (
            "MSETEX 2 C@g 1 nokey 1 EX 100",
            "-ERR key has no `@`, expected `Class@method` and then any `@argument`",
        ),
        ("EXISTS C@g C@h", ":0"),
        (
            "COMMAND GETKEYS MSETEX 2 C@g 1 C@h 2 EX 100",
            "*2\r\n$3\r\nC@g\r\n$3\r\nC@h",
        ),
        ("COMMAND GETKEYS MSETEX 9 C@g 1", "*1\r\n$3\r\nC@g"),
    ])
    .await;
}

#[tokio::test]
async fn conditions_hold_in_a_transaction_as_of_its_own_commands() {
    let server = RespServer::open();
    let mut wire = server.connect().await;
    wire.send("MULTI\r\nMSETEX 2 C@a 1 C@b 1 EX 100\r\nSET C@a 2 EX 100 IFEQ 1\r\nDELEX C@b IFEQ 2\r\nDELEX C@a IFEQ 2\r\nEXEC\r\n")
        .await;
    let replies = wire.read_until("*4\r\n:1\r\n+OK\r\n:0\r\n:1\r\n").await;
    assert!(replies.starts_with("+OK\r\n+QUEUED\r\n"), "{replies}");
    assert_eq!(wire.says("EXISTS C@a C@b").await, ":1");
}

#[tokio::test]
async fn a_prefix_is_taken_off_each_key_of_a_counted_list() {
    let server = RespServer::with("[redis]\nkey_prefix = 'app_'");
    let mut wire = server.connect().await;
    let set = "MSETEX 2 app_C@a app_1 app_C@b 2 EX 100";
    assert_eq!(wire.says(set).await, ":1");
    assert_eq!(wire.says("GET app_C@a").await, "$5\r\napp_1");
    assert_eq!(wire.says("EXISTS C@a C@b").await, ":2");
}

//! Claims that are valid no more.

use lapsed::task::State;

use super::rig::RespServer;
use super::workers::{MAIL, claim, due_now, state};

#[tokio::test]
async fn done_is_answered_only_by_a_claim_that_was_not_settled_otherwise() {
    let server = RespServer::working(MAIL);
    let mut wire = server.connect().await;
    let reports = ["FAIL", "SNOOZE", "RELEASE", "DONE"];
    let said = |report: &str, claim: &str| match report {
        "FAIL" => format!("LAPSED.FAIL {claim} no RETRYAFTER 60000"),
        "SNOOZE" => format!("LAPSED.SNOOZE {claim} 60000"),
        report => format!("LAPSED.{report} {claim}"),
    };
    for first in reports {
        let key = format!("Mail@send@{first}");
        due_now(&server, &key).await;
        let claim = claim(&mut wire).await;
        for _ in 0..2 {
            assert_eq!(wire.says(&said(first, &claim)).await, "+OK", "{first}");
        }
        for second in reports.into_iter().filter(|second| *second != first) {
            let answer = wire.says(&said(second, &claim)).await;
            assert!(
                answer.starts_with("-FENCED "),
                "{second} after {first}: {answer}"
            );
        }
        // Not in the way of the next ones.
        wire.says(&format!("DEL {key}")).await;
    }
}

#[tokio::test]
async fn a_key_that_is_set_while_its_task_runs_exists_until_it_is_deleted() {
    let server = RespServer::working(MAIL);
    let mut wire = server.connect().await;
    due_now(&server, "Mail@send").await;
    let claim = claim(&mut wire).await;
    for (line, reply) in [
        ("EXISTS Mail@send", ":0"),
        ("SETEX Mail@send 100 v", "+OK"),
        ("EXISTS Mail@send", ":1"),
        ("GET Mail@send", "$1\r\nv"),
        ("TTL Mail@send", ":100"),
        ("DEL Mail@send", ":1"),
        ("EXISTS Mail@send", ":0"),
        ("TTL Mail@send", ":-2"),
        ("DEL Mail@send", ":0"),
        ("LAPSED.CANCEL Mail@send", "*1\r\n$7\r\nrunning"),
    ] {
        assert_eq!(wire.says(line).await, reply, "{line}");
    }
    wire.says(&format!("LAPSED.DONE {claim}")).await;
    assert_eq!(state(&server, "Mail@send").await, State::Cancelled);
}

#[tokio::test]
async fn a_lost_claim_is_fenced() {
    let server = RespServer::working(&MAIL.replace("10s", "1s"));
    let mut wire = server.connect().await;
    due_now(&server, "Mail@send").await;
    let first = claim(&mut wire).await;
    let second = claim(&mut wire).await;
    for line in [
        format!("LAPSED.DONE {first}"),
        format!("LAPSED.FAIL {first} x"),
        format!("LAPSED.SNOOZE {first} 1"),
        format!("LAPSED.RELEASE {first}"),
        format!("LAPSED.RENEW {first}"),
        format!("LAPSED.RENEW {first} PROGRESS 40"),
    ] {
        let said = wire.says(&line).await;
        assert!(said.starts_with("-FENCED claim was lost"), "{line}: {said}");
    }
    let both = wire.says(&format!("LAPSED.RENEW {first} {second}")).await;
    assert_eq!(both, "*2\r\n:0\r\n:1");
    assert_eq!(wire.says(&format!("LAPSED.DONE {second}")).await, "+OK");
}

#[tokio::test]
async fn a_changed_token_is_fenced_and_changes_nothing() {
    let server = RespServer::working(MAIL);
    let other = RespServer::working(MAIL);
    let mut wire = server.connect().await;
    due_now(&server, "Mail@send@1").await;
    due_now(&other, "Mail@send@1").await;
    let good = claim(&mut wire).await;
    let foreign = claim(&mut other.connect().await).await;
    let (fence, rest) = good.split_once('.').unwrap();
    let (_, of_other) = foreign.split_once('.').unwrap();
    let last = if good.ends_with('A') { "B" } else { "A" };
    let forged = [
        format!("{}{last}", &good[..good.len() - 1]),
        format!("9{good}"),
        format!("{fence}.{of_other}"),
        format!("{fence}.x{rest}"),
        format!("{fence}."),
        fence.to_owned(),
        foreign,
    ];
    for forged in &forged {
        for report in [
            format!("LAPSED.DONE {forged}"),
            format!("LAPSED.FAIL {forged} why PERMANENT"),
            format!("LAPSED.SNOOZE {forged} 1000"),
            format!("LAPSED.RELEASE {forged}"),
            format!("LAPSED.RENEW {forged}"),
        ] {
            let answer = wire.says(&report).await;
            assert!(answer.starts_with("-FENCED "), "{report}: {answer}");
        }
    }
    let renewed = wire
        .says(&format!("LAPSED.RENEW {} {good}", forged[0]))
        .await;
    assert_eq!(renewed, "*2\r\n:0\r\n:1");
    assert_eq!(state(&server, "Mail@send@1").await, State::Running);
    assert_eq!(wire.says(&format!("LAPSED.DONE {good}")).await, "+OK");
    assert_eq!(state(&server, "Mail@send@1").await, State::Done);
}

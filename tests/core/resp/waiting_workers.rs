//! Workers that wait for a task.

use std::time::Duration;

use lapsed::TaskKey;
use lapsed::task::State;
use tokio::time::{Instant, sleep, timeout};

use super::rig::RespServer;
use super::workers::{MAIL, claim, claims, due_now};
use crate::support::wait::{DEADLINE, until};

#[tokio::test]
async fn a_worker_that_disconnects_while_it_waits_loses_nothing() {
    let server = RespServer::working(MAIL);
    for _ in 0..20 {
        let mut gone = server.connect().await;
        gone.send("LAPSED.TAKE mail COUNT 10 BLOCK 0\r\n").await;
        sleep(Duration::from_millis(5)).await;
    }
    let mut wire = server.connect().await;
    // What is handed over before the other side's end is noticed waits for the end of its lease.
    until("the connections are closed", async || {
        server
            .says("INFO clients")
            .await
            .contains("connected_clients:2\r\n")
    })
    .await;
    due_now(&server, "Mail@send").await;
    let claim = timeout(Duration::from_secs(8), claim(&mut wire)).await;
    let claim = claim.expect("before a lease could end");
    assert_eq!(wire.says(&format!("LAPSED.DONE {claim}")).await, "+OK");
    let key = TaskKey::parse("Mail@send").unwrap();
    let task = server.tasks.find(key).await.unwrap().unwrap();
    assert_eq!(
        (task.state, task.attempt, task.crashes),
        (State::Done, 1, 0)
    );
}

#[tokio::test(start_paused = true)]
async fn a_take_is_answered_after_a_minute_at_the_latest() {
    let server = RespServer::working(MAIL);
    for block in ["0", "3600000"] {
        let mut wire = server.connect().await;
        let begun = Instant::now();
        assert_eq!(
            wire.says(&format!("LAPSED.TAKE mail BLOCK {block}")).await,
            "*0"
        );
        let took = begun.elapsed();
        assert!((60..62).contains(&took.as_secs()), "{took:?}");
    }
}

/// The three ask first and never again, as workers that lost their power: neither a byte nor the end of the connection comes.
#[tokio::test]
async fn workers_lost_while_waiting_take_no_task_from_live_ones() {
    let server = RespServer::working(&MAIL.replace("10s", "1s"));
    let mut vanished = Vec::new();
    for _ in 0..3 {
        let mut wire = server.connect().await;
        wire.send("LAPSED.TAKE mail BLOCK 0\r\n").await;
        vanished.push(wire);
    }
    until("they wait", async || server.waiting() == 3).await;
    let mut living = server.connect().await;
    living.send("LAPSED.TAKE mail BLOCK 0\r\n").await;
    until("it waits, too", async || server.waiting() == 4).await;
    due_now(&server, "Mail@send").await;
    let said = timeout(Duration::from_secs(30), async {
        let mut said = String::new();
        while claims(&said).is_empty() {
            said += &living.read_until("\r\n").await;
        }
        said
    })
    .await
    .expect("the living worker gets it");
    let claim = claims(&said).remove(0);
    living.send(format!("LAPSED.DONE {claim}\r\n")).await;
    living.read_until("+OK\r\n").await;
    let key = TaskKey::parse("Mail@send").unwrap();
    let task = server.tasks.find(key).await.unwrap().unwrap();
    assert_eq!((task.state, task.crashes), (State::Done, 1));
}

#[tokio::test]
async fn a_waiting_worker_is_answered_and_does_not_keep_others_waiting() {
    let server = RespServer::working(MAIL);
    let mut waiting = Vec::new();
    for _ in 0..50 {
        let mut wire = server.connect().await;
        wire.send("LAPSED.TAKE mail BLOCK 0\r\nPING\r\n").await;
        waiting.push(wire);
    }
    assert_eq!(server.says("PING").await, "+PONG");
    for n in 0..50 {
        due_now(&server, &format!("Mail@send@{n}")).await;
    }
    for wire in &mut waiting {
        let said = timeout(DEADLINE, wire.read_until("+PONG\r\n")).await;
        assert_eq!(
            claims(&said.unwrap()).len(),
            1,
            "one task, then what was pipelined"
        );
    }
}

//! SIGTERM while clients are in the middle of something.

use std::time::Duration;

use lapsed::task::State;
use rustix::process::Signal;
use serde_json::{Value, json};
use tokio::time::Instant;

use super::raw::{Answer, Raw, ask};
use crate::support::process::Process;
use crate::support::rig::Rig;
use crate::support::tasks::create_many;
use crate::support::wait::until;

const ROUTES: &str = "[[routes]]\nmatch = '^Mail@send'\npull = { queue = 'mail', visibility = '10m' }\n\
     [[routes]]\nmatch = '^Job@die'\nexec = ['false']\nretry = { max_attempts = 1 }\n";

const DEAD: i64 = 60;

/// `TimeoutStopSec` of dist/lapsed.service: systemd kills the daemon then.
const KILLED_AFTER: Duration = Duration::from_secs(40);

async fn listen(rig: &Rig) -> (Process, String) {
    let daemon = Process::listen(rig, &[("LAPSED__HTTP__LISTEN", "127.0.0.1:0")]);
    let address = daemon.address("http").await.to_string();
    until("it is ready", async || {
        ask(&address, "GET", "/readyz", None).await.status == 200
    })
    .await;
    (daemon, address)
}

async fn post(address: &str, path: &str, body: Value) -> Answer {
    ask(address, "POST", path, Some(body)).await
}

/// Takes a task of the queue `mail`, and returns its claim.
async fn take(address: &str) -> String {
    let taken = post(address, "/v1/queues/mail/take", json!({"wait": "50s"})).await;
    let claim = taken.json()["tasks"][0]["claim"]
        .as_str()
        .map(str::to_owned);
    claim.unwrap_or_else(|| panic!("{taken:?}"))
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn sigterm_ends_every_response_and_leaves_no_change_half_done() {
    let rig = Rig::new(ROUTES).await;
    let (mut daemon, address) = listen(&rig).await;
    let made = post(
        &address,
        "/v1/tasks",
        json!({"key": "Mail@send@1", "in": "0ms"}),
    )
    .await;
    assert_eq!(made.status, 201, "{made:?}");
    let claim = take(&address).await;
    create_many(&rig.client().await.into(), "Job@die@", DEAD, 0, 0).await;
    let dead = "SELECT COUNT(*) FROM tb_time_limit_task WHERE status = 2";
    until("all are dead", async || rig.number(dead).await == DEAD).await;
    post(&address, "/v1/pauses", json!({"class": "Job"})).await;

    let mut streams = Vec::new();
    for _ in 0..3 {
        let mut stream = Raw::send(&address, "GET", "/v1/events", None).await;
        stream.until("event: changed").await;
        streams.push(stream);
    }
    let deaf = Raw::send(&address, "GET", "/v1/events", None).await;
    let waits = json!({"wait": "50s", "worker": "w-waits"});
    let waiting = Raw::send(&address, "POST", "/v1/queues/mail/take", Some(waits)).await;
    until("the worker waits", async || {
        let queues = ask(&address, "GET", "/queues", None).await;
        queues.body.contains("w-waits")
    })
    .await;
    // It would take 60 s.
    let slow = json!({"class": "Job", "rate": 1});
    let mut bulk = Raw::send(&address, "POST", "/v1/redrive", Some(slow)).await;
    bulk.until("\"done\":false").await;
    let mut half_body = Raw::connect(&address).await;
    let head = "PUT /v1/tasks/Order@close@1 HTTP/1.1\r\nhost: localhost\r\ncontent-type: application/json\r\n\
         content-length: 100\r\n\r\n{\"in\": \"1h\"}";
    half_body.write(head).await;
    let mut half_head = Raw::connect(&address).await;
    half_head.write("GET /v1/tasks HTTP/1.1\r\nho").await;
    let mut idle = Raw::connect(&address).await;
    idle.write("GET /healthz HTTP/1.1\r\nhost: localhost\r\n\r\n")
        .await;
    idle.until("ok\n").await;

    let stopped = Instant::now();
    daemon.signal(Signal::TERM);
    let status = daemon.until_ended().await;
    assert_eq!(status.code(), Some(0), "{}", daemon.log());
    assert!(stopped.elapsed() < KILLED_AFTER, "{:?}", stopped.elapsed());

    for stream in streams {
        let answer = stream.answer().await;
        assert_eq!(answer.status, 200);
        assert!(answer.body.ends_with("\n\n"), "{answer:?}");
    }
    drop(deaf);
    let nothing = waiting.answer().await;
    assert_eq!(
        (nothing.status, nothing.json()),
        (200, json!({"tasks": []}))
    );
    let refused = half_body.answer().await;
    assert_eq!(
        (refused.status, &refused.json()["type"]),
        (503, &json!("/problems/stopping"))
    );
    assert_eq!(half_head.rest().await, "");
    assert!(idle.rest().await.ends_with("\r\n\r\nok\n"));
    let bulk = bulk.answer().await;
    let last: Value = serde_json::from_str(bulk.body.lines().last().unwrap()).unwrap();
    assert_eq!(
        (&last["done"], &last["problem"]["type"]),
        (&json!(true), &json!("/problems/stopping")),
        "{bulk:?}"
    );
    let left = rig.number(dead).await;
    assert_eq!(last["tasks"], DEAD - left);
    let audited = "SELECT COUNT(*) FROM tb_time_limit_task_documents WHERE collection = 'audit' AND body LIKE '%redrive%'";
    assert_eq!(rig.number(audited).await, 1);

    // What was taken is still the worker's, and any daemon takes its report.
    assert_eq!(rig.state("Mail@send@1").await, State::Running);
    let (_next, address) = listen(&rig).await;
    let absent = ask(&address, "GET", "/v1/tasks/Order@close@1", None).await;
    assert_eq!(absent.status, 404);
    let path = format!("/v1/claims/{claim}/done");
    assert_eq!(ask(&address, "POST", &path, None).await.status, 204);
    assert_eq!(rig.state("Mail@send@1").await, State::Done);
}

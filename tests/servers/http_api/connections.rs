//! Limits of connections and requests, probes, and pages of problems.

use serde_json::json;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::TcpStream;

use super::rig::Api;
use crate::support::wait::until;

/// What the server answers to these bytes before it closes the connection.
async fn raw(api: &Api, bytes: &[u8]) -> String {
    let mut connection = TcpStream::connect(api.address()).await.unwrap();
    // The server may refuse before it has read everything.
    let _ = connection.write_all(bytes).await;
    let mut answer = Vec::new();
    let _ = connection.read_to_end(&mut answer).await;
    String::from_utf8_lossy(&answer).into_owned()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn requests_beyond_the_limits_are_refused() {
    let api = Api::start().await;
    let many: String = (0..200).map(|n| format!("x-{n}: y\r\n")).collect();
    let answer = raw(
        &api,
        format!("GET /healthz HTTP/1.1\r\nhost: localhost\r\nconnection: close\r\n{many}\r\n")
            .as_bytes(),
    )
    .await;
    assert!(answer.starts_with("HTTP/1.1 431"), "{answer}");
    for (bytes, status) in [(60 << 10, "200"), (66 << 10, "431")] {
        let long = "y".repeat(bytes / 10 - "x-0: \r\n".len());
        let long: String = (0..10).map(|n| format!("x-{n}: {long}\r\n")).collect();
        let head = "GET /healthz HTTP/1.1\r\nhost: localhost\r\nconnection: close\r\n";
        let answer = raw(&api, format!("{head}{long}\r\n").as_bytes()).await;
        assert!(
            answer.starts_with(&format!("HTTP/1.1 {status}")),
            "{answer}"
        );
    }
    let answer = raw(&api, b"NOT HTTP\r\n\r\n").await;
    assert!(answer.starts_with("HTTP/1.1 400"), "{answer}");
    let head = "POST /v1/tasks HTTP/1.1\r\nhost: localhost\r\nconnection: close\r\ncontent-type: application/json\r\ncontent-length: 3000000\r\n\r\n";
    let answer = raw(&api, head.as_bytes()).await;
    assert!(answer.starts_with("HTTP/1.1 413"), "{answer}");
    assert!(answer.contains("/problems/too-large"), "{answer}");
    assert_eq!(api.get("/healthz").await.text, "ok\n");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_body_that_ends_early_changes_nothing() {
    let api = Api::start().await;
    let head = "PUT /v1/tasks/Order@close@1 HTTP/1.1\r\nhost: localhost\r\nconnection: close\r\ncontent-type: application/json\r\ncontent-length: 100\r\n\r\n{\"in\":\"1h\"}";
    let mut gone = TcpStream::connect(api.address()).await.unwrap();
    gone.write_all(head.as_bytes()).await.unwrap();
    drop(gone);
    api.create("Order@close@2", "1h").await;
    api.get("/v1/tasks/Order@close@1")
        .await
        .is_problem(404, "no-task");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn readiness_says_in_sentences_what_is_wrong() {
    let api = Api::start().await;
    until("it is ready", async || {
        api.get("/readyz").await.status == 200
    })
    .await;
    assert_eq!(api.get("/readyz").await.json()["reasons"], json!([]));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn each_kind_of_problem_has_a_page() {
    let api = Api::start().await;
    let page = api.get("/problems/no-task").await;
    assert!(
        page.text.starts_with("there is no such task\n"),
        "{}",
        page.text
    );
    assert_eq!(api.get("/problems/nothing").await.status, 404);
    let description = api.get("/openapi.json").await.json();
    assert!(description["paths"]["/v1/tasks/{key}"]["put"].is_object());
}

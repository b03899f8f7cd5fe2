//! Server-sent events.

use reqwest::Response;
use serde_json::json;
use tokio::time::timeout;

use super::rig::Api;
use crate::support::wait::DEADLINE;

/// The text of the stream until it contains this.
async fn until_heard(stream: &mut Response, text: &str) -> String {
    let mut heard = String::new();
    let hears = async {
        while !heard.contains(text) {
            let chunk = stream.chunk().await.unwrap().expect("the stream goes on");
            heard += std::str::from_utf8(&chunk).unwrap();
        }
    };
    let in_time = timeout(DEADLINE, hears).await;
    assert!(in_time.is_ok(), "heard `{heard}`, expected `{text}`");
    heard
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_client_hears_that_something_has_changed_and_what() {
    let api = Api::start().await;
    let mut stream = api.request("GET", "/v1/events").send().await.unwrap();
    assert_eq!(stream.headers()["content-type"], "text/event-stream");
    let first = until_heard(&mut stream, "\n\n").await;
    assert!(first.contains("event: changed\n"), "{first}");
    assert!(
        first.contains(r#"data: ["stats","tasks","pauses","workers","audit"]"#),
        "{first}"
    );
    api.create("Job@run@1", "0ms").await;
    until_heard(&mut stream, r#""tasks""#).await;
    api.send("POST", "/v1/pauses", json!({"class": "Job"}))
        .await;
    until_heard(&mut stream, r#""pauses""#).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_client_hears_of_workers_that_come_take_and_leave() {
    let api = Api::start().await;
    let mut stream = api.request("GET", "/v1/events").send().await.unwrap();
    until_heard(&mut stream, "\n\n").await;
    // Without tasks: the worker only comes and leaves.
    let path = "/v1/queues/mail/take";
    api.send("POST", path, json!({"worker": "w-1"})).await;
    until_heard(&mut stream, r#""workers""#).await;
    api.create("Mail@send@1", "0ms").await;
    let taken = json!({"worker": "w-1", "wait": "20s"});
    let taken = api.send("POST", path, taken).await;
    assert_eq!(taken.json()["tasks"].as_array().unwrap().len(), 1);
    until_heard(&mut stream, r#""workers""#).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn streams_end_when_the_daemon_stops() {
    let api = Api::start().await;
    let mut stream = api.request("GET", "/v1/events").send().await.unwrap();
    until_heard(&mut stream, "\n\n").await;
    api.stop().await;
    let end = async { while stream.chunk().await.unwrap().is_some() {} };
    timeout(DEADLINE, end).await.expect("the stream ends");
}

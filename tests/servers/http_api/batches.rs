//! Batches.

use serde_json::json;

use super::rig::{Answer, Api, json as with_json};

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn each_line_is_answered_and_a_bad_one_does_not_stop_the_others() {
    let api = Api::start().await;
    let lines = [
        r#"{"key":"Order@close@1","at":"2035-01-01T00:00:00Z"}"#,
        r#"{"key":"Order","in":"1s"}"#,
        "",
        "no json",
        r#"{"key":"Report@daily","every":"1h"}"#,
        r#"{"key":"Order@close@1","in":"1h","if_pending":"refuse"}"#,
    ]
    .join("\r\n");
    let send = async || {
        let request = api.request("POST", "/v1/tasks/batch");
        let request = request.header("content-type", "application/x-ndjson");
        Answer::of(request.body(lines.clone())).await
    };
    let made = send().await;
    assert_eq!(made.header("content-type"), "application/x-ndjson");
    let statuses = |answer: &Answer| -> Vec<_> {
        let lines = answer.lines();
        let line = |line: &serde_json::Value| (line["line"].as_u64(), line["status"].as_u64());
        lines.iter().map(line).collect()
    };
    let of = |statuses: [u64; 5]| -> Vec<_> {
        (1..)
            .zip(statuses)
            .map(|(line, status)| (Some(line), Some(status)))
            .collect()
    };
    assert_eq!(
        statuses(&made),
        of([201, 400, 400, 201, 409]),
        "{}",
        made.text
    );
    assert_eq!(made.lines()[4]["problem"]["type"], "/problems/exists");
    assert_eq!(
        statuses(&send().await),
        of([200, 400, 400, 200, 409]),
        "repeated"
    );
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_batch_has_at_most_a_thousand_tasks() {
    let api = Api::start().await;
    let tasks = |count: usize| {
        let task = |n| json!({"key": format!("Order@close@{n}"), "in": "1h"});
        json!((0..count).map(task).collect::<Vec<_>>())
    };
    let most = api.send("POST", "/v1/tasks/batch", tasks(1_000)).await;
    assert_eq!(most.lines().len(), 1_000);
    assert!(most.lines().iter().all(|line| line["status"] == 201));
    for bad in [tasks(1_001), tasks(0), json!({"key": "O@c"})] {
        api.send("POST", "/v1/tasks/batch", bad)
            .await
            .is_problem(400, "invalid");
    }
    // What is too many is counted, and not kept.
    for (kind, body) in [
        ("application/json", format!("[0{}]", ",0".repeat(99_999))),
        ("application/x-ndjson", "0\n".repeat(100_000)),
    ] {
        let request = api.request("POST", "/v1/tasks/batch");
        let request = request.header("content-type", kind).body(body);
        let refused = Answer::of(request).await;
        refused.is_problem(400, "invalid");
        assert!(
            refused
                .text
                .contains("found 100000 tasks, expected 1 to 1000"),
            "{}",
            refused.text
        );
    }
    let args = json!({"class": "Order", "method": "close", "in": "1h", "args": vec![""; 300]});
    let refused = api.send("POST", "/v1/tasks", args).await;
    refused.is_problem(400, "invalid");
    assert!(
        refused
            .text
            .contains("`args` has 300 elements, expected at most 256"),
        "{}",
        refused.text
    );
    let text = api.request("POST", "/v1/tasks/batch").body("{}");
    Answer::of(text).await.is_problem(415, "unsupported-type");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_batch_with_a_key_is_carried_out_once() {
    let api = Api::start().await;
    let send = async |key: &str, body: serde_json::Value| {
        let request = api.request("POST", "/v1/tasks/batch");
        Answer::of(with_json(request.header("idempotency-key", key), &body)).await
    };
    let body = || json!([{"key": "Order@close", "in": "1h", "unique": true}, {"key": "no"}]);
    let first = send("k-1", body()).await;
    assert_eq!(first.lines()[0]["status"], 201, "{}", first.text);
    assert!(!first.headers.contains_key("idempotency-replayed"));
    let again = send("k-1", body()).await;
    assert_eq!((again.status.as_u16(), &again.text), (200, &first.text));
    assert_eq!(again.header("idempotency-replayed"), "true");
    assert_eq!(api.get("/v1/stats").await.json()["pending"], 1);

    send("k-1", json!([{"key": "Order@close", "in": "1h"}]))
        .await
        .is_problem(422, "idempotency-key-reused");
    assert_ne!(send("k-2", body()).await.text, first.text);
    send("", body()).await.is_problem(400, "invalid");
    send(&"k".repeat(256), body())
        .await
        .is_problem(400, "invalid");
    send("k-3", json!([])).await.is_problem(400, "invalid");
    assert_eq!(
        send("k-3", body()).await.status,
        200,
        "a refused request does not use its key up"
    );
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn one_of_two_concurrent_requests_with_an_idempotency_key_is_executed() {
    let api = Api::start().await;
    let body = json!([{"key": "Order@close", "in": "1h", "unique": true}]);
    let send = || {
        let request = api.request("POST", "/v1/tasks/batch");
        Answer::of(with_json(request.header("idempotency-key", "k-1"), &body))
    };
    let answers = futures_util::future::join_all((0..8).map(|_| send())).await;
    for answer in &answers {
        assert!(
            [200, 409].contains(&answer.status.as_u16()),
            "{}",
            answer.text
        );
    }
    assert_eq!(api.get("/v1/stats").await.json()["pending"], 1);
}

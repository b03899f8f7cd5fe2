//! Changes of many tasks.

use serde_json::{Value, json};

use super::rig::{Api, json as with_json};
use crate::support::wait::until;

async fn create(api: &Api, count: usize, class: &str, delay: &str) {
    let task = |n| json!({"key": format!("{class}@{n}"), "in": delay, "tag": "t"});
    let tasks = json!((0..count).map(task).collect::<Vec<_>>());
    let made = api.send("POST", "/v1/tasks/batch", tasks).await;
    assert!(
        made.lines().iter().all(|line| line["status"] == 201),
        "{}",
        made.text
    );
}

async fn dead(api: &Api, count: u64) {
    create(api, usize::try_from(count).unwrap(), "Job@die", "0ms").await;
    until(format!("{count} tasks are dead"), async || {
        let page = api.get("/v1/tasks?state=dead&limit=1000").await.json();
        page["tasks"].as_array().unwrap().len() as u64 == count
    })
    .await;
}

/// The last line of the progress.
async fn last(api: &Api, path: &str, body: Value) -> Value {
    let answer = api.send("POST", path, body).await;
    assert_eq!(
        answer.header("content-type"),
        "application/x-ndjson",
        "{}",
        answer.text
    );
    let lines = answer.lines();
    let (last, before) = lines.split_last().unwrap();
    assert!(
        before.iter().all(|line| line["done"] == false),
        "{}",
        answer.text
    );
    assert_eq!(
        (&last["done"], &last["problem"]),
        (&json!(true), &Value::Null)
    );
    last.clone()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn bulk_cancel_cancels_all_matching_tasks_and_a_dry_run_none() {
    let api = Api::start().await;
    create(&api, 700, "Order@close", "1h").await;
    create(&api, 3, "Order@open", "2h").await;
    for filter in [
        json!({"class": "Order", "method": "open"}),
        json!({"prefix": "Order@open", "state": "pending"}),
        json!({"tag": "t", "due_after": "2026-01-01T00:00:00Z", "method": "open"}),
    ] {
        let mut dry = filter.clone();
        dry["dry_run"] = json!(true);
        let would = api.send("POST", "/v1/cancel", dry).await.json();
        assert_eq!(
            (&would["tasks"], &would["dry_run"]),
            (&json!(3), &json!(true)),
            "{filter}"
        );
    }
    let open = json!({"prefix": "Order@open", "state": "pending"});
    assert_eq!(last(&api, "/v1/cancel", open.clone()).await["tasks"], 3);
    assert_eq!(last(&api, "/v1/cancel", open).await["tasks"], 0, "repeated");
    assert_eq!(
        last(&api, "/v1/cancel", json!({"tag": "t"})).await["tasks"],
        700
    );
    let left = api.get("/v1/tasks?state=pending").await.json();
    assert_eq!(left["tasks"], json!([]));
    let audit = api.get("/v1/stats").await;
    assert_eq!(audit.json()["cancelled"], 703);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn dead_tasks_are_redriven_at_a_rate_and_discarded() {
    let api = Api::start().await;
    dead(&api, 20).await;
    let dry = api
        .send(
            "POST",
            "/v1/redrive",
            json!({"class": "Job", "dry_run": true}),
        )
        .await;
    assert_eq!(dry.json()["tasks"], 20);
    let some = json!({"state": "dead", "error": "CANNOT", "limit": 5, "rate": 100});
    assert_eq!(last(&api, "/v1/redrive", some).await["tasks"], 5);
    dead_again(&api, 20).await;
    assert_eq!(
        last(&api, "/v1/discard", json!({"all": true})).await["tasks"],
        20
    );
    assert_eq!(api.get("/v1/tasks").await.json()["tasks"], json!([]));
}

async fn dead_again(api: &Api, count: u64) {
    until("they are dead again", async || {
        api.get("/v1/stats").await.json()["dead"] == count
    })
    .await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_work_ends_when_its_client_leaves() {
    let api = Api::start().await;
    dead(&api, 60).await;
    // A task in 100 ms: it would take 6 s.
    let request = api.request("POST", "/v1/redrive");
    let slow = json!({"class": "Job", "method": "die", "rate": 10});
    api.send("POST", "/v1/pauses", json!({"everything": true}))
        .await;
    let mut response = with_json(request, &slow).send().await.unwrap();
    assert!(response.chunk().await.unwrap().is_some());
    drop(response);
    // The room of the work is free again: the fifth of such works would be refused.
    for _ in 0..8 {
        let request = with_json(api.request("POST", "/v1/redrive"), &slow);
        until("there is room", async || {
            let response = request.try_clone().unwrap().send().await.unwrap();
            response.status() == 200
        })
        .await;
    }
    let dead = api.get("/v1/tasks?state=dead&limit=1000").await.json();
    assert!(
        !dead["tasks"].as_array().unwrap().is_empty(),
        "all were redriven"
    );
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_empty_filter_is_rejected_for_bulk_changes() {
    let api = Api::start().await;
    for (path, body) in [
        ("/v1/cancel", json!({})),
        ("/v1/cancel", json!({"dry_run": true})),
        ("/v1/cancel", json!({"tag": ""})),
        ("/v1/cancel", json!({"state": "pending"})),
        ("/v1/cancel", json!({"class": "A", "state": "dead"})),
        ("/v1/cancel", json!({"class": "A", "rate": 5})),
        ("/v1/cancel", json!({"clas": "A"})),
        ("/v1/redrive", json!({})),
        ("/v1/redrive", json!({"state": "done", "class": "A"})),
        ("/v1/redrive", json!({"class": "A", "all": true})),
        ("/v1/redrive", json!({"class": "A", "rate": 0})),
        ("/v1/redrive", json!({"class": "A", "rate": 100_001})),
        ("/v1/discard", json!({})),
        ("/v1/discard", json!({"class": "A", "rate": 1})),
    ] {
        let answer = api.send("POST", path, body.clone()).await;
        assert_eq!(answer.status, 400, "{path} {body}: {}", answer.text);
        answer.is_problem(400, "invalid");
    }
}

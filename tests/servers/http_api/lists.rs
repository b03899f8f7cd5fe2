//! Lists, page by page.

use serde_json::json;

use super::rig::Api;

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn pages_follow_each_other_without_gaps_and_hold_no_payloads() {
    let api = Api::start().await;
    let tasks: Vec<_> = (0..25)
        .map(
            |n| json!({"key": format!("Order@close@{n:02}"), "in": "1h", "tag": "t", "payload": n}),
        )
        .collect();
    let made = api.send("POST", "/v1/tasks/batch", json!(tasks)).await;
    assert_eq!(made.status, 200, "{}", made.text);
    for filter in [
        "tag=t",
        "prefix=Order%40close%40",
        "state=pending",
        "class=Order&method=close",
    ] {
        let (mut keys, mut cursor) = (Vec::new(), String::new());
        loop {
            let page = api
                .get(&format!("/v1/tasks?{filter}&limit=10{cursor}"))
                .await;
            assert!(!page.text.contains("payload"), "{}", page.text);
            let page = page.json();
            let tasks = page["tasks"].as_array().unwrap().iter();
            keys.extend(tasks.map(|task| task["key"].as_str().unwrap().to_owned()));
            match page["next"].as_str() {
                Some(next) => cursor = format!("&cursor={next}"),
                None => break,
            }
        }
        keys.sort();
        let expected: Vec<String> = (0..25).map(|n| format!("Order@close@{n:02}")).collect();
        assert_eq!(keys, expected, "{filter}");
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn filters_select_and_what_is_no_filter_is_refused() {
    let api = Api::start().await;
    api.create("Order@close@1", "1h").await;
    api.create("Job@die@1", "0ms").await;
    api.until_state("Job@die@1", "dead").await;
    let keys = async |query: &str| {
        let page = api.get(&format!("/v1/tasks?{query}")).await.json();
        let tasks = page["tasks"].as_array().unwrap().iter();
        tasks
            .map(|task| task["key"].as_str().unwrap().to_owned())
            .collect::<Vec<_>>()
    };
    assert_eq!(keys("").await.len(), 2);
    for dead in [
        "state=dead",
        "reason=permanent",
        "error=CANNOT",
        "newer_than=1h",
        "state=dead,done&class=Job",
    ] {
        assert_eq!(keys(dead).await, ["Job@die@1"], "{dead}");
    }
    for pending in [
        "state=pending",
        "due_after=2026-01-01T00:00:00Z&state=pending,running",
    ] {
        assert_eq!(keys(pending).await, ["Order@close@1"], "{pending}");
    }
    assert!(keys("recurring=true").await.is_empty());
    for bad in [
        "sate=dead",
        "state=deaf",
        "class=",
        "limit=0",
        "limit=1001",
        "limit=x",
        "cursor=x",
        "due_before=soon",
        "recurring=maybe",
        "older_than=-1h",
        "class=a&class=b",
    ] {
        api.get(&format!("/v1/tasks?{bad}"))
            .await
            .is_problem(400, "invalid");
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn counts_say_how_many_tasks_there_are() {
    let api = Api::start().await;
    api.create("Order@close@1", "1h").await;
    let stats = api.get("/v1/stats").await.json();
    assert_eq!(
        (&stats["pending"], &stats["at_least"]),
        (&json!(1), &json!([]))
    );
    assert_eq!(stats["methods"][0]["name"], "Order@close");
}

//! Creation, look-up, moves and ends of single tasks.

use serde_json::json;

use super::rig::{Answer, Api, json as with_json};
use crate::support::wait::until;

const AT: &str = "2035-01-01T09:00:00.250Z";

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_task_is_created_shown_moved_and_cancelled() {
    let api = Api::start().await;
    let body = json!({"class": "Order", "method": "close", "args": ["4/2", "ü"], "in": "30m",
                      "payload": {"amount": 1.1, "n": 1}, "tag": "shop-7", "max_attempts": 3});
    let made = api.send("POST", "/v1/tasks", body).await;
    assert_eq!(made.status, 201, "{}", made.text);
    let path = made.header("location").to_owned();
    assert_eq!(path, "/v1/tasks/Order@close@4%2F2@%C3%BC");
    assert_eq!(made.header("etag"), format!("\"{}\"", made.text_of("id")));

    let shown = api.get(&path).await;
    assert_eq!(shown.header("etag"), made.header("etag"));
    let task = shown.json();
    assert_eq!(task["key"], "Order@close@4/2@ü");
    assert_eq!(
        (&task["tag"], &task["max_attempts"]),
        (&json!("shop-7"), &json!(3))
    );
    assert_eq!(task["state"], "pending");
    assert!(
        shown.text.contains(r#"{"amount":1.1,"n":1}"#),
        "{}",
        shown.text
    );

    let moved = api.send("PATCH", &path, json!({"at": AT})).await;
    assert_eq!(
        (moved.status.as_u16(), moved.text_of("due")),
        (200, AT.to_owned())
    );
    let cancelled = api.delete(&path).await;
    assert_eq!(cancelled.json()["outcome"], "cancelled");
    assert_eq!(
        api.delete(&path).await.json()["outcome"],
        "cancelled",
        "repeated"
    );
    assert_eq!(api.get(&path).await.text_of("state"), "cancelled");
    api.send("PATCH", &path, json!({"in": "1h"}))
        .await
        .is_problem(409, "finished");
    api.post(&format!("{path}/run"))
        .await
        .is_problem(409, "finished");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn put_may_be_repeated_and_replaces_what_differs() {
    let api = Api::start().await;
    let path = "/v1/tasks/Order@close@1";
    let put = async |body| api.send("PUT", path, body).await;
    let first = put(json!({"at": AT, "payload": [1], "tag": "a"})).await;
    assert_eq!(first.status, 201);
    let again = put(json!({"at": AT, "payload": [1], "tag": "a"})).await;
    assert_eq!(
        (again.status.as_u16(), again.text_of("id")),
        (200, first.text_of("id"))
    );

    let other = put(json!({"at": AT, "payload": [2], "tag": "a"})).await;
    assert_eq!(
        (other.status.as_u16(), other.text_of("id")),
        (201, first.text_of("id"))
    );
    assert_eq!(api.get(path).await.json()["payload"], json!([2]));
    assert_eq!(
        put(json!({"at": AT, "payload": [2]})).await.status,
        201,
        "no tag"
    );
    assert_eq!(api.get(path).await.json()["tag"], json!(null));

    assert_eq!(api.delete(path).await.status, 200);
    assert_eq!(
        put(json!({"at": AT})).await.status,
        201,
        "a cancelled task begins again"
    );
    assert_eq!(api.state("Order@close@1").await, "pending");
    put(json!({"key": "Order@close@2", "at": AT}))
        .await
        .is_problem(400, "invalid");
    put(json!({"at": AT, "unique": true}))
        .await
        .is_problem(400, "invalid");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn put_does_not_run_an_arming_twice_nor_change_it_while_it_runs() {
    let api = Api::start().await;
    let past = json!({"at": "2026-01-01T00:00:00Z"});
    let done = api.send("PUT", "/v1/tasks/Job@run@1", past.clone()).await;
    assert_eq!(done.status, 201);
    api.until_state("Job@run@1", "done").await;
    let again = api.send("PUT", "/v1/tasks/Job@run@1", past.clone()).await;
    assert_eq!(
        (again.status.as_u16(), again.text_of("state")),
        (200, "done".to_owned())
    );

    api.send("PUT", "/v1/tasks/Job@hang@1", past.clone()).await;
    api.until_state("Job@hang@1", "running").await;
    assert_eq!(
        api.send("PUT", "/v1/tasks/Job@hang@1", past).await.status,
        200
    );
    let other = json!({"at": "2026-01-01T00:00:00Z", "payload": 7});
    api.send("PUT", "/v1/tasks/Job@hang@1", other)
        .await
        .is_problem(409, "running");
    api.send("PATCH", "/v1/tasks/Job@hang@1", json!({"in": "1h"}))
        .await
        .is_problem(409, "running");
    assert_eq!(
        api.delete("/v1/tasks/Job@hang@1").await.json()["outcome"],
        "running"
    );
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_change_with_if_match_is_made_only_to_the_arming_it_names() {
    let api = Api::start().await;
    let path = "/v1/tasks/Order@close@1";
    let old = format!("\"{}\"", api.create("Order@close@1", "30m").await);
    let change = async |method: &str, etag: &str| {
        let request = api.request(method, path).header("if-match", etag);
        let body = json!({"in": "2h"});
        match method {
            "PATCH" => Answer::of(with_json(request, &body)).await,
            _ => Answer::of(request).await,
        }
    };
    let moved = change("PATCH", &old).await;
    assert_eq!(moved.status, 200, "{}", moved.text);
    change("PATCH", &old).await.is_problem(412, "changed");
    change("DELETE", &old).await.is_problem(412, "changed");
    change("DELETE", "nonsense")
        .await
        .is_problem(400, "invalid");
    assert_eq!(api.state("Order@close@1").await, "pending");
    let new = moved.header("etag").to_owned();
    assert_eq!(api.get(path).await.header("etag"), new);
    assert_eq!(change("DELETE", &new).await.status, 200);
    let nothing = api.request("DELETE", "/v1/tasks/Order@close@none");
    let nothing = Answer::of(nothing.header("if-match", &new)).await;
    nothing.is_problem(412, "changed");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_condition_is_refused_where_a_change_cannot_depend_on_it() {
    let api = Api::start().await;
    let path = "/v1/tasks/Order@close@1";
    let id = api.create("Order@close@1", "30m").await;
    for (name, value) in [
        ("if-match", "\"0-0\""),
        ("if-none-match", "*"),
        ("if-unmodified-since", "Mon, 23 Nov 2026 00:00:00 GMT"),
    ] {
        let put = api.request("PUT", path).header(name, value);
        let put = Answer::of(with_json(put, &json!({"in": "2h"}))).await;
        put.is_problem(400, "invalid");
        for act in ["run", "redrive", "discard"] {
            let request = api.request("POST", &format!("{path}/{act}"));
            let answer = Answer::of(request.header(name, value)).await;
            answer.is_problem(400, "invalid");
        }
    }
    assert_eq!(api.get(path).await.text_of("id"), id);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_task_runs_now_and_a_dead_one_is_redriven_and_discarded() {
    let api = Api::start().await;
    api.create("Job@run@1", "1h").await;
    assert_eq!(api.post("/v1/tasks/Job@run@1/run").await.status, 200);
    api.until_state("Job@run@1", "done").await;

    api.create("Job@die@1", "0ms").await;
    api.until_state("Job@die@1", "dead").await;
    let dead = api.get("/v1/tasks/Job@die@1").await.json();
    assert_eq!(
        (&dead["reason"], &dead["last_error"]),
        (
            &json!("permanent"),
            &json!("permanent failure: it cannot work")
        )
    );
    assert_eq!(api.post("/v1/tasks/Job@die@1/redrive").await.status, 200);
    api.until_state("Job@die@1", "dead").await;
    assert_eq!(api.post("/v1/tasks/Job@die@1/discard").await.status, 204);
    api.get("/v1/tasks/Job@die@1")
        .await
        .is_problem(404, "no-task");
    for action in ["run", "redrive", "discard"] {
        let path = format!("/v1/tasks/Job@die@1/{action}");
        api.post(&path).await.is_problem(404, "no-task");
    }
    api.post("/v1/tasks/Job@run@1/redrive")
        .await
        .is_problem(409, "not-dead");
    api.post("/v1/tasks/Job@run@1/discard")
        .await
        .is_problem(409, "not-dead");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn if_pending_moves_keeps_or_refuses_an_existing_task() {
    let api = Api::start().await;
    api.create("Order@close@1", "30m").await;
    let post = async |policy: &str| {
        let body = json!({"key": "Order@close@1", "in": "1h", "if_pending": policy});
        api.send("POST", "/v1/tasks", body).await
    };
    post("refuse").await.is_problem(409, "exists");
    let kept = post("keep").await;
    assert_eq!(
        (kept.status.as_u16(), &kept.json()["kept"]),
        (200, &json!(true))
    );
    assert_eq!(post("move").await.status, 201);
    let recurring =
        json!({"key": "Report@daily", "cron": "0 9 * * Mon-Fri", "tz": "Europe/Berlin"});
    assert_eq!(
        api.send("POST", "/v1/tasks", recurring.clone())
            .await
            .status,
        201
    );
    assert_eq!(
        api.send("PUT", "/v1/tasks/Report@daily", recurring)
            .await
            .status,
        200
    );
    let shown = api.get("/v1/tasks/Report@daily").await.json();
    assert_eq!(shown["occurrences"].as_array().unwrap().len(), 3);
    assert!(shown.get("latest_occurrence").is_none(), "none has ended");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_recurring_task_states_what_became_of_its_latest_occurrence() {
    let api = Api::start().await;
    for (key, outcome) in [
        ("Job@run", json!({"outcome": "succeeded"})),
        (
            "Job@die",
            json!({"outcome": "failed", "reason": "permanent", "error": "permanent failure: it cannot work"}),
        ),
    ] {
        let series = json!({"key": key, "every": "1h", "in": "0s"});
        let made = api.send("POST", "/v1/tasks", series).await.json();
        let path = format!("/v1/tasks/{key}");
        until(format!("an occurrence of `{key}` has ended"), async || {
            api.get(&path).await.json()["due"] != made["due"]
        })
        .await;
        let mut expected = outcome;
        expected["due"] = made["due"].clone();
        let single = api.get(&path).await.json();
        assert_eq!(single["latest_occurrence"], expected);
        assert_eq!(single["reason"], json!(null), "it is not dead");
        let listed = api.get("/v1/tasks?recurring=true&prefix=Job@").await.json();
        let mut listed = listed["tasks"].as_array().unwrap().iter();
        let row = listed.find(|task| task["key"] == key).unwrap();
        assert_eq!(row["latest_occurrence"], expected);
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_invalid_request_is_rejected_with_the_expected_form() {
    let api = Api::start().await;
    let refused = async |body: serde_json::Value| {
        let answer = api.send("POST", "/v1/tasks", body).await;
        answer.is_problem(400, "invalid");
        answer.problem().2
    };
    assert_eq!(
        refused(json!({"key": "Order@close@1"})).await,
        "expected `in` or `at`, or `every` or `cron` for a recurring task"
    );
    assert_eq!(
        refused(json!({"key": "Order@close@1", "in": "30"})).await,
        "`30` is not a delay, expected a number with a unit such as `1500ms`, `30s`, `30m` or `1h 30m`"
    );
    for body in [
        json!({"in": "1s"}),
        json!({"key": "Order", "in": "1s"}),
        json!({"key": "O@c", "class": "O", "in": "1s"}),
        json!({"key": "O@c", "in": "1s", "at": AT}),
        json!({"key": "O@c", "in": "1s", "tz": "UTC"}),
        json!({"key": "O@c", "in": "1s", "max_attempts": 0}),
        json!({"key": "O@c", "in": "1s", "if_pending": "maybe"}),
        json!({"key": "O@c", "in": "1s", "payload": {"$lapsed": 1}}),
        json!({"key": "O@c", "in": "1s", "pay_load": 1}),
        json!({"key": "O@c", "in": "1s", "payload": "x".repeat(65 * 1024)}),
        json!(["no", "object"]),
    ] {
        refused(body).await;
    }
    let text = api.request("POST", "/v1/tasks").body("{}");
    Answer::of(text).await.is_problem(415, "unsupported-type");
    let broken = api
        .request("POST", "/v1/tasks")
        .header("content-type", "application/json");
    Answer::of(broken.body("{\"key\":"))
        .await
        .is_problem(400, "invalid");
    api.get("/v1/tasks/Order").await.is_problem(400, "invalid");
    api.get("/v1/nothing").await.is_problem(404, "not-found");
    api.post("/v1/stats")
        .await
        .is_problem(405, "method-not-allowed");
}

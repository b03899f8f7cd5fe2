//! What callers may do: each endpoint requires its scope, and the class of each task.

use serde_json::{Value, json};

use super::rig::{Answer, Api, json as with_json};

/// SHA-256 of `read-token`, `work-token`, `shop-token`, `post-token`, `office-token`.
const CLIENTS: &str = "
[[http.clients]]
name = 'reader'
token_sha256 = '{read}'
scopes = ['read']

[[http.clients]]
name = 'worker'
token_sha256 = '{work}'
scopes = ['work']

[[http.clients]]
name = 'shop'
token_sha256 = '{shop}'
scopes = ['read', 'schedule', 'operate']
classes = ['Order']

[[http.clients]]
name = 'postman'
token_sha256 = '{post}'
scopes = ['schedule', 'work']
classes = ['Mail@sendOwn']

[[http.clients]]
name = 'office'
token_sha256 = '{office}'
scopes = ['schedule', 'work']
";

async fn start() -> Api {
    let hash = |token: &str| {
        use sha2::Digest as _;
        let digest = sha2::Sha256::digest(token.as_bytes());
        digest
            .iter()
            .map(|byte| format!("{byte:02x}"))
            .collect::<String>()
    };
    let clients = CLIENTS
        .replace("{read}", &hash("read-token"))
        .replace("{work}", &hash("work-token"))
        .replace("{shop}", &hash("shop-token"))
        .replace("{post}", &hash("post-token"))
        .replace("{office}", &hash("office-token"));
    Api::start_with(&clients).await
}

async fn send(api: &Api, token: &str, method: &str, path: &str, body: &Value) -> Answer {
    let request = api.request(method, path);
    let request = request.header("authorization", format!("Bearer {token}"));
    match method {
        "GET" | "DELETE" => Answer::of(request).await,
        _ => Answer::of(with_json(request, body)).await,
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn each_endpoint_requires_its_scope() {
    let api = start().await;
    let due = json!({"in": "1h"});
    let task = "/v1/tasks/Order@close@1";
    for (method, path, body) in [
        (
            "POST",
            "/v1/tasks",
            json!({"key": "Order@close@1", "in": "1h"}),
        ),
        ("PUT", task, due.clone()),
        ("PATCH", task, due.clone()),
        ("DELETE", task, Value::Null),
        ("POST", "/v1/tasks/Order@close@1/run", json!({})),
        ("POST", "/v1/tasks/Order@close@1/redrive", json!({})),
        ("POST", "/v1/tasks/Order@close@1/discard", json!({})),
        (
            "POST",
            "/v1/tasks/batch",
            json!([{"key": "Order@close@1", "in": "1h"}]),
        ),
        ("POST", "/v1/cancel", json!({"class": "Order"})),
        ("POST", "/v1/redrive", json!({"class": "Order"})),
        ("POST", "/v1/discard", json!({"class": "Order"})),
        ("POST", "/v1/queues/mail/take", json!({})),
        ("POST", "/v1/pauses", json!({"class": "Order"})),
        ("DELETE", "/v1/pauses?class=Order", Value::Null),
    ] {
        let answer = send(&api, "read-token", method, path, &body).await;
        answer.is_problem(403, "forbidden");
        let answer = send(&api, "another", method, path, &body).await;
        answer.is_problem(401, "unauthenticated");
    }
    for path in [task, "/v1/tasks", "/v1/stats", "/v1/pauses", "/v1/events"] {
        let answer = send(&api, "work-token", "GET", path, &Value::Null).await;
        answer.is_problem(403, "forbidden");
    }
    assert_eq!(
        send(&api, "read-token", "GET", "/v1/stats", &Value::Null)
            .await
            .status,
        200
    );
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_caller_of_a_class_touches_no_other() {
    let api = start().await;
    let put = async |key: &str| {
        let path = format!("/v1/tasks/{key}");
        send(&api, "shop-token", "PUT", &path, &json!({"in": "1h"})).await
    };
    assert_eq!(put("Order@close@1").await.status, 201);
    put("Mail@send@1").await.is_problem(403, "forbidden");
    let lines = json!([{"key": "Order@close@2", "in": "1h"}, {"key": "Mail@send@1", "in": "1h"}]);
    let batch = send(&api, "shop-token", "POST", "/v1/tasks/batch", &lines).await;
    let statuses: Vec<_> = batch
        .lines()
        .iter()
        .map(|line| line["status"].as_u64())
        .collect();
    assert_eq!(statuses, [Some(201), Some(403)]);
    for filter in [
        json!({"tag": "t"}),
        json!({"class": "Mail"}),
        json!({"prefix": "Mail@"}),
        json!({"prefix": "Or"}),
    ] {
        let answer = send(&api, "shop-token", "POST", "/v1/cancel", &filter).await;
        answer.is_problem(403, "forbidden");
    }
    let all = json!({"everything": true});
    send(&api, "shop-token", "POST", "/v1/pauses", &all)
        .await
        .is_problem(403, "forbidden");
    let own = json!({"class": "Order", "dry_run": true});
    let would = send(&api, "shop-token", "POST", "/v1/cancel", &own).await;
    assert_eq!(would.json()["tasks"], 2);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_worker_of_a_class_gets_its_tasks_of_a_queue_and_leaves_the_others() {
    let api = start().await;
    let take = async |token: &str, count: u32| {
        let asked = json!({"count": count, "wait": "2s"});
        let answer = send(&api, token, "POST", "/v1/queues/mail/take", &asked).await;
        assert_eq!(answer.status, 200, "{}", answer.text);
        let tasks = answer.json()["tasks"].as_array().unwrap().clone();
        let keys = tasks.iter().map(|task| task["key"].as_str().unwrap());
        keys.map(str::to_owned).collect::<Vec<_>>()
    };
    let other = "Mail@sendOther@1";
    for key in [other, "Mail@sendOwn@1"] {
        let path = format!("/v1/tasks/{key}");
        let put = send(&api, "office-token", "PUT", &path, &json!({"in": "0ms"})).await;
        assert_eq!(put.status, 201);
    }
    assert_eq!(take("post-token", 1).await, ["Mail@sendOwn@1"]);
    assert_eq!(take("post-token", 10).await, [""; 0]);
    assert_eq!(take("office-token", 10).await, [other]);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_claim_is_settled_only_by_a_caller_of_its_class_and_with_the_scope_of_workers() {
    let api = start().await;
    let path = "/v1/tasks/Mail@sendOther@1";
    let put = send(&api, "office-token", "PUT", path, &json!({"in": "0ms"})).await;
    assert_eq!(put.status, 201);
    let asked = json!({"wait": "20s"});
    let taken = send(&api, "office-token", "POST", "/v1/queues/mail/take", &asked).await;
    let claim = taken.json()["tasks"][0]["claim"]
        .as_str()
        .unwrap()
        .to_owned();
    let report = async |token: &str, verb: &str, body: &Value| {
        let path = format!("/v1/claims/{claim}/{verb}");
        send(&api, token, "POST", &path, body).await
    };
    for (verb, body) in [
        ("done", json!({})),
        ("fail", json!({"error": "x"})),
        ("snooze", json!({"in": "1s"})),
        ("renew", json!({})),
        ("release", json!({})),
    ] {
        for token in ["post-token", "read-token", "shop-token"] {
            report(token, verb, &body)
                .await
                .is_problem(403, "forbidden");
        }
    }
    assert_eq!(report("office-token", "done", &json!({})).await.status, 204);
}

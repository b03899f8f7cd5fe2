//! What callers may do: each endpoint requires its scope, and the class of each task.

use serde_json::{Value, json};

use super::rig::{Answer, Api, json as with_json};

/// SHA-256 of `read-token`, `work-token`, `shop-token`.
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
        .replace("{shop}", &hash("shop-token"));
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

//! A walk over every endpoint and every page by scope, and by what is masked.

use lapsed::config::hash_token;
use reqwest::StatusCode;
use serde_json::{Value, json};

use super::rig::{Answer, Api, json as with_json};
use super::secrecy::{addresses, patterns};
use crate::support::wait::until;

const SCOPES: [&str; 5] = ["read", "schedule", "work", "operate", "admin"];

/// The scope that an endpoint or a page needs; `None`: it is for everyone.
fn scope_of(method: &str, pattern: &str) -> Option<&'static str> {
    match (method, pattern) {
        (
            "GET",
            "/healthz"
            | "/readyz"
            | "/openapi.json"
            | "/problems/{kind}"
            | "/assets/{version}/{name}"
            | "/login"
            | "/v1/{*rest}"
            // Of unit tests of the server.
            | "/endless"
            | "/slow",
        ) => None,
        ("GET", _) => Some("read"),
        ("PUT" | "PATCH" | "DELETE", "/v1/tasks/{key}") => Some("schedule"),
        ("POST", "/v1/tasks" | "/v1/tasks/batch") => Some("schedule"),
        ("POST", "/v1/queues/{queue}/take") => Some("work"),
        ("POST", claims) if claims.starts_with("/v1/claims/{claim}/") => Some("work"),
        ("POST", "/v1/tasks/{key}/run" | "/v1/tasks/{key}/redrive" | "/v1/tasks/{key}/discard") => {
            Some("operate")
        }
        ("POST", "/v1/cancel" | "/v1/redrive" | "/v1/discard") => Some("operate"),
        ("POST" | "DELETE", "/v1/pauses") => Some("operate"),
        _ => panic!("say which scope `{method} {pattern}` needs"),
    }
}

/// A body that every endpoint of this pattern reads, and that changes nothing.
fn body_for(pattern: &str) -> Value {
    match pattern {
        "/v1/tasks" => json!({"key": "Order@close@1", "in": "1h"}),
        "/v1/tasks/batch" => json!([{"key": "Order@close@1", "in": "1h"}]),
        "/v1/cancel" | "/v1/redrive" | "/v1/discard" => json!({"class": "Order", "dry_run": true}),
        "/v1/pauses" => json!({"class": "Other"}),
        pattern if pattern.starts_with("/v1/claims/") => json!({"error": "x", "in": "1s"}),
        pattern if pattern.ends_with("/take") => json!({}),
        _ => json!({"in": "1h"}),
    }
}

/// The status of an answer, of which no more is read: a stream of events does not end.
async fn status(api: &Api, token: &str, method: &str, path: &str, body: &Value) -> StatusCode {
    let request = api.request(method, path);
    let request = request.header("authorization", format!("Bearer {token}"));
    let request = match method {
        "GET" | "DELETE" => request,
        _ => with_json(request, body),
    };
    request.send().await.unwrap().status()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_scope_allows_its_endpoints_and_pages_and_no_others() {
    let clients = SCOPES.map(|scope| {
        let hash = hash_token(scope);
        let hash: String = hash.iter().map(|byte| format!("{byte:02x}")).collect();
        format!("[[http.clients]]\nname = '{scope}'\ntoken_sha256 = '{hash}'\nscopes = '{scope}'\n")
    });
    let api = Api::start_with(&clients.concat()).await;
    for (method, pattern) in patterns() {
        let needed = scope_of(&method, &pattern);
        let path = match (method.as_str(), pattern.as_str()) {
            (_, "/v1/{*rest}") => "/v1/none".to_owned(),
            (_, "/problems/{kind}") => "/problems/invalid".to_owned(),
            (_, "/assets/{version}/{name}") => "/assets/x/app.css".to_owned(),
            ("DELETE", "/v1/pauses") => "/v1/pauses?class=Other".to_owned(),
            (_, pattern) => pattern
                .replace("{key}", "Order@close@1")
                .replace("{claim}", "none")
                .replace("{queue}", "none"),
        };
        let body = body_for(&pattern);
        for scope in SCOPES {
            let found = status(&api, scope, &method, &path, &body).await;
            let may = needed.is_none_or(|needed| scope == needed || scope == "admin");
            assert_eq!(found != 403, may, "{scope}: {method} {path}: {found}");
            assert_ne!(found, 401, "{scope}: {method} {path}");
        }
        let found = status(&api, "unknown", &method, &path, &body).await;
        assert_eq!(found != 401, needed.is_none(), "{method} {path}: {found}");
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn no_endpoint_and_no_page_shows_what_is_masked() {
    let api = Api::start_with(
        "[[routes]]\nmatch = '^Bravo@die'\nexec = ['sh', '-c', 'echo masked-error >&2; exit 65']\n\
         [access]\nmask_payloads = 'Bravo'\nmask_arguments = 'Bravo'\n",
    )
    .await;
    let mut rows = Vec::new();
    for task in [
        json!({"key": "Bravo@later@bravo-1", "in": "5h", "payload": {"a": "masked-payload"}}),
        json!({"key": "Bravo@later@masked-argument", "in": "5h", "payload": "masked-payload"}),
        json!({"key": "Bravo@die@masked-argument", "in": "0ms", "payload": "masked-payload"}),
        json!({"key": "Bravo@series@masked-argument", "every": "6h", "payload": "masked-payload"}),
    ] {
        let created = api.send("POST", "/v1/tasks", task).await;
        assert_eq!(created.status, 201, "{}", created.text);
        let id = created.text_of("id");
        rows.push(id.split('-').next().unwrap().to_owned());
    }
    api.until_state("Bravo@die@masked-argument", "dead").await;
    until("the changes are in the audit log", async || {
        let audit = api.get("/panels/audit?verb=all").await;
        audit.text.contains("Bravo@series@hidden")
    })
    .await;
    let mut shown = 0;
    for (_, pattern) in patterns().iter().filter(|(method, _)| method == "GET") {
        for address in addresses(pattern, &rows) {
            let answer: Answer = api.get(&address).await;
            assert!(
                !answer.text.contains("masked-"),
                "{address}: {}",
                answer.text
            );
            shown += usize::from(answer.text.contains("Bravo@later@hidden"));
        }
    }
    assert!(
        shown > 5,
        "lists, the task by its row, and the audit log: {shown}"
    );
}

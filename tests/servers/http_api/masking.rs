//! Masked arguments, payloads and errors: they are nowhere, and cannot be guessed part by part.

use lapsed::config::hash_token;
use serde_json::{Value, json};

use super::rig::Api;
use crate::support::wait::until;

/// In every argument, payload and error that is masked.
const MARK: &str = "zebra";

const SETTINGS: &str = "
[[routes]]
match = '^Mask@die'
exec = ['sh', '-c', 'echo zebra >&2; exit 65']
[http]
mask_arguments = 'Mask'
mask_payloads = 'Mask'
";

async fn start() -> Api {
    let api = Api::start_with(SETTINGS).await;
    for task in [
        json!({"key": "Mask@later@zebra@1", "in": "5h", "payload": {"a": MARK}, "tag": "t"}),
        json!({"key": "Mask@later@zebra@2", "in": "5h"}),
        json!({"key": "Mask@die@zebra", "in": "0ms"}),
        json!({"key": "Mask@series@zebra", "every": "6h"}),
        json!({"key": "Mask@dies@zebra", "every": "6h", "in": "0ms"}),
        json!({"key": "Open@later@lion", "in": "5h"}),
    ] {
        let created = api.send("POST", "/v1/tasks", task).await;
        assert_eq!(created.status, 201, "{}", created.text);
    }
    until("one is dead", async || {
        let dead = api.get("/v1/tasks?state=dead").await;
        dead.json()["tasks"].as_array().unwrap().len() == 1
    })
    .await;
    until("an occurrence has failed", async || {
        api.get("/v1/tasks?recurring=true")
            .await
            .text
            .contains("latest_occurrence")
    })
    .await;
    api
}

async fn is_silent(api: &Api, path: &str) -> String {
    let answer = api.get(path).await;
    let text = answer.text.to_string();
    assert!(!text.contains(MARK), "{path}: {text}");
    text
}

/// The first value of an attribute that begins with this.
fn attribute(body: &str, begin: &str) -> String {
    let (_, rest) = body.split_once(&format!("\"{begin}")).expect(begin);
    let rest = rest.split('"').next().unwrap();
    format!("{begin}{rest}").replace("&#38;", "&")
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn no_list_and_no_page_contains_masked_arguments() {
    let api = start().await;
    for path in [
        "/v1/tasks",
        "/v1/tasks?class=Mask",
        "/v1/tasks?class=Mask&limit=1",
        "/v1/tasks?prefix=Mask@later&limit=1",
        "/v1/tasks?state=pending&limit=1",
        "/tasks",
        "/tasks?state=dead",
        "/upcoming",
        "/dead",
        "/recurring",
        "/audit",
        "/",
        "/metrics",
        "/v1/stats",
    ] {
        is_silent(&api, path).await;
    }
    let series = api.get("/v1/tasks?recurring=true&class=Mask").await.json();
    let mut series = series["tasks"].as_array().unwrap().iter();
    let latest = series.find_map(|task| task.get("latest_occurrence"));
    assert_eq!(latest.unwrap()["error"], "hidden");
    // Each link of a masked row leads to its task, and its arguments are not there.
    for (list, state) in [
        ("/panels/tasks?state=pending", "pending"),
        ("/panels/tasks?state=dead", "dead"),
        ("/panels/upcoming", "pending"),
        ("/panels/recurring", "pending"),
    ] {
        let body = is_silent(&api, list).await;
        let link = attribute(&body, "/task?id=");
        let page = is_silent(&api, &link).await;
        assert!(page.contains("@hidden</h1>"), "{link}: {page}");
        assert!(page.contains(state), "{link}");
    }
    // A group of masked errors is all of its method.
    let dead = is_silent(&api, "/panels/dead").await;
    assert!(
        dead.contains("data-bulk=\"redrive\"") && !dead.contains("error&"),
        "{dead}"
    );
    let audit = is_silent(&api, "/panels/audit").await;
    assert!(!audit.contains("Mask%40die%40hidden"), "no link to no task");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn masked_arguments_cannot_be_searched() {
    let api = start().await;
    for (path, status) in [
        ("/v1/tasks?prefix=Mask@later@z", 400),
        ("/v1/tasks?prefix=Mask@die@zebra", 400),
        ("/v1/tasks?prefix=Mask@later@", 200),
        ("/v1/tasks?prefix=Open@later@li", 200),
        ("/v1/tasks?class=Mask&cursor=key.Mask@later@z", 400),
        ("/v1/tasks?cursor=3", 400),
    ] {
        assert_eq!(api.get(path).await.status, status, "{path}");
    }
    for body in [
        json!({"prefix": "Mask@later@z", "dry_run": true}),
        json!({"prefix": "Mask@later@z", "state": "pending", "dry_run": true}),
    ] {
        let answer = api.send("POST", "/v1/cancel", body).await;
        answer.is_problem(400, "invalid");
    }
    let prefix = json!({"prefix": "Mask@die@z", "dry_run": true});
    for verb in ["redrive", "discard"] {
        let answer = api
            .send("POST", &format!("/v1/{verb}"), prefix.clone())
            .await;
        answer.is_problem(400, "invalid");
        let error = json!({"error": "zeb", "dry_run": true});
        let answer = api.send("POST", &format!("/v1/{verb}"), error).await;
        assert_eq!(answer.json()["tasks"], 0, "{}", answer.text);
    }
    let found = api.get("/v1/tasks?error=zeb").await.json();
    assert_eq!(
        (&found["tasks"], &found["next"]),
        (&json!([]), &Value::Null)
    );
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_masked_task_is_changed_by_its_id() {
    let api = start().await;
    let list = api.get("/v1/tasks?tag=t").await.json();
    let id = list["tasks"][0]["id"].as_str().unwrap().to_owned();
    let shown = api.get(&format!("/v1/tasks/{id}")).await;
    assert_eq!(shown.text_of("key"), "Mask@later@hidden");
    assert_eq!(shown.header("etag"), format!("\"{id}\""));
    let row = id.split('-').next().unwrap();
    let moved = format!("/v1/tasks/{row}");
    let moved = api.send("PATCH", &moved, json!({"in": "6h"})).await;
    assert_eq!(
        (moved.status.as_u16(), moved.text.contains(MARK)),
        (200, false)
    );
    // The id names the arming before.
    for method in ["GET", "DELETE"] {
        let request = api.request(method, &format!("/v1/tasks/{id}"));
        let answer = super::rig::Answer::of(request).await;
        answer.is_problem(404, "no-task");
    }
    let id = moved.text_of("id");
    let cancelled = api.delete(&format!("/v1/tasks/{id}")).await;
    assert_eq!(cancelled.text_of("key"), "Mask@later@hidden");
    assert_eq!(api.state("Mask@later@zebra@1").await, "cancelled");
    for act in ["run", "redrive", "discard"] {
        let refused = api.post(&format!("/v1/tasks/{row}/{act}")).await;
        assert_eq!(
            (refused.status.as_u16(), refused.text.contains(MARK)),
            (409, false)
        );
    }
    let put = api
        .send("PUT", &format!("/v1/tasks/{row}"), json!({"in": "1h"}))
        .await;
    put.is_problem(400, "invalid");
    for none in ["0", "999", "18446744073709551615"] {
        api.get(&format!("/v1/tasks/{none}"))
            .await
            .is_problem(404, "no-task");
    }
    let dead = api.get("/v1/tasks?state=dead").await.json();
    let dead = dead["tasks"][0]["id"].as_str().unwrap().to_owned();
    let discarded = api.post(&format!("/v1/tasks/{dead}/discard")).await;
    assert_eq!(discarded.status, 204);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_sealed_cursor_goes_on_where_the_page_ended_and_is_of_its_caller() {
    let hash = |token: &str| -> String {
        let hash = hash_token(token);
        hash.iter().map(|byte| format!("{byte:02x}")).collect()
    };
    let client = |name: &str| {
        let hash = hash(name);
        format!("[[http.clients]]\nname = '{name}'\ntoken_sha256 = '{hash}'\nscopes = 'admin'\n")
    };
    let settings = format!(
        "[http]\nmask_arguments = 'Mask'\n{}{}",
        client("one"),
        client("two")
    );
    let api = Api::start_with(&settings).await;
    let ask = async |who: &str, method: &str, path: &str, body: Option<Value>| {
        let request = api.request(method, path);
        let request = request.header("authorization", format!("Bearer {who}"));
        super::rig::Answer::of(match &body {
            Some(body) => super::rig::json(request, body),
            None => request,
        })
        .await
    };
    for number in 0..3 {
        let task = json!({"key": format!("Mask@later@{number}"), "in": "5h"});
        ask("one", "POST", "/v1/tasks", Some(task)).await;
    }
    let mut path = "/v1/tasks?class=Mask&limit=1".to_owned();
    let mut ids = Vec::new();
    loop {
        let page = ask("one", "GET", &path, None).await.json();
        let tasks = page["tasks"].as_array().unwrap().iter();
        ids.extend(tasks.map(|task| task["id"].to_string()));
        let Some(next) = page["next"].as_str() else {
            break;
        };
        path = format!("/v1/tasks?class=Mask&limit=1&cursor={next}");
        ask("two", "GET", &path, None)
            .await
            .is_problem(400, "invalid");
    }
    ids.dedup();
    assert_eq!(ids.len(), 3);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_order_of_a_list_does_not_reveal_masked_arguments() {
    let api = start().await;
    // By key: a, b, c. By due time: b, c, a.
    for (argument, due) in [("c", "2h"), ("a", "3h"), ("b", "1h")] {
        let key = format!("Mask@bye@{argument}");
        api.create(&key, due).await;
        api.create(&key.replace("Mask", "Open"), due).await;
    }
    let ids = async |filter: &str| {
        let (mut ids, mut next) = (Vec::new(), String::new());
        loop {
            let page = api
                .get(&format!("/v1/tasks?limit=1&{filter}{next}"))
                .await
                .json();
            let tasks = page["tasks"].as_array().unwrap();
            ids.extend(
                tasks
                    .iter()
                    .map(|task| task["due"].as_str().unwrap().to_owned()),
            );
            match page["next"].as_str() {
                Some(cursor) => next = format!("&cursor={cursor}"),
                None => return ids,
            }
        }
    };
    for filter in [
        "prefix=Mask@bye@",
        "prefix=Mask@bye",
        "class=Mask&method=bye",
    ] {
        let found = ids(filter).await;
        assert_eq!(found.len(), 3, "{filter}: {found:?}");
        assert!(found.is_sorted(), "{filter}: by due time: {found:?}");
    }
    let open = ids("prefix=Open@bye@").await;
    assert!(open.len() == 3 && !open.is_sorted(), "by key: {open:?}");
}

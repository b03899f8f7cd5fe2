//! Pull workers over HTTP.

use serde_json::{Value, json};
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::TcpStream;

use super::rig::{Answer, Api};

async fn take(api: &Api, asked: Value) -> Vec<Value> {
    let answer = api.send("POST", "/v1/queues/mail/take", asked).await;
    assert_eq!(answer.status, 200, "{}", answer.text);
    answer.json()["tasks"].as_array().unwrap().clone()
}

pub async fn take_one(api: &Api) -> Value {
    let mut tasks = take(api, json!({"wait": "20s", "worker": "w-1"})).await;
    assert_eq!(tasks.len(), 1, "{tasks:?}");
    tasks.remove(0)
}

pub async fn report(api: &Api, task: &Value, verb: &str, body: Option<Value>) -> Answer {
    let path = format!("/v1/claims/{}/{verb}", task["claim"].as_str().unwrap());
    match body {
        Some(body) => api.send("POST", &path, body).await,
        None => api.post(&path).await,
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_worker_takes_a_task_and_reports_how_it_ended() {
    let api = Api::start().await;
    assert!(take(&api, json!({})).await.is_empty());
    let body = json!({"key": "Mail@send@7", "in": "0ms", "payload": {"to": "you"}, "tag": "t"});
    api.send("POST", "/v1/tasks", body).await;
    let task = take_one(&api).await;
    assert_eq!(
        (
            &task["key"],
            &task["args"],
            &task["payload"],
            &task["attempt"],
            &task["tag"]
        ),
        (
            &json!("Mail@send@7"),
            &json!(["7"]),
            &json!({"to": "you"}),
            &json!(1),
            &json!("t")
        )
    );
    assert_eq!(task["visibility_ms"], 30_000);
    assert_eq!(api.state("Mail@send@7").await, "running");
    assert_eq!(report(&api, &task, "renew", None).await.status, 204);
    let done = || report(&api, &task, "done", Some(json!({"result": {"sent": true}})));
    assert_eq!(done().await.status, 204);
    assert_eq!(done().await.status, 204, "repeated");
    let shown = api.get("/v1/tasks/Mail@send@7").await.json();
    assert_eq!(
        (&shown["state"], &shown["result"]),
        (&json!("done"), &json!({"sent": true}))
    );
    report(&api, &task, "renew", None)
        .await
        .is_problem(409, "claim-lost");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_worker_says_how_far_it_is() {
    let api = Api::start().await;
    api.create("Mail@send@7", "0ms").await;
    let task = take_one(&api).await;
    let before = api.get("/v1/tasks/Mail@send@7").await.json();
    assert_eq!(before.get("progress"), None);
    for (said, shown) in [
        (
            json!({"percent": 40, "text": "row 4 of 10"}),
            json!({"percent": 40, "text": "row 4 of 10"}),
        ),
        (json!({"percent": 100}), json!({"percent": 100, "text": ""})),
    ] {
        let body = json!({"progress": said});
        assert_eq!(report(&api, &task, "renew", Some(body)).await.status, 204);
        assert_eq!(
            api.get("/v1/tasks/Mail@send@7").await.json()["progress"],
            shown
        );
        let listed = api.get("/v1/tasks?state=running").await.json();
        assert_eq!(listed["tasks"][0]["progress"], shown);
    }
    for (bad, error) in [
        (
            json!({"percent": 101}),
            "expected a percentage from 0 to 100, found 101",
        ),
        (
            json!({"percent": -1}),
            "expected a percentage from 0 to 100, found -1",
        ),
        (json!({"text": "half"}), "missing field `percent`"),
    ] {
        let answer = report(&api, &task, "renew", Some(json!({"progress": bad}))).await;
        assert!(answer.text.contains(error), "{}", answer.text);
        answer.is_problem(400, "invalid");
    }
    assert_eq!(report(&api, &task, "done", None).await.status, 204);
    let body = json!({"progress": {"percent": 50}});
    report(&api, &task, "renew", Some(body))
        .await
        .is_problem(409, "claim-lost");
    let done = api.get("/v1/tasks/Mail@send@7").await.json();
    assert_eq!(done.get("progress"), None);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_task_that_fails_is_tried_again_postponed_given_back_or_dead() {
    let api = Api::start().await;
    api.create("Mail@send@1", "0ms").await;
    let first = take_one(&api).await;
    assert_eq!(report(&api, &first, "release", None).await.status, 204);
    let again = take_one(&api).await;
    assert_eq!(again["attempt"], 1, "a release is no attempt");
    report(&api, &first, "done", None)
        .await
        .is_problem(409, "claim-lost");
    assert_eq!(
        report(&api, &again, "snooze", Some(json!({"in": "10ms"})))
            .await
            .status,
        204
    );
    let later = take_one(&api).await;
    let failed = json!({"error": "no route", "retry_after": "10ms"});
    assert_eq!(report(&api, &later, "fail", Some(failed)).await.status, 204);
    let last = take_one(&api).await;
    let failed = json!({"error": "no such user", "permanent": true});
    assert_eq!(report(&api, &last, "fail", Some(failed)).await.status, 204);
    let dead = api.get("/v1/tasks/Mail@send@1").await.json();
    assert_eq!(
        (&dead["state"], &dead["last_error"]),
        (&json!("dead"), &json!("permanent failure: no such user"))
    );
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_worker_that_leaves_while_it_waits_gets_no_task() {
    let api = Api::start().await;
    let body = r#"{"wait":"50s"}"#;
    let head = format!(
        "POST /v1/queues/mail/take HTTP/1.1\r\nhost: localhost\r\ncontent-type: application/json\r\ncontent-length: {}\r\n\r\n{body}",
        body.len()
    );
    for _ in 0..20 {
        let mut gone = TcpStream::connect(api.address()).await.unwrap();
        gone.write_all(head.as_bytes()).await.unwrap();
        gone.shutdown().await.unwrap();
        // The server closes the connection when it has noticed.
        let mut answer = Vec::new();
        gone.read_to_end(&mut answer).await.unwrap();
        assert_eq!(answer, b"", "a worker that has left is answered");
    }
    api.create("Mail@send@1", "0ms").await;
    assert_eq!(take_one(&api).await["attempt"], 1);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_does_not_fit_is_refused() {
    let api = Api::start().await;
    api.post("/v1/queues/fax/take")
        .await
        .is_problem(404, "no-queue");
    for bad in [
        json!({"count": 0}),
        json!({"count": 513}),
        json!({"wait": "51s"}),
        json!({"wait": "5"}),
        json!({"worker": "a\nb"}),
        json!({"block": 1}),
    ] {
        let answer = api.send("POST", "/v1/queues/mail/take", bad).await;
        answer.is_problem(400, "invalid");
    }
    api.post("/v1/claims/nonsense/done")
        .await
        .is_problem(400, "invalid");
    api.create("Mail@send@1", "0ms").await;
    let task = take_one(&api).await;
    for (verb, body) in [
        ("fail", json!({})),
        (
            "fail",
            json!({"error": "x", "permanent": true, "retry_after": "1s"}),
        ),
        ("snooze", json!({"in": "soon"})),
        ("done", json!({"result": "x".repeat(65 * 1024)})),
    ] {
        report(&api, &task, verb, Some(body))
            .await
            .is_problem(400, "invalid");
    }
    assert_eq!(
        report(&api, &task, "done", None).await.status,
        204,
        "the claim still holds"
    );
}

/// Tokens that were made from this one without the key of the daemons.
pub fn forged(token: &str) -> Vec<String> {
    use base64::Engine as _;
    use base64::prelude::BASE64_URL_SAFE_NO_PAD as BASE64;
    let (fence, rest) = token.split_once('.').unwrap();
    let rest = BASE64.decode(rest).unwrap();
    // The signature is not JSON: what is before it ends with the array.
    let end = rest.iter().rposition(|byte| *byte == b']').unwrap() + 1;
    let end = (1..=end).find(|end| serde_json::from_slice::<Vec<Value>>(&rest[..*end]).is_ok());
    let (packed, signature) = rest.split_at(end.unwrap());
    let fields: Vec<Value> = serde_json::from_slice(packed).unwrap();
    let mut forged = vec![
        format!("9{token}"),
        format!("{token}A"),
        format!("{fence}.e30"),
    ];
    for place in 0..fields.len() {
        for value in [
            json!("Admin@wipe@all"),
            json!(3_153_600_000_000_u64),
            json!(7),
        ] {
            // A task that was handed out after 7 ms says so.
            if fields[place] == value {
                continue;
            }
            let mut fields = fields.clone();
            fields[place] = value;
            let packed = json!(fields).to_string();
            let rest = BASE64.encode([packed.as_bytes(), signature].concat());
            forged.push(format!("{fence}.{rest}"));
        }
    }
    forged
}

/// Asserts that every report with a forged token is refused, and that the task stays as it is.
pub async fn refuses_forged_tokens(api: &Api) {
    api.create("Mail@send@9", "0ms").await;
    let task = take_one(api).await;
    let token = task["claim"].as_str().unwrap();
    let forged = forged(token);
    assert!(forged.len() > 30, "{}", forged.len());
    let before = api.get("/v1/tasks/Mail@send@9").await.json();
    for token in forged {
        for (verb, body) in [
            ("done", None),
            ("fail", Some(json!({"error": "x", "retry_after": "2s"}))),
            ("snooze", Some(json!({"in": "1s"}))),
            ("renew", None),
            ("release", None),
        ] {
            let answer = report(api, &json!({ "claim": token }), verb, body).await;
            answer.is_problem(409, "claim-lost");
        }
    }
    let mut after = api.get("/v1/tasks/Mail@send@9").await.json();
    after["due_in_ms"] = before["due_in_ms"].clone();
    assert_eq!(
        (&after["state"], &after["attempt"]),
        (&before["state"], &before["attempt"])
    );
    assert_eq!(report(api, &task, "done", None).await.status, 204);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_forged_token_is_refused_and_changes_nothing() {
    let api = Api::start().await;
    refuses_forged_tokens(&api).await;
    let unknown = api.get("/v1/tasks/Admin@wipe@all").await;
    unknown.is_problem(404, "no-task");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_task_that_a_worker_kills_is_in_the_audit_log() {
    let api = Api::start().await;
    for (key, body) in [
        ("Mail@send@1", json!({"error": "x", "permanent": true})),
        ("Mail@send@2", json!({"error": "x", "retry_after": "1h"})),
    ] {
        api.create(key, "0ms").await;
        let task = take_one(&api).await;
        assert_eq!(report(&api, &task, "fail", Some(body)).await.status, 204);
    }
    let lines = json!([{"key": "Order@close@1", "in": "1h"}, {"key": "Order@close@2", "in": "1h"}]);
    api.send("POST", "/v1/tasks/batch", lines).await;
    crate::support::wait::until("the entries are written", async || {
        let log = api.get("/audit?verb=all").await.text;
        log.contains("fail") && log.contains("Order@close@2")
    })
    .await;
    let log = api.get("/audit?verb=all").await.text;
    assert!(log.contains("Mail@send@1") && log.contains("Order@close@1"));
    assert_eq!(log.matches("<strong>fail<").count(), 1, "{log}");
}

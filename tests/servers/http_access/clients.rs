//! Programs with tokens: scopes, classes, guesses, and the audit log.

use std::io::{Read as _, Write as _};

use lapsed::ledger::{Collection, DocumentRange, Documents as _};
use serde_json::Value;

use crate::http_access::rig::{Site, bearer, client};
use crate::support::wait::until;

fn clients() -> String {
    [
        client("viewer", "t-read", "'read'", ""),
        client(
            "shop",
            "t-shop",
            "['schedule', 'read']",
            "classes = ['Order', 'Mail@send*']",
        ),
        client("producer", "t-schedule", "'schedule'", ""),
        client("worker", "t-work", "'work'", ""),
        client("ops", "t-operate", "'operate'", ""),
        client("root", "t-admin", "'admin'", ""),
    ]
    .concat()
}

#[test]
fn a_token_allows_what_its_scopes_say_and_nothing_else() {
    let site = Site::start(&clients());
    let tokens = ["t-read", "t-schedule", "t-work", "t-operate", "t-admin"];
    // The last letter of each column: which of the tokens may.
    for (method, path, body, allowed) in [
        ("GET", "/v1/stats", "", ["t-read", "t-admin"]),
        ("GET", "/v1/tasks", "", ["t-read", "t-admin"]),
        ("GET", "/v1/tasks/Order@close@9", "", ["t-read", "t-admin"]),
        ("GET", "/metrics", "", ["t-read", "t-admin"]),
        ("GET", "/", "", ["t-read", "t-admin"]),
        (
            "POST",
            "/v1/tasks",
            r#"{"key": "Order@close@1", "in": "1h"}"#,
            ["t-schedule", "t-admin"],
        ),
        (
            "DELETE",
            "/v1/tasks/Order@close@9",
            "",
            ["t-schedule", "t-admin"],
        ),
        (
            "POST",
            "/v1/tasks/Order@close@9/run",
            "",
            ["t-operate", "t-admin"],
        ),
        (
            "POST",
            "/v1/pauses",
            r#"{"class": "Other"}"#,
            ["t-operate", "t-admin"],
        ),
    ] {
        for token in tokens {
            let (name, value) = bearer(token);
            let headers = [(name, &*value), ("Content-Type", "application/json")];
            let answer = site.send(method, path, &headers, body);
            match allowed.contains(&token) {
                true => assert!(
                    !matches!(answer.status, 401 | 403),
                    "{method} {path} {token}: {answer:?}"
                ),
                false => answer.assert_problem(403, "forbidden"),
            }
        }
    }
}

#[test]
fn a_wrong_token_reveals_and_changes_nothing() {
    let site = Site::start(&clients());
    for headers in [
        vec![],
        vec![("Authorization", "Bearer wrong")],
        vec![("Authorization", "Bearer t-admi")],
        vec![("Authorization", "Bearer t-adminx")],
        vec![("Authorization", "Bearer ")],
        vec![("Authorization", "Bearer")],
        vec![("Authorization", "t-admin")],
        vec![("Authorization", "Basic dC1hZG1pbg==")],
        vec![("Cookie", "lapsed=t-admin; __Host-lapsed=t-admin")],
        vec![("Cookie", "lapsed=1.e30.AA")],
        // The first counts: a proxy may append what a client sends.
        vec![
            ("Authorization", "Bearer wrong"),
            ("Authorization", "Bearer t-admin"),
        ],
    ] {
        let refused = site.create("Order@close@1", &headers);
        refused.assert_problem(401, "unauthenticated");
        assert_eq!(refused.header("www-authenticate"), "Bearer");
        for path in [
            "/v1/stats",
            "/metrics",
            "/v1/events",
            "/v1/tasks/Order@close@1",
        ] {
            site.get(path, &headers)
                .assert_problem(401, "unauthenticated");
        }
    }
    assert!(!site.has("Order@close@1"));
    site.get("/healthz", &[]).assert_ok();
    let (name, value) = bearer("t-admin");
    let lower = value.replace("Bearer", "bearer");
    site.create("Order@close@1", &[(name, &lower)]).assert_ok();
}

#[test]
fn a_client_of_some_classes_touches_and_sees_no_others() {
    let site = Site::start(&clients());
    let (name, root) = bearer("t-admin");
    let (_, shop) = bearer("t-shop");
    let (root, shop) = ([(name, &*root)], [(name, &*shop)]);
    for key in [
        "Order@close@1",
        "Orders@close@1",
        "Mail@send@1",
        "Mail@read@1",
    ] {
        site.create(key, &root).assert_ok();
    }
    for key in ["Order@close@2", "Mail@send@2", "Mail@sendNow@2"] {
        site.create(key, &shop).assert_ok();
    }
    for key in ["Orders@close@2", "Mail@read@2", "order@close@2"] {
        site.create(key, &shop).assert_problem(403, "forbidden");
        assert!(!site.has(key));
    }
    for method in ["GET", "DELETE"] {
        let path = "/v1/tasks/Mail@read@1";
        site.send(method, path, &shop, "")
            .assert_problem(403, "forbidden");
    }
    assert!(site.has("Mail@read@1"));
    let list = site.get("/v1/tasks", &shop);
    list.assert_ok();
    let list: Value = serde_json::from_str(&list.body).unwrap();
    let mut keys: Vec<&str> = list["tasks"]
        .as_array()
        .unwrap()
        .iter()
        .map(|task| task["key"].as_str().unwrap())
        .collect();
    keys.sort_unstable();
    let expected = [
        "Mail@send@1",
        "Mail@send@2",
        "Mail@sendNow@2",
        "Order@close@1",
        "Order@close@2",
    ];
    assert_eq!(keys, expected);
}

#[test]
fn an_address_that_guesses_tokens_is_locked_out() {
    let site = Site::start(&clients());
    let stats = |token: &str| {
        let (name, value) = bearer(token);
        site.get("/v1/stats", &[(name, &value)])
    };
    stats("t-read").assert_ok();
    // A program with an old token.
    for _ in 0..50 {
        stats("old").assert_problem(401, "unauthenticated");
    }
    for guess in 0..19 {
        stats(&format!("guess-{guess}")).assert_problem(401, "unauthenticated");
    }
    let locked = stats("guess-19");
    locked.assert_problem(429, "too-many-guesses");
    assert_eq!(locked.header("retry-after"), "60");
    stats("t-admin").assert_problem(429, "too-many-guesses");
    let form = site.log_in("/login", &[], "token=t-admin");
    assert_eq!(form.header("location"), "/login?failed=locked&next=%2F");
    assert_eq!(form.cookie(), "");
    // Those who were here before go on.
    stats("t-read").assert_ok();
    stats("old").assert_problem(401, "unauthenticated");
}

#[tokio::test(flavor = "multi_thread")]
async fn the_audit_log_names_client_and_change() {
    let site = Site::start(&clients());
    let (name, shop) = bearer("t-shop");
    for number in 0..3 {
        site.create(&format!("Order@close@{number}"), &[(name, &shop)])
            .assert_ok();
    }
    let refused = site.create("Other@close@1", &[(name, &shop)]);
    refused.assert_problem(403, "forbidden");
    let (_, ops) = bearer("t-operate");
    let pause = r#"{"class": "Order", "reason": "the mail server is down"}"#;
    site.post("/v1/pauses", &[(name, &ops)], pause).assert_ok();
    let ledger = site.ledger();
    let entries = async || {
        let range = DocumentRange::latest(10);
        let found = ledger.documents(Collection::Audit, &range).await.unwrap();
        let bodies = found.iter().map(|found| serde_json::from_str(&found.body));
        bodies.collect::<Result<Vec<Value>, _>>().unwrap()
    };
    let tasks_of = |entries: &[Value], caller: &str| {
        let of = entries.iter().filter(|entry| entry["caller"] == caller);
        of.map(|entry| entry["tasks"].as_u64().unwrap())
            .sum::<u64>()
    };
    until("all changes are in the audit log", async || {
        tasks_of(&entries().await, "shop") == 3
    })
    .await;
    let entries = entries().await;
    let pause = entries.iter().find(|entry| entry["caller"] == "ops");
    let pause = pause.expect("an answered change of many tasks is written");
    assert_eq!(pause["reason"], "the mail server is down");
    assert_eq!(pause["address"], "127.0.0.1");
    assert!(
        entries
            .iter()
            .all(|entry| !entry.to_string().contains("t-"))
    );
}

#[tokio::test]
async fn failed_logins_over_http_and_resp_are_in_the_audit_log_without_what_was_sent() {
    let hash = lapsed_server::resp::hash_password(b"right").unwrap();
    let resp = format!("[resp]\nlisten = '127.0.0.1:0'\npassword = '{hash}'\n");
    let site = Site::start(&(clients() + &resp));
    for guess in 0..15 {
        let (name, token) = bearer(&format!("s3cret-token-{guess}"));
        site.get("/v1/stats", &[(name, &token)])
            .assert_problem(401, "unauthenticated");
    }
    let form = "token=s3cret-form&next=%2F";
    assert_eq!(site.log_in("/login", &[], form).status, 303);
    for _ in 0..5 {
        let mut stream = std::net::TcpStream::connect(site.resp.unwrap()).unwrap();
        stream
            .write_all(b"AUTH s3cret-user s3cret-password\r\n")
            .unwrap();
        let mut answer = [0; 10];
        stream.read_exact(&mut answer).unwrap();
        assert_eq!(&answer, b"-WRONGPASS");
    }
    let ledger = site.ledger();
    let entries = async || {
        let range = DocumentRange::latest(100);
        ledger.documents(Collection::Audit, &range).await.unwrap()
    };
    until("both servers have written", async || {
        entries().await.len() >= 2
    })
    .await;
    // What follows a change is written after what was written at once.
    let (name, ops) = bearer("t-operate");
    let pause = r#"{"class": "Order"}"#;
    site.post("/v1/pauses", &[(name, &ops)], pause).assert_ok();
    let found = entries().await;
    assert_eq!(
        found.len(),
        3,
        "one entry for each server, and the pause: {found:?}"
    );
    let mut failed: Vec<(String, String)> = Vec::new();
    for document in &found {
        assert!(!document.body.contains("s3cret"), "{}", document.body);
        let entry: Value = serde_json::from_str(&document.body).unwrap();
        if entry["verb"] == "login_failed" {
            let text = |name: &str| entry[name].as_str().unwrap().to_owned();
            failed.push((text("subject"), text("address")));
        }
    }
    failed.sort();
    let from = |server: &str| (server.to_owned(), "127.0.0.1".to_owned());
    assert_eq!(failed, [from("http"), from("resp")]);
    let page = site.get("/audit", &[(name, &bearer("t-admin").1)]);
    assert!(page.body.contains("login_failed"), "{}", page.body);
}

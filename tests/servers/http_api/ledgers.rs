//! The API on MySQL, and while the ledger does not answer.

use serde_json::{Value, json};

use super::rig::Api;
use crate::support::rig::Rig;
use crate::support::setup::Setup;
use crate::support::wait::until;

const AT: &str = "2035-01-01T09:00:00.250Z";

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn tasks_are_created_replaced_moved_and_cancelled_on_mysql() {
    let rig = Setup::new("").start().await;
    let api = Api::serve(&rig.config()).await;
    let path = "/v1/tasks/Order@close@1";
    let put = async |payload: &str| {
        let body = json!({"at": AT, "payload": {"text": payload}});
        api.send("PUT", path, body).await.status.as_u16()
    };
    assert_eq!(
        (put("a").await, put("a").await, put("b").await),
        (201, 200, 201)
    );
    let shown = api.get(path).await;
    assert_eq!(shown.json()["payload"]["text"], "b");
    let request = api
        .request("PATCH", path)
        .header("if-match", shown.header("etag"));
    let moved = super::rig::json(request, &json!({"in": "1h"}));
    assert_eq!(super::rig::Answer::of(moved).await.status, 200);
    let tasks: Vec<_> = (0..300)
        .map(|n| json!({"key": format!("Order@close@{n}"), "in": "2h", "tag": "t"}))
        .collect();
    let made = api.send("POST", "/v1/tasks/batch", json!(tasks)).await;
    assert_eq!(made.lines().len(), 300);
    let filter = json!({"tag": "t", "state": "pending"});
    let cancelled = api.send("POST", "/v1/cancel", filter).await;
    assert_eq!(
        cancelled.lines().last().unwrap()["tasks"],
        300,
        "{}",
        cancelled.text
    );
    assert_eq!(api.get("/v1/stats").await.json()["cancelled"], 300);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn requests_say_that_the_ledger_does_not_answer() {
    let mut rig = Setup::new("ledger.statement_timeout = '1s'")
        .own_maria()
        .start()
        .await;
    let api = Api::serve(&rig.config()).await;
    api.create("Order@close@1", "1h").await;
    rig.maria().kill();
    for (method, path, body) in [
        ("PUT", "/v1/tasks/Order@close@1", json!({"in": "1h"})),
        ("PATCH", "/v1/tasks/Order@close@1", json!({"in": "1h"})),
        (
            "POST",
            "/v1/tasks/batch",
            json!([{"key": "Order@close@2", "in": "1h"}]),
        ),
        ("POST", "/v1/pauses", json!({"class": "Order"})),
    ] {
        let answer = api.send(method, path, body).await;
        answer.is_problem(503, "ledger-unavailable");
        assert_eq!(answer.header("retry-after"), "1");
    }
    for path in ["/v1/tasks/Order@close@1", "/v1/tasks"] {
        api.get(path).await.is_problem(503, "ledger-unavailable");
    }
    let cancelled = api
        .send("POST", "/v1/cancel", json!({"class": "Order"}))
        .await;
    let last = cancelled.lines().pop().unwrap();
    assert_eq!(
        (&last["done"], &last["problem"]["status"]),
        (&json!(true), &json!(503))
    );
    until("it is not ready", async || {
        api.get("/readyz").await.status == 503
    })
    .await;
    let reasons = api.get("/readyz").await.json()["reasons"].to_string();
    assert!(reasons.contains("The ledger does not answer"), "{reasons}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_forged_token_runs_no_other_task_on_mysql_and_redis() {
    let directory = tempfile::tempdir().unwrap();
    let file = directory.path().join("ran");
    let settings = format!(
        "[[routes]]\nmatch = '^Mail@send'\npull = {{ queue = 'mail', visibility = '30s' }}\n\
         [[routes]]\nmatch = '^Admin@'\nexec = ['touch', '{}']\nadopt = true\n",
        file.display()
    );
    let rig = Setup::new(&settings).start().await;
    let api = Api::serve(&rig.config()).await;
    super::workers::refuses_forged_tokens(&api).await;
    let armed: i64 = rig.redis_says(&["EXISTS", "Admin@wipe@all"]).await;
    assert_eq!(armed, 0, "nothing was armed in Redis");
    assert!(!file.exists());

    // A claim is valid on another daemon of the ledger, and after a restart.
    let other = Api::serve(&rig.config()).await;
    api.create("Mail@send@1", "0ms").await;
    api.create("Mail@send@2", "0ms").await;
    let (one, two) = (
        super::workers::take_one(&api).await,
        super::workers::take_one(&api).await,
    );
    let done = super::workers::report(&other, &one, "done", None).await;
    assert_eq!(done.status, 204, "{}", done.text);
    api.stop().await;
    other.stop().await;
    let again = Api::serve(&rig.config()).await;
    let done = super::workers::report(&again, &two, "done", None).await;
    assert_eq!(done.status, 204, "{}", done.text);
}

/// Every page that asks the ledger.
const PAGES: [&str; 8] = [
    "/",
    "/tasks",
    "/dead",
    "/upcoming",
    "/recurring",
    "/pauses",
    "/audit",
    "/task?key=Order@close@1",
];

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn every_page_says_at_once_that_the_ledger_does_not_answer_and_since_when() {
    let mut rig = Setup::new("ledger.statement_timeout = '1s'")
        .own_maria()
        .start()
        .await;
    let api = Api::serve(&rig.config()).await;
    api.create("Order@close@1", "1h").await;
    for path in PAGES {
        let body = api.get(path).await.text;
        assert!(
            !body.contains("The ledger does not answer"),
            "{path}: {body}"
        );
    }
    for is_frozen in [true, false] {
        match is_frozen {
            true => rig.maria().stop_process().unwrap(),
            false => rig.maria().kill(),
        }
        // Before the engine has noticed, the overview says so by itself.
        until(
            "the overview says so, when its counts are old",
            async || {
                let body = api.get("/").await.text;
                body.contains("The ledger does not answer")
            },
        )
        .await;
        until("the engine has noticed", async || {
            api.get("/readyz").await.status == 503
        })
        .await;
        for path in PAGES {
            let asked = tokio::time::Instant::now();
            let body = api.get(path).await.text;
            assert!(
                body.contains("The ledger does not answer since "),
                "{path}: {body}"
            );
            assert!(
                !body.contains("This part could not be loaded"),
                "{path}: {body}"
            );
            let took = asked.elapsed();
            assert!(
                took < std::time::Duration::from_secs(3),
                "{path} took {took:?}"
            );
        }
        let banner = api.get("/panels/state").await;
        assert!(
            banner.status == 200 && banner.text.contains("none is lost"),
            "{}",
            banner.text
        );
        if is_frozen {
            rig.maria().continue_process().unwrap();
            until("it answers again", async || {
                let body = api.get("/").await.text;
                !body.contains("The ledger does not answer")
            })
            .await;
        }
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_row_of_the_page_dead_discards_what_it_shows_also_without_an_error() {
    let rig = Rig::new("http.listen = '127.0.0.1:0'").await;
    let api = Api::serve(&rig.config()).await;
    for number in 0..5 {
        api.create(&format!("Job@die@{number}"), "1h").await;
    }
    // As a program that knows only the first columns ends a task.
    rig.run_sql(
        "UPDATE tb_time_limit_task SET status = 2, last_error = 'it broke' WHERE `key` < 'Job@die@3'; \
         UPDATE tb_time_limit_task SET status = 2 WHERE `key` >= 'Job@die@3'",
    )
    .await;
    let page = api.get("/dead").await.text.replace("&#34;", "\"");
    let filters = page.split("data-bulk=\"discard\" data-filter=\"").skip(1);
    let mut shown: Vec<(u64, u64)> = Vec::new();
    for rest in filters {
        let (filter, rest) = rest.split_once("}\"").unwrap();
        let count = rest.split('"').nth(1).unwrap().parse().unwrap();
        let mut body: Value = serde_json::from_str(&format!("{filter}}}")).unwrap();
        body["dry_run"] = json!(true);
        let dry = api.send("POST", "/v1/discard", body).await.json();
        shown.push((count, dry["tasks"].as_u64().unwrap()));
    }
    assert_eq!(shown, [(3, 3), (2, 2)], "{page}");
}

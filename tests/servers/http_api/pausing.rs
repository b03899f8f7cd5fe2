//! Pauses.

use serde_json::json;

use super::rig::Api;

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_class_is_paused_and_resumed_by_its_name() {
    let api = Api::start().await;
    let pause = || {
        api.send(
            "POST",
            "/v1/pauses",
            json!({"class": "Job", "method": "run", "reason": "repair"}),
        )
    };
    let made = pause().await;
    assert_eq!(
        (made.status.as_u16(), made.text_of("reason")),
        (201, "repair".to_owned())
    );
    assert_eq!(pause().await.status, 200, "repeated");
    let pauses = api.get("/v1/pauses").await.json();
    assert_eq!(
        (&pauses["pauses"][0]["class"], &pauses["pauses"][0]["by"]),
        (&json!("Job"), &json!("anonymous"))
    );
    api.create("Job@run@1", "1h").await;
    assert_eq!(
        api.get("/v1/tasks/Job@run@1").await.json()["kept_back"],
        "paused"
    );

    api.delete("/v1/pauses?class=Job")
        .await
        .is_problem(404, "not-paused");
    assert_eq!(
        api.delete("/v1/pauses?class=Job&method=run").await.status,
        200
    );
    api.delete("/v1/pauses?class=Job&method=run")
        .await
        .is_problem(404, "not-paused");
    assert_eq!(api.post("/v1/tasks/Job@run@1/run").await.status, 200);
    api.until_state("Job@run@1", "done").await;
    api.delete("/v1/pauses?everything=true&held=true")
        .await
        .is_problem(404, "not-paused");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_pause_has_an_end_which_a_second_one_replaces() {
    let api = Api::start().await;
    let pause = |body| api.send("POST", "/v1/pauses", body);
    let made = pause(json!({"class": "Job", "for": "2h"})).await;
    assert_eq!(made.status, 201);
    let until = made.text_of("until");
    let kept = pause(json!({"class": "Job", "until": until})).await;
    assert_eq!(
        (kept.status.as_u16(), kept.text_of("until")),
        (200, until.clone())
    );
    let later = "2035-12-01T09:00:00.000Z";
    let moved = pause(json!({"class": "Job", "until": "2035-12-01T10:00:00+01:00"})).await;
    assert_eq!(
        (moved.status.as_u16(), moved.text_of("until")),
        (200, later.to_owned())
    );
    let listed = api.get("/v1/pauses").await.json();
    assert_eq!(listed["pauses"][0]["until"], later);
    let log = api.get("/audit").await.text;
    assert_eq!(log.matches(&format!("until {later}")).count(), 1, "{log}");
    assert_eq!(log.matches(&format!("until {until}")).count(), 1, "{log}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_does_not_fit_is_refused() {
    let api = Api::start().await;
    for bad in [
        json!({}),
        json!({"method": "run"}),
        json!({"class": "Job", "everything": true}),
        json!({"class": "J b"}),
        json!({"class": "Job", "reason": "x".repeat(256)}),
        json!({"class": "Job", "reason": "two\nlines"}),
        json!({"class": "Job", "for": "0s"}),
        json!({"class": "Job", "for": "2"}),
        json!({"class": "Job", "until": "2001-01-01T00:00:00Z"}),
        json!({"class": "Job", "for": "2h", "until": "2035-12-01T09:00:00Z"}),
    ] {
        api.send("POST", "/v1/pauses", bad)
            .await
            .is_problem(400, "invalid");
    }
    for bad in ["", "?clas=Job", "?class=Job&everything=true"] {
        api.delete(&format!("/v1/pauses{bad}"))
            .await
            .is_problem(400, "invalid");
    }
}

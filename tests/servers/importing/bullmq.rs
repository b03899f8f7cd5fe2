//! BullMQ, from the npm registry.

use serde_json::{Value, json};

use super::programs::bullmq;
use super::{Imported, assert_unchanged, import, tasks};
use crate::support::rig::Rig;
use crate::support::shell::Shell;

const HOUR_MS: i64 = 3_600_000;

fn job(queue: &str, name: &str, data: Value, opts: Value) -> Value {
    json!({ "queue": queue, "name": name, "data": data, "opts": opts })
}

#[tokio::test]
async fn delayed_jobs_keep_due_time_payload_and_attempts() {
    let rig = Rig::new("").await;
    let shell = Shell::of(&rig);
    let mut failing = job(
        "Mail",
        "remind",
        json!({ "to": 9 }),
        json!({ "attempts": 5, "backoff": HOUR_MS }),
    );
    failing["fail"] = json!(true);
    let jobs = json!([
        job(
            "Mail",
            "welcome",
            json!({ "to": "王", "n": 1.5 }),
            json!({ "delay": HOUR_MS })
        ),
        job(
            "Mail",
            "welcome",
            json!({ "to": 8 }),
            json!({ "delay": HOUR_MS, "attempts": 3 })
        ),
        failing,
        job(
            "Shop",
            "close",
            json!([1]),
            json!({ "delay": 2 * HOUR_MS, "jobId": "order-7 a@b" })
        ),
        job("Shop", "at-once", json!({}), json!({})),
    ]);
    let added = bullmq(&rig, &jobs);
    let due = |index: usize| added[index]["due"].as_i64().unwrap();
    let id = |index: usize| added[index]["id"].as_str().unwrap();

    let planned = import(&shell, &["bullmq", "--dry-run"]);
    assert_eq!(
        (planned.code, planned.count("created")),
        (0, 4),
        "{}",
        planned.stderr
    );
    assert_eq!(planned.value["methods"]["Mail@welcome"]["count"], 2);
    assert!(tasks(&rig).await.is_empty(), "a dry run writes nothing");

    // Another database of the same server, as a guide advises for the tasks.
    let url = rig.redis.url().replace("/0", "/9");
    let elsewhere = import(&shell, &["bullmq", "--from-redis", &url]);
    assert_eq!((elsewhere.code, elsewhere.count("created")), (0, 0));
    let hint = format!("no job waits there: `{}` (`--from-redis`)", url);
    assert!(elsewhere.stderr.contains(&hint), "{}", elsewhere.stderr);
    assert!(
        !planned.stderr.contains("no job waits"),
        "{}",
        planned.stderr
    );

    let report = import(&shell, &["bullmq"]);
    assert_eq!(
        report.counts(["created", "refused", "taken"]),
        [4, 0, 0],
        "{}",
        report.stderr
    );
    let found = tasks(&rig).await;
    let task = |index: usize, data: Value, attempt, max_attempts| Imported {
        due: due(index),
        payload: data,
        attempt,
        max_attempts: Some(max_attempts),
    };
    let expected = [
        (
            format!("Mail@welcome@{}", id(0)),
            task(0, json!({ "to": "王", "n": 1.5 }), 0, 1),
        ),
        (
            format!("Mail@welcome@{}", id(1)),
            task(1, json!({ "to": 8 }), 0, 3),
        ),
        (
            format!("Mail@remind@{}", id(2)),
            task(2, json!({ "to": 9 }), 1, 5),
        ),
        (
            "Shop@close@order-7 a%40b".to_owned(),
            task(3, json!([1]), 0, 1),
        ),
    ];
    assert_eq!(found, expected.into_iter().collect());

    let again = import(&shell, &["bullmq"]);
    assert_eq!(again.counts(["created", "moved", "known"]), [0, 0, 4]);
    assert_unchanged(&rig, &found).await;
}

#[tokio::test]
async fn taking_removes_what_was_imported_and_nothing_else() {
    let rig = Rig::new("").await;
    let shell = Shell::of(&rig);
    let dedup = json!({ "delay": HOUR_MS, "deduplication": { "id": "only-one" } });
    let jobs = json!([
        job("Mail", "welcome", json!({}), json!({ "delay": HOUR_MS })),
        job("Mail", "welcome", json!({}), dedup),
        job("Mail", "no name", json!({}), json!({ "delay": HOUR_MS })),
        job("Shop", "close", json!({}), json!({ "delay": HOUR_MS })),
        job("Mail", "at-once", json!({}), json!({})),
    ]);
    let added = bullmq(&rig, &jobs);
    let id = |index: usize| added[index]["id"].as_str().unwrap();
    let report = import(&shell, &["bullmq", "--queue", "Mail", "--take"]);
    assert_eq!(
        (report.code, report.counts(["created", "taken", "refused"])),
        (1, [2, 2, 1])
    );
    let named = format!(
        "job {}: no key by `{{queue}}@{{name}}@{{id}}`: method `no name`",
        id(2)
    );
    assert!(report.stderr.contains(&named), "{}", report.stderr);

    let left: Vec<String> = rig
        .redis_says(&["ZRANGE", "bull:Mail:delayed", "0", "-1"])
        .await;
    assert_eq!(left, [id(2)]);
    let keys = |name: &str| format!("bull:Mail:{name}");
    for (name, exists) in [
        (keys(id(0)), 0),
        (keys(id(1)), 0),
        (keys("de:only-one"), 0),
        (keys(id(2)), 1),
        (keys(id(4)), 1),
        ("bull:Shop:delayed".to_owned(), 1),
    ] {
        assert_eq!(
            rig.redis_says::<i64>(&["EXISTS", &name]).await,
            exists,
            "{name}"
        );
    }
    // The program goes on with what is left.
    bullmq(
        &rig,
        &json!([job(
            "Mail",
            "welcome",
            json!({}),
            json!({ "delay": HOUR_MS })
        )]),
    );
    let report = import(&shell, &["bullmq", "--take"]);
    assert_eq!(report.counts(["created", "taken", "refused"]), [2, 2, 1]);
}

#[tokio::test]
async fn jobs_of_schedulers_and_flows_stay_where_they_are() {
    let rig = Rig::new("").await;
    let shell = Shell::of(&rig);
    let mut scheduled = job("Mail", "daily", json!({}), json!({}));
    scheduled["cron"] = json!("0 0 1 1 *");
    let mut child = job("Mail", "child", json!({}), json!({ "delay": HOUR_MS }));
    child["parent"] = json!("parent");
    let jobs = json!([scheduled, child]);
    bullmq(&rig, &jobs);
    let set: Vec<String> = rig
        .redis_says(&["ZRANGE", "bull:Mail:delayed", "0", "-1"])
        .await;
    let report = import(&shell, &["bullmq", "--take"]);
    for why in [
        "it is the next run of the job scheduler",
        "it is a child in a flow",
    ] {
        assert!(report.stderr.contains(why), "{set:?}: {}", report.stderr);
    }
    assert_eq!(report.counts(["created", "taken", "refused"]), [0, 0, 2]);
    assert_eq!(
        rig.redis_says::<Vec<String>>(&["ZRANGE", "bull:Mail:delayed", "0", "-1"])
            .await,
        set
    );
}

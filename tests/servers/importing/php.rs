//! The designs of the five PHP articles, written by PHP.

use lapsed::task::State;
use lapsed::{HandlerError, Handlers};
use serde_json::{Value, json};

use super::programs::php;
use super::{Imported, assert_unchanged, import, tasks};
use crate::support::rig::Rig;
use crate::support::shell::Shell;

fn due(written: &Value) -> i64 {
    written["due"].as_i64().unwrap()
}

fn id(written: &Value) -> String {
    match &written["id"] {
        Value::String(id) => id.clone(),
        id => id.to_string(),
    }
}

fn task(due: i64, payload: Value, attempt: i64) -> Imported {
    Imported {
        due,
        payload,
        attempt,
        max_attempts: None,
    }
}

#[tokio::test]
async fn serialized_rows_become_tasks_at_their_step_of_the_ladder() {
    let rig = Rig::new("").await;
    let shell = Shell::of(&rig);
    let rows = php(&rig, "seed000", 0);
    let report = import(&shell, &["seed000"]);
    assert_eq!(
        (
            report.code,
            report.counts(["created", "settled", "refused"])
        ),
        (1, [2, 1, 3])
    );
    for why in [
        format!("job {}: `params` contains an object", id(&rows[3])),
        format!(
            "job {}: `params` ends too early: it may be cut off",
            id(&rows[4])
        ),
        "job 999999: `delay_queue` has no such row".to_owned(),
    ] {
        assert!(report.stderr.contains(&why), "{why}: {}", report.stderr);
    }
    let data = json!({ "uid": 7, "name": "王", "list": [1, 2.5, true, null] });
    let found = tasks(&rig).await;
    let expected = [
        (
            format!("App\\Service\\Mail@send@{}", id(&rows[0])),
            task(due(&rows[0]), data, 0),
        ),
        (
            format!("Order@close@{}", id(&rows[1])),
            task(due(&rows[1]), json!(42), 3),
        ),
    ];
    assert_eq!(found, expected.into_iter().collect());

    let report = import(&shell, &["seed000", "--take"]);
    assert_eq!(report.counts(["created", "known", "taken"]), [0, 2, 2]);
    assert_unchanged(&rig, &found).await;
    let mut left: Vec<String> = rig
        .redis_says(&["ZRANGE", "delay_queue_job", "0", "-1"])
        .await;
    left.sort();
    assert_eq!(left, ["3", "4", "5", "999999"]);
    assert_eq!(
        rig.number("SELECT COUNT(*) FROM delay_queue WHERE status = 30")
            .await,
        2
    );
    assert_eq!(
        import(&shell, &["seed000"]).counts(["created", "known", "settled", "refused"]),
        [0, 0, 1, 3]
    );
}

#[tokio::test]
async fn a_task_that_fails_goes_on_with_the_next_step_of_the_ladder() {
    let ladder = "retry = { ladder = ['15s', '15s', '30s', '3m', '10m'], jitter = 0.0 }";
    let rig = Rig::new(ladder).await;
    let shell = Shell::of(&rig);
    let rows = php(&rig, "seed000", 0);
    let now_s = (rig.now_ms().await / 1000).to_string();
    let _: i64 = rig
        .redis_says(&["ZADD", "delay_queue_job", &now_s, &id(&rows[1])])
        .await;
    import(&shell, &["seed000"]);
    let key = format!("Order@close@{}", id(&rows[1]));
    let mut handlers = Handlers::new();
    handlers.on(("Order", "close"), |_: Vec<String>| async {
        Err::<(), _>(HandlerError::new("the shop is closed"))
    });
    let daemon = rig.daemon_with(handlers);
    rig.until_state(&key, State::Waiting).await;
    let record = rig.record(&key).await;
    let now = rig.now_ms().await;
    // Three retries were made: the fourth waits for the fourth step.
    let wait_ms = record.due_at.0 - now;
    assert_eq!(record.attempt, 4);
    assert!((150_000..=180_000).contains(&wait_ms), "{wait_ms}");
    drop(daemon);
}

#[tokio::test]
async fn members_of_a_sorted_set_become_tasks() {
    let rig = Rig::new("").await;
    let shell = Shell::of(&rig);
    let orders = php(&rig, "seed001", 4_500);
    let report = import(&shell, &["seed001"]);
    assert_eq!(
        report.counts(["created", "refused"]),
        [4_501, 0],
        "{}",
        report.stderr
    );
    let found = tasks(&rig).await;
    for order in &orders {
        let member = id(order);
        let payload = serde_json::from_str(&member).ok().filter(Value::is_object);
        let expected = task(due(order), payload.unwrap_or(Value::Null), 0);
        assert_eq!(found[&format!("order@run@{member}")], expected);
    }
    assert_eq!(
        import(&shell, &["seed001"]).counts(["created", "known"]),
        [0, 4_501]
    );
    let report = import(&shell, &["seed001", "--take"]);
    assert_eq!(
        report.counts(["created", "taken", "changed"]),
        [0, 4_501, 0]
    );
    assert_eq!(rig.redis_says::<i64>(&["EXISTS", "order"]).await, 0);
    assert_unchanged(&rig, &found).await;
}

#[tokio::test]
async fn members_that_a_key_has_no_room_for_become_payloads() {
    let rig = Rig::new("").await;
    let shell = Shell::of(&rig);
    let due = (rig.now_ms().await + 3_600_000).to_string();
    let text = "9".repeat(300);
    let object = format!(r#"{{"order":"{text}"}}"#);
    let binary = [b"\xff".as_slice(), text.as_bytes()].concat();
    for member in [text.as_bytes(), object.as_bytes(), &binary, b"short"] {
        let mut add = redis::cmd("ZADD");
        add.arg("order").arg(&due).arg(member);
        let _: i64 = add
            .query_async(&mut rig.redis_connection().await)
            .await
            .unwrap();
    }
    let report = import(&shell, &["seed001", "--take"]);
    assert_eq!(
        (report.code, report.count("taken")),
        (0, 4),
        "{}",
        report.stderr
    );
    let mut payloads = Vec::new();
    for (key, task) in tasks(&rig).await {
        let digest = key.strip_prefix("order@run@sha256-");
        match digest {
            Some(digest) => assert_eq!(digest.len(), 32, "{key}"),
            None => assert_eq!(key, "order@run@short"),
        }
        payloads.push(task.payload.to_string());
    }
    payloads.sort();
    // `"` < `n` < `{"b` < `{"o`.
    let [first, none, base64, last] = &payloads[..] else {
        panic!("{payloads:?}")
    };
    assert_eq!((&first[1..301], &**none, last), (&*text, "null", &object));
    assert!(base64.starts_with(r#"{"base64":"/zk5"#), "{base64}");
}

#[tokio::test]
async fn pending_rows_of_a_job_table_become_tasks_in_the_time_zone_of_their_program() {
    let rig = Rig::new("").await;
    let shell = Shell::of(&rig);
    let rows = php(&rig, "seed002", 0);
    let zone = ["seed002", "--tz", "Asia/Shanghai"];
    let report = import(&shell, &zone);
    assert_eq!(
        report.counts(["created", "refused"]),
        [2, 0],
        "{}",
        report.stderr
    );
    let payload = |row: &Value| serde_json::from_str(row["payload"].as_str().unwrap()).unwrap();
    let found = tasks(&rig).await;
    let expected = [
        (
            format!("Job@send_welcome_email@{}", id(&rows[0])),
            task(due(&rows[0]), payload(&rows[0]), 0),
        ),
        (
            format!("Job@generate_report@{}", id(&rows[1])),
            task(due(&rows[1]), payload(&rows[1]), 2),
        ),
    ];
    assert_eq!(found, expected.into_iter().collect());
    assert_eq!(import(&shell, &zone).counts(["created", "known"]), [0, 2]);
    let report = import(&shell, &[&zone[..], &["--take"]].concat());
    assert_eq!(report.counts(["known", "taken"]), [2, 2]);
    assert_eq!(
        rig.number("SELECT COUNT(*) FROM jobs WHERE status = 'pending'")
            .await,
        0
    );
    assert_unchanged(&rig, &found).await;
}

#[tokio::test]
async fn rows_and_live_keys_of_the_old_table_become_tasks() {
    // Another timer, so that the keys in Redis are those of the old program only.
    let rig = Rig::new("timer = 'ledger_poll'").await;
    let shell = Shell::of(&rig);
    let rows = php(&rig, "seed003", 0);
    let options = ["seed003", "--table", "old_tasks"];
    let report = import(&shell, &options);
    assert_eq!(
        report.counts(["created", "refused"]),
        [2, 0],
        "{}",
        report.stderr
    );
    let found = tasks(&rig).await;
    let names: Vec<&String> = found.keys().collect();
    let bare = "AuctionCutDown@bare@7";
    assert_eq!(names, ["AuctionCutDown@auctionEndCutDown@218", bare]);
    assert_eq!(
        found["AuctionCutDown@auctionEndCutDown@218"].due,
        due(&rows[0])
    );
    let apart = found[bare].due - due(&rows[3]);
    assert!(apart.abs() <= 2_000, "{apart}");

    assert_eq!(
        import(&shell, &options).counts(["created", "moved", "known"]),
        [0, 0, 2]
    );
    assert_unchanged(&rig, &found).await;
    let report = import(&shell, &[&options[..], &["--take"]].concat());
    assert_eq!(report.counts(["known", "taken", "changed"]), [2, 2, 0]);
    let left: Vec<String> = rig.redis_says(&["KEYS", "*"]).await;
    assert_eq!(left, ["session:42"]);
    assert_eq!(
        rig.number("SELECT COUNT(*) FROM old_tasks WHERE status = 0 AND sts = 0")
            .await,
        0
    );

    let (code, _, stderr) = shell.run(&["import", "seed003"]);
    assert_eq!(code, 1);
    assert!(stderr.contains("is a ledger of lapsed already"), "{stderr}");
}

#[tokio::test]
async fn entries_of_a_wheel_become_tasks_at_the_visit_of_their_round() {
    let rig = Rig::new("").await;
    let shell = Shell::of(&rig);
    let entries = php(&rig, "seed004", 0);
    let stopped = lapsed::UnixMs(due(&entries[0]) - 5_000).to_string();
    let options = ["seed004", "--stopped-at", &stopped];
    let report = import(&shell, &options);
    assert_eq!(
        report.counts(["created", "settled", "refused"]),
        [3, 1, 0],
        "{}",
        report.stderr
    );
    let found = tasks(&rig).await;
    let mut dues: Vec<i64> = found.values().map(|task| task.due).collect();
    dues.sort();
    let mut expected: Vec<i64> = entries.iter().map(due).collect();
    expected.sort();
    assert_eq!(dues, expected);
    let twice = due(&entries[1]);
    for (key, task) in &found {
        assert!(
            key.starts_with(&format!("Wheel@send_msg@{}-", task.due)),
            "{key}"
        );
        let uid = if task.due == twice { 7_220 } else { 5 };
        assert_eq!(
            task.payload,
            json!({ "uid": uid, "msg": format!("No: {uid}") })
        );
    }
    assert_eq!(
        import(&shell, &options).counts(["created", "known"]),
        [0, 3]
    );
    let report = import(&shell, &[&options[..], &["--take"]].concat());
    assert_eq!(report.counts(["known", "taken"]), [3, 3]);
    assert_unchanged(&rig, &found).await;
    let left: Vec<String> = rig.redis_says(&["KEYS", "task_*"]).await;
    assert_eq!(left, ["task_7"]);
}

//! What an import cannot carry over: it refuses it, or says so.

use serde_json::json;

use super::programs::php;
use super::{import, tasks};
use crate::support::rig::Rig;
use crate::support::shell::Shell;

async fn says<T: redis::FromRedisValue>(rig: &Rig, words: &[&str]) -> T {
    rig.redis_says(words).await
}

#[tokio::test]
async fn jobs_of_sidekiq_that_need_sidekiq_are_refused_and_locks_are_named() {
    let rig = Rig::new("").await;
    let shell = Shell::of(&rig);
    let due = (rig.now_ms().await / 1_000 + 3_600).to_string();
    let job = |id: &str, name: &str, value: serde_json::Value| {
        let mut job = json!({ "class": "A", "jid": id, "args": [] });
        job[name] = value;
        job.to_string()
    };
    let jobs = [
        job("plain", "bid", json!(null)),
        job("batch", "bid", json!("b-7")),
        job("secret", "encrypt", json!(true)),
        job("unique", "unique_for", json!(600)),
        job("patient", "retry_for", json!(172_800)),
        job("other", "unique_for", json!(false)),
    ];
    for job in &jobs {
        let _: i64 = says(&rig, &["ZADD", "schedule", &due, job]).await;
    }
    let report = import(&shell, &["sidekiq", "--take"]);
    assert_eq!(report.counts(["created", "refused", "taken"]), [4, 2, 4]);
    for text in [
        "it belongs to the batch `b-7`",
        "its last argument is encrypted",
        "1 jobs have `unique_for`",
        "1 jobs have `retry_for`",
    ] {
        assert!(report.stderr.contains(text), "{text}: {}", report.stderr);
    }
    assert_eq!(says::<i64>(&rig, &["ZCARD", "schedule"]).await, 2);
}

#[tokio::test]
async fn paused_queues_and_repeatable_jobs_of_bullmq_stay_there() {
    let rig = Rig::new("").await;
    let shell = Shell::of(&rig);
    let score = ((rig.now_ms().await + 3_600_000) * 4_096).to_string();
    for (queue, id, options) in [
        ("mail", "1", "{}"),
        ("mail", "repeat:5f0:1795000000000", "{}"),
        ("mail", "2", r#"{"repeat":{"cron":"* * * * *"}}"#),
        ("held", "1", "{}"),
        ("old", "1", "{}"),
    ] {
        let hash = format!("bull:{queue}:{id}");
        let _: i64 = says(
            &rig,
            &["HSET", &hash, "name", "send", "data", "{}", "opts", options],
        )
        .await;
        let _: i64 = says(
            &rig,
            &["ZADD", &format!("bull:{queue}:delayed"), &score, id],
        )
        .await;
    }
    let _: i64 = says(&rig, &["HSET", "bull:held:meta", "paused", "1"]).await;
    let () = says(&rig, &["SET", "bull:old:meta-paused", "1"]).await;
    let report = import(&shell, &["bullmq"]);
    assert_eq!(
        report.counts(["created", "refused"]),
        [1, 2],
        "{}",
        report.stderr
    );
    for text in [
        "job 2: it is the next run of a repeatable job",
        "the queue `held` is paused there, and was left out",
        "the queue `old` is paused there, and was left out",
    ] {
        assert!(report.stderr.contains(text), "{text}: {}", report.stderr);
    }
    let report = import(&shell, &["bullmq", "--queue", "held"]);
    assert_eq!(report.counts(["created", "refused"]), [1, 0]);
    assert!(
        report
            .stderr
            .contains("`held` is paused there; its tasks run here")
    );
}

#[tokio::test]
async fn a_paused_queue_of_asynq_is_left_out() {
    let rig = Rig::new("").await;
    let shell = Shell::of(&rig);
    let _: i64 = says(&rig, &["SADD", "asynq:queues", "held"]).await;
    let () = says(&rig, &["SET", "asynq:{held}:paused", "1"]).await;
    let due = (rig.now_ms().await / 1_000 + 3_600).to_string();
    let _: i64 = says(&rig, &["ZADD", "asynq:{held}:scheduled", &due, "1"]).await;
    let report = import(&shell, &["asynq"]);
    assert_eq!(report.counts(["created", "refused"]), [0, 0]);
    assert!(
        report
            .stderr
            .contains("the queue `held` is paused there, and was left out")
    );
}

#[tokio::test]
async fn the_string_for_searches_becomes_the_tag() {
    let rig = Rig::new("").await;
    let shell = Shell::of(&rig);
    let rows = php(&rig, "seed000", 0);
    let (first, second) = (&rows[0]["id"], &rows[1]["id"]);
    let id = |id: &serde_json::Value| id.as_str().map_or_else(|| id.to_string(), str::to_owned);
    rig.run_sql(&format!(
        "UPDATE delay_queue SET ext_string = 'order-42' WHERE id = {}; \
         UPDATE delay_queue SET ext_string = REPEAT('x', 200) WHERE id = {}",
        id(first),
        id(second)
    ))
    .await;
    let report = import(&shell, &["seed000"]);
    assert_eq!(report.count("created"), 1, "{}", report.stderr);
    assert!(
        report.stderr.contains(&format!("job {}: tag", id(second))),
        "{}",
        report.stderr
    );
    let cancelled = shell.text(&["cancel", "--tag", "order-42"]);
    assert!(cancelled.contains('1'), "{cancelled}");
}

#[tokio::test]
async fn rows_that_a_worker_has_left_are_counted_and_the_zone_must_be_given() {
    let rig = Rig::new("").await;
    let shell = Shell::of(&rig);
    let (code, _, stderr) = shell.run(&["import", "seed002"]);
    assert_eq!(code, 2);
    assert!(stderr.contains("seed002 needs `--tz`"), "{stderr}");
    php(&rig, "seed002", 0);
    rig.run_sql("UPDATE jobs SET status = 'processing' WHERE status = 'completed'")
        .await;
    let report = import(&shell, &["seed002", "--tz", "Asia/Shanghai"]);
    assert_eq!(report.count("created"), 2);
    assert!(
        report.stderr.contains("1 rows of `jobs` are `processing`"),
        "{}",
        report.stderr
    );
}

#[tokio::test]
async fn nothing_is_taken_that_no_route_runs() {
    let rig = Rig::new("[[routes]]\nmatch = '^Order@close@'\nlog = {}").await;
    let shell = Shell::of(&rig);
    let due = (rig.now_ms().await / 1_000 + 3_600).to_string();
    for member in ["42", "Order@close@7"] {
        let _: i64 = says(&rig, &["ZADD", "order", &due, member]).await;
    }
    let report = import(&shell, &["seed001", "--take"]);
    assert_eq!(
        (report.code, report.counts(["created", "refused", "taken"])),
        (1, [1, 1, 1])
    );
    let why = "job 42: no route of this configuration matches its key `order@run@42`";
    assert!(report.stderr.contains(why), "{}", report.stderr);
    assert_eq!(
        says::<Vec<String>>(&rig, &["ZRANGE", "order", "0", "-1"]).await,
        ["42"]
    );
    let report = import(&shell, &["seed001", "--take", "--unrouted"]);
    assert_eq!(report.counts(["created", "taken"]), [1, 1]);
}

#[tokio::test]
async fn equal_entries_of_a_long_list_are_numbered_from_its_end() {
    let rig = Rig::new("").await;
    let shell = Shell::of(&rig);
    let (code, _, stderr) = shell.run(&["import", "seed004"]);
    assert_eq!(code, 2);
    assert!(stderr.contains("seed004 needs `--stopped-at`"), "{stderr}");
    let now = rig.now_ms().await;
    let list = format!("task_{}", (now / 1_000 + 1_800) % 3_600);
    let entry = r#"{"method":"send","params":{"uid":1},"cycle_num":0}"#;
    // More than a page apart.
    let others: Vec<String> = (0..20_100)
        .map(|n| entry.replace("\"uid\":1", &format!("\"uid\":{}", n + 2)))
        .collect();
    let mut push = redis::cmd("RPUSH");
    push.arg(&list).arg(entry).arg(&others).arg(entry);
    let _: i64 = push
        .query_async(&mut rig.redis_connection().await)
        .await
        .unwrap();
    let stopped = lapsed::UnixMs(now).to_string();
    let options = ["seed004", "--stopped-at", &stopped];
    assert_eq!(
        import(&shell, &options).counts(["created", "known"]),
        [20_102, 0]
    );
    let all = tasks(&rig).await;
    // The first one was taken when the import before was killed.
    let _: i64 = says(&rig, &["LREM", &list, "1", entry]).await;
    let first = all
        .iter()
        .find(|(key, task)| key.ends_with("-2") && task.payload == json!({"uid": 1}));
    rig.run_sql(&format!(
        "DELETE FROM tb_time_limit_task WHERE `key` <> '{}'",
        first.unwrap().0
    ))
    .await;
    let report = import(&shell, &[&options[..], &["--take"]].concat());
    assert_eq!(
        report.counts(["created", "known", "taken"]),
        [20_101, 0, 20_101]
    );
    assert_eq!(
        tasks(&rig).await.keys().collect::<Vec<_>>(),
        all.keys().collect::<Vec<_>>()
    );
}

//! Sources with what no program should have written: it is reported, and does not stop the rest.

use redis::cmd;
use serde_json::json;

use super::{import, tasks};
use crate::support::rig::Rig;
use crate::support::shell::Shell;

async fn add(rig: &Rig, set: &str, score: &str, member: &[u8]) {
    let mut add = cmd("ZADD");
    add.arg(set).arg(score).arg(member);
    let _: i64 = add
        .query_async(&mut rig.redis_connection().await)
        .await
        .unwrap();
}

#[tokio::test]
async fn a_member_that_is_no_job_is_reported_and_the_rest_imported() {
    let rig = Rig::new("").await;
    let shell = Shell::of(&rig);
    let due = (rig.now_ms().await / 1000 + 3600).to_string();
    let huge = json!({ "class": "A", "jid": "9", "args": ["x".repeat(10 << 20)] }).to_string();
    let long = json!({ "class": "A", "jid": "j".repeat(300), "args": [] }).to_string();
    let refused: [(&str, &[u8], &str); 8] = [
        (&due, b"not json", "it is no job of Sidekiq"),
        (&due, b"\xff\xfe", "it is not UTF-8"),
        (&due, br#"{"class":"A"}"#, "missing field `jid`"),
        (
            &due,
            br#"{"class":"2fa","jid":"1","args":[]}"#,
            "class `2fa` does not fit",
        ),
        (&due, huge.as_bytes(), "it has 10485"),
        (&due, long.as_bytes(), "key has 310 bytes"),
        (
            "inf",
            br#"{"class":"A","jid":"inf","args":[]}"#,
            "is no time",
        ),
        ("0", br#"{"class":"A","jid":"0","args":[]}"#, "1970"),
    ];
    for (score, member, _) in &refused {
        add(&rig, "schedule", score, member).await;
    }
    for number in 0..50 {
        let job = json!({ "class": "A", "jid": format!("ok\n@ {number}"), "args": [number] });
        add(&rig, "schedule", &due, job.to_string().as_bytes()).await;
    }
    for take in [false, true] {
        let options: &[&str] = if take {
            &["sidekiq", "--take"]
        } else {
            &["sidekiq"]
        };
        let report = import(&shell, options);
        assert_eq!(
            (report.code, report.count("refused")),
            (1, refused.len() as u64)
        );
        for (_, _, why) in &refused {
            assert!(report.stderr.contains(why), "{why}: {}", report.stderr);
        }
        let longest = report.stderr.lines().map(str::len).max();
        assert!(longest < Some(1_000), "{longest:?}");
    }
    let keys: Vec<String> = tasks(&rig).await.into_keys().collect();
    assert_eq!(keys.len(), 50);
    assert_eq!(keys[0], "A@perform@ok%0A%40 0");
    assert_eq!(
        rig.redis_says::<i64>(&["ZCARD", "schedule"]).await,
        refused.len() as i64
    );
}

#[tokio::test]
async fn a_job_without_its_hash_is_reported() {
    let rig = Rig::new("").await;
    let shell = Shell::of(&rig);
    let score = ((rig.now_ms().await + 3_600_000) * 4096).to_string();
    add(&rig, "bull:Mail:delayed", &score, b"1").await;
    add(&rig, "bull:Mail:delayed", &score, b"2").await;
    let _: i64 = rig.redis_says(&["RPUSH", "bull:Mail:2", "a list"]).await;
    add(&rig, "asynq:{low}:scheduled", "1795371600", b"3").await;
    let _: i64 = rig
        .redis_says(&["SADD", "asynq:queues", "low", "empty"])
        .await;
    for (source, jobs) in [("bullmq", 2), ("asynq", 1)] {
        let report = import(&shell, &[source, "--take"]);
        assert_eq!(report.counts(["created", "refused", "taken"]), [0, jobs, 0]);
        assert!(
            report.stderr.contains("its hash is missing"),
            "{}",
            report.stderr
        );
    }
}

#[tokio::test]
async fn two_jobs_with_one_key_do_not_become_one_task() {
    let rig = Rig::new("").await;
    let shell = Shell::of(&rig);
    let due_s = rig.now_ms().await / 1000 + 3600;
    for (set, job) in [
        ("schedule", "first"),
        ("schedule", "second"),
        ("retry", "third"),
    ] {
        let job = json!({ "class": "A", "jid": "1", "args": [job] }).to_string();
        let score = (due_s + job.len() as i64).to_string();
        add(&rig, set, &score, job.as_bytes()).await;
    }
    let report = import(&shell, &["sidekiq", "--take"]);
    assert_eq!(report.code, 1);
    assert_eq!(report.counts(["created", "refused", "taken"]), [1, 2, 1]);
    for why in [
        "another job has its key `A@perform@1`",
        "was written since this import began",
    ] {
        assert!(report.stderr.contains(why), "{why}: {}", report.stderr);
    }
    assert_eq!(rig.redis_says::<i64>(&["ZCARD", "schedule"]).await, 1);
    assert_eq!(rig.redis_says::<i64>(&["ZCARD", "retry"]).await, 1);
}

#[tokio::test]
async fn a_payload_of_ten_megabytes_is_reported_by_its_length() {
    let rig = Rig::new("").await;
    let shell = Shell::of(&rig);
    let score = ((rig.now_ms().await + 3_600_000) * 4096).to_string();
    let huge = format!("\"{}\"", "x".repeat(10 << 20));
    for (id, data) in [("1", &huge[..]), ("2", "{}"), ("3", &"9".repeat(70_000))] {
        add(&rig, "bull:Mail:delayed", &score, id.as_bytes()).await;
        let key = format!("bull:Mail:{id}");
        let _: i64 = rig
            .redis_says(&["HSET", &key, "name", "send", "data", data])
            .await;
    }
    let report = import(&shell, &["bullmq", "--take"]);
    assert_eq!(report.counts(["created", "refused", "taken"]), [1, 2, 1]);
    for why in [
        "job 1: its data has 10485762 bytes",
        "job 3: payload has 70000 bytes, expected at most 65536",
    ] {
        assert!(report.stderr.contains(why), "{why}: {}", report.stderr);
    }
    let keys: Vec<String> = tasks(&rig).await.into_keys().collect();
    assert_eq!(keys, ["Mail@send@2"]);
}

#[tokio::test]
async fn a_source_that_does_not_answer_ends_the_import_with_an_error() {
    let rig = Rig::new("redis.connect_timeout = '500ms'").await;
    let shell = Shell::of(&rig);
    let silent = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let url = format!("redis://{}/0", silent.local_addr().unwrap());
    let (code, _, stderr) = shell.run(&["import", "seed001", "--from-redis", &url]);
    assert_eq!(code, 1);
    assert!(
        stderr.contains("connect to the source's Redis at 127.0.0.1"),
        "{stderr}"
    );
    let mysql = format!("mysql://root@{}/x", silent.local_addr().unwrap());
    let (code, _, stderr) =
        shell.run(&["import", "seed002", "--tz", "UTC", "--from-mysql", &mysql]);
    assert_eq!(code, 1);
    assert!(
        stderr.contains("connect to the source's database"),
        "{stderr}"
    );
}

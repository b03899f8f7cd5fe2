//! asynq. Its Go module is not in the registries that a test machine reaches, so these tests write what asynq's
//! `internal/rdb/rdb.go` writes (`scheduleCmd`, `retryCmd`) with the message of `internal/proto/asynq.proto`.

use redis::cmd;
use serde_json::{Value, json};

use super::{Imported, assert_unchanged, import, tasks};
use crate::support::rig::Rig;
use crate::support::shell::Shell;

pub struct Task<'a> {
    pub queue: &'a str,
    pub kind: &'a str,
    pub id: &'a str,
    pub payload: &'a [u8],
    pub retry: u64,
    pub retried: u64,
    pub due_s: i64,
}

fn varint(mut number: u64, to: &mut Vec<u8>) {
    while number >= 0x80 {
        to.push(number as u8 | 0x80);
        number >>= 7;
    }
    to.push(number as u8);
}

fn message(task: &Task) -> Vec<u8> {
    let mut bytes = Vec::new();
    let texts: [(u64, &[u8]); 4] = [
        (1, task.kind.as_bytes()),
        (2, task.payload),
        (3, task.id.as_bytes()),
        (4, task.queue.as_bytes()),
    ];
    for (field, value) in texts {
        varint(field << 3 | 2, &mut bytes);
        varint(value.len() as u64, &mut bytes);
        bytes.extend(value);
    }
    for (field, number) in [
        (5, task.retry),
        (6, task.retried),
        (8, 1800),
        (11, 1_795_000_000),
    ] {
        varint(field << 3, &mut bytes);
        varint(number, &mut bytes);
    }
    bytes
}

/// As `RDB.ScheduleUnique` and `RDB.Retry` do.
pub async fn enqueue(rig: &Rig, task: &Task<'_>) {
    let (set, state) = match task.retried {
        0 => ("scheduled", "scheduled"),
        _ => ("retry", "retry"),
    };
    let prefix = format!("asynq:{{{}}}:", task.queue);
    let unique = format!("{prefix}unique:{}:{}", task.kind, task.id);
    let mut pipe = redis::pipe();
    pipe.sadd("asynq:queues", task.queue);
    pipe.set(&unique, task.id);
    pipe.add_command(cmd("HSET"))
        .arg(format!("{prefix}t:{}", task.id));
    pipe.arg("msg").arg(message(task)).arg("state").arg(state);
    pipe.arg("unique_key").arg(&unique);
    pipe.zadd(format!("{prefix}{set}"), task.id, task.due_s);
    let () = pipe
        .query_async(&mut rig.redis.connect(0).await.unwrap())
        .await
        .unwrap();
}

#[tokio::test]
async fn scheduled_tasks_and_retries_of_all_queues_become_tasks() {
    let rig = Rig::new("").await;
    let shell = Shell::of(&rig);
    let due_s = rig.now_ms().await / 1000 + 3600;
    let task = |queue, kind, id, payload, retried| Task {
        queue,
        kind,
        id,
        payload,
        retry: 25,
        retried,
        due_s,
    };
    let written = [
        task(
            "default",
            "email:welcome",
            "7f4ea1d2-0001",
            &br#"{"uid":7}"#[..],
            0,
        ),
        task("low", "image:resize", "7f4ea1d2-0002", b"\xff\x00png", 3),
        task("low", "image:resize", "7f4ea1d2-0003", b"", 0),
    ];
    for task in &written {
        enqueue(&rig, task).await;
    }
    let report = import(&shell, &["asynq"]);
    assert_eq!(
        report.counts(["created", "refused"]),
        [3, 0],
        "{}",
        report.stderr
    );
    let expected = |payload: Value, attempt| Imported {
        due: due_s * 1000,
        payload,
        attempt,
        max_attempts: Some(26),
    };
    let found = tasks(&rig).await;
    let all = [
        (
            "default@email:welcome@7f4ea1d2-0001",
            expected(json!({ "uid": 7 }), 0),
        ),
        (
            "low@image:resize@7f4ea1d2-0002",
            expected(json!({ "base64": "/wBwbmc=" }), 3),
        ),
        ("low@image:resize@7f4ea1d2-0003", expected(Value::Null, 0)),
    ];
    let all = all.into_iter().map(|(key, task)| (key.to_owned(), task));
    assert_eq!(found, all.collect());

    assert_eq!(
        import(&shell, &["asynq"]).counts(["created", "known"]),
        [0, 3]
    );
    let report = import(&shell, &["asynq", "--queue", "low", "--take"]);
    assert_eq!(report.counts(["known", "taken", "changed"]), [2, 2, 0]);
    assert_unchanged(&rig, &found).await;
    let mut left: Vec<String> = rig.redis_says(&["KEYS", "asynq:*"]).await;
    left.sort();
    let default = [
        "asynq:queues",
        "asynq:{default}:scheduled",
        "asynq:{default}:t:7f4ea1d2-0001",
        "asynq:{default}:unique:email:welcome:7f4ea1d2-0001",
    ];
    assert_eq!(left, default);
}

//! docs/coming-from/{asynq,bullmq,sidekiq}.md: what waits is copied, while the producers go on; then they are changed.

use std::pin::Pin;
use std::process::Command;

use serde_json::{Value, json};

use super::owner::{Fate, Owner, PROGRAMS, batch, code_in_text, tasks};
use super::switched::Line;
use crate::importing::asynq;
use crate::importing::programs::{bullmq, printed};
use crate::support::not_tried::not_tried;
use crate::support::wait::until;

/// One of the three systems.
struct System {
    /// The word of `lapsed import`.
    source: &'static str,
    /// What keys begin with, before the id.
    key: &'static str,
    /// Schedules jobs of these names and delays in seconds. Returns `id` and `due` of each.
    produce: Produce,
    /// What a changed producer has in place of it.
    line: Line,
}

type Produce = for<'a> fn(&'a Owner, &'a [(String, usize)]) -> Produced<'a>;
type Produced<'a> = Pin<Box<dyn Future<Output = Vec<Value>> + 'a>>;

/// Has Go fetch asynq: on a machine that reaches Go's module proxy.
const WITH_ASYNQ: &str = "LAPSED_TEST_ASYNQ";

const ASYNQ: System = System {
    source: "asynq",
    key: "default@order:close@",
    produce: |owner, jobs| match std::env::var_os(WITH_ASYNQ) {
        Some(_) => Box::pin(async { asynq_itself(owner, jobs) }),
        None => Box::pin(as_asynq(owner, jobs)),
    },
    line: Line {
        page: "asynq.md",
        begin: "rdb.Set(",
        language: "go",
    },
};

fn asynq_itself(owner: &Owner, jobs: &[(String, usize)]) -> Vec<Value> {
    let home = owner.path().join("asynq");
    std::fs::create_dir_all(&home).unwrap();
    for file in ["go.mod", "main.go"] {
        std::fs::copy(format!("{PROGRAMS}/asynq/{file}"), home.join(file)).unwrap();
    }
    let mut go = Command::new("go");
    go.args(["run", "-mod=mod", "."]).current_dir(&home);
    go.arg(owner.rig.redis.port().to_string());
    let written = printed(go, &json!(jobs).to_string());
    written.as_array().unwrap().clone()
}

/// Writes what asynq writes.
async fn as_asynq(owner: &Owner, jobs: &[(String, usize)]) -> Vec<Value> {
    let mut written = Vec::new();
    for (name, delay) in jobs {
        let due_s = owner.rig.now_ms().await / 1_000 + *delay as i64;
        let payload = json!({ "uid": name }).to_string();
        let task = asynq::Task {
            queue: "default",
            kind: "order:close",
            id: name,
            payload: payload.as_bytes(),
            retry: 25,
            retried: 0,
            due_s,
        };
        asynq::enqueue(&owner.rig, &task).await;
        written.push(json!({ "id": name, "due": due_s * 1_000 }));
    }
    written
}

const BULLMQ: System = System {
    source: "bullmq",
    key: "orders@close@",
    produce: |owner, jobs| {
        Box::pin(async move {
            let jobs: Vec<Value> = jobs
            .iter()
            .map(|(name, delay)| {
                let opts = json!({ "delay": delay * 1_000, "attempts": 3 });
                json!({ "queue": "orders", "name": "close", "data": { "uid": name }, "opts": opts })
            })
            .collect();
            bullmq(&owner.rig, &json!(jobs))
        })
    },
    line: Line {
        page: "bullmq.md",
        begin: "redis.setEx(",
        language: "js",
    },
};

const SIDEKIQ: System = System {
    source: "sidekiq",
    key: "CloseOrder@perform@",
    produce: |owner, jobs| {
        Box::pin(async move {
            let mut ruby = Command::new("ruby");
            ruby.arg(format!("{PROGRAMS}/sidekiq.rb"));
            ruby.arg(owner.rig.redis.port().to_string());
            let written = printed(ruby, &json!(jobs).to_string());
            written.as_array().unwrap().clone()
        })
    },
    line: Line {
        page: "sidekiq.md",
        begin: "redis.set(",
        language: "ruby",
    },
};

/// The producer schedules jobs. Returns the keys of those that are cancelled later.
async fn produce(owner: &mut Owner, system: &System, name: &str, count: usize) -> Vec<String> {
    let batch = batch(name, count);
    let jobs: Vec<(String, usize)> = batch
        .iter()
        .map(|(name, _, delay)| (name.clone(), *delay))
        .collect();
    let mut cancelled = Vec::new();
    let written = (system.produce)(owner, &jobs).await;
    for ((name, fate, _), written) in batch.into_iter().zip(written) {
        owner.wants(name, fate, written["due"].as_i64().unwrap() / 1_000);
        if fate == Fate::Cancelled {
            cancelled.push(format!("{}{}", system.key, written["id"].as_str().unwrap()));
        }
    }
    cancelled
}

/// Copies what waits as the page says: a dry run, then for good.
fn copy(owner: &Owner, system: &System, count: usize) {
    let port = owner.rig.redis.port();
    let command = code_in_text(
        system.line.page,
        &format!("lapsed import {}", system.source),
    )
    .remove(0);
    assert!(command.contains(" --dry-run"), "{command}");
    let command = command.replace("127.0.0.1:6379", &format!("127.0.0.1:{port}"));
    let dry: Vec<&str> = command.split_whitespace().skip(1).collect();
    let planned = owner.shell.json(&dry);
    assert_eq!(planned["created"], count, "{planned}");
    let take: Vec<&str> = dry
        .into_iter()
        .map(|word| if word == "--dry-run" { "--take" } else { word })
        .collect();
    let done = owner.shell.json(&take);
    assert_eq!(
        (&done["created"], &done["taken"]),
        (&json!(count), &json!(count)),
        "{done}"
    );
}

async fn follow(system: &System) {
    let route = format!(
        "[[routes]]\nmatch = \"^(?:{}|{})\"\nexec = [\"php\", \"job.php\"]",
        system.key,
        system.line.keys()
    );
    let mut owner = Owner::with(&route, "job.php", 1).await;
    owner.shell.text(&["migrate"]);
    let mut daemon = owner.listen(&[]).await;
    let part = tasks() / 3;
    for name in ["first", "second"] {
        let cancelled = produce(&mut owner, system, name, part).await;
        copy(&owner, system, part);
        for key in &cancelled {
            owner.shell.text(&["cancel", key]);
        }
        let mut batches = vec![name];
        if name == "second" {
            // The other producers have been changed.
            owner
                .switch(&system.line, "changed", tasks() - 2 * part)
                .await;
            batches.push("changed");
        }
        until("some of each batch have run", async || {
            batches.iter().all(|name| owner.has_run(name) > 3)
        })
        .await;
        owner.restart(&mut daemon).await;
    }
    owner.all_is_well().await;
}

#[tokio::test]
async fn jobs_of_bullmq_run_once_through_everything() {
    follow(&BULLMQ).await;
}

#[tokio::test]
async fn jobs_of_sidekiq_run_once_through_everything() {
    follow(&SIDEKIQ).await;
}

#[tokio::test]
async fn tasks_of_asynq_run_once_through_everything() {
    if std::env::var_os(WITH_ASYNQ).is_none() {
        let what = "asynq's own client; LAPSED_TEST_ASYNQ=1 has Go fetch it";
        not_tried("tasks_of_asynq_run_once_through_everything", what);
    }
    follow(&ASYNQ).await;
}

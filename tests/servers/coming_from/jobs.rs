//! docs/coming-from/bullmq.md and docs/coming-from/sidekiq.md: what waits is copied, while the producers go on.

use std::process::Command;

use serde_json::{Value, json};

use super::owner::{Fate, Owner, PROGRAMS, Wanted, commands_in_text, tasks, window};
use crate::importing::programs::{bullmq, printed};
use crate::support::wait::until;

/// One of the two systems.
struct System {
    page: &'static str,
    /// The word of `lapsed import`.
    source: &'static str,
    /// What keys begin with, before the id.
    key: &'static str,
    /// Schedules jobs of these names and delays in seconds. Returns `id` and `due` of each.
    produce: Produce,
}

type Produce = fn(&Owner, &[(String, usize)]) -> Vec<Value>;

const BULLMQ: System = System {
    page: "bullmq.md",
    source: "bullmq",
    key: "orders@close@",
    produce: |owner, jobs| {
        let jobs: Vec<Value> = jobs
            .iter()
            .map(|(name, delay)| {
                let opts = json!({ "delay": delay * 1_000, "attempts": 3 });
                json!({ "queue": "orders", "name": "close", "data": { "uid": name }, "opts": opts })
            })
            .collect();
        bullmq(&owner.rig, &json!(jobs))
    },
};

const SIDEKIQ: System = System {
    page: "sidekiq.md",
    source: "sidekiq",
    key: "CloseOrder@perform@",
    produce: |owner, jobs| {
        let mut ruby = Command::new("ruby");
        ruby.arg(format!("{PROGRAMS}/sidekiq.rb"));
        ruby.arg(owner.rig.redis.port().to_string());
        let written = printed(ruby, &json!(jobs).to_string());
        written.as_array().unwrap().clone()
    },
};

/// The producer schedules jobs. Returns the keys of those that are cancelled later.
fn produce(owner: &mut Owner, system: &System, batch: &str, count: usize) -> Vec<String> {
    let fates = |number: usize| match number % 10 {
        0 => ("cancel", Fate::Cancelled),
        2 | 3 => ("fail", Fate::FailsOnce),
        _ => ("run", Fate::Runs),
    };
    let jobs: Vec<(String, usize)> = (0..count)
        .map(|number| {
            let name = format!("{}-{batch}-{number}", fates(number).0);
            (name, 12 + number * window() / count)
        })
        .collect();
    let mut cancelled = Vec::new();
    let written = (system.produce)(owner, &jobs);
    for (number, ((name, _), written)) in jobs.into_iter().zip(written).enumerate() {
        let fate = fates(number).1;
        let due_s = written["due"].as_i64().unwrap() / 1_000;
        let watched = true;
        let wanted = Wanted {
            fate,
            due_s,
            watched,
        };
        assert!(owner.wanted.insert(name, wanted).is_none());
        if fate == Fate::Cancelled {
            cancelled.push(format!("{}{}", system.key, written["id"].as_str().unwrap()));
        }
    }
    cancelled
}

/// Copies what waits as the page says: a dry run, then for good.
fn copy(owner: &Owner, system: &System, count: usize) {
    let port = owner.rig.redis.port();
    let mut begin = commands_in_text(system.page, &format!("lapsed import {}", system.source));
    let command = begin.remove(0);
    assert!(command.contains(&"--dry-run".to_owned()), "{command:?}");
    let command: Vec<String> = command
        .into_iter()
        .skip(1)
        .map(|word| word.replace("127.0.0.1:6379", &format!("127.0.0.1:{port}")))
        .collect();
    let words: Vec<&str> = command.iter().map(String::as_str).collect();
    let planned = owner.shell.json(&words);
    assert_eq!(planned["created"], count, "{planned}");
    let take: Vec<&str> = words
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
        "[[routes]]\nmatch = \"^{}\"\nexec = [\"php\", \"job.php\"]",
        system.key
    );
    let mut owner = Owner::with(&route, "job.php", 1).await;
    owner.shell.text(&["migrate"]);
    let mut daemon = owner.listen(&[]).await;
    let part = tasks() / 2;
    for (batch, count) in [("first", part), ("second", tasks() - part)] {
        let cancelled = produce(&mut owner, system, batch, count);
        copy(&owner, system, count);
        for key in &cancelled {
            owner.shell.text(&["cancel", key]);
        }
        until("some of the batch have run", async || {
            owner.has_run(batch) > 3
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

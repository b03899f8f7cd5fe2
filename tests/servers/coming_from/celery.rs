//! docs/coming-from/celery.md: Celery finishes what it holds, beside tasks that a changed program schedules.

use std::path::Path;
use std::process::{Child, Command, Stdio};

use serde_json::json;

use super::owner::{Fate, Owner, PROGRAMS, batch, block, code_in_text, tasks};
use super::switched::Line;
use crate::importing::programs::printed;
use crate::support::redis_commands::ask;
use crate::support::registry;
use crate::support::wait::until;

const PAGE: &str = "celery.md";

const LINE: Line = Line {
    page: PAGE,
    begin: "redis.set(",
    language: "python",
};

/// A worker of Celery, with its broker in a database of its own.
struct Worker(Child);

impl Worker {
    fn start(owner: &Owner) -> Self {
        let mut command = python(owner);
        command.args(["-m", "celery", "--app", "shop", "worker", "--pool", "solo"]);
        let log = std::fs::File::create(owner.path().join("celery.log")).unwrap();
        command.stderr(log.try_clone().unwrap()).stdout(log);
        Self(command.stdin(Stdio::null()).spawn().unwrap())
    }
}

impl Drop for Worker {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

fn python(owner: &Owner) -> Command {
    let home = registry::pip(&Path::new(PROGRAMS).join("celery"));
    let mut command = Command::new("python3");
    command.env("PYTHONPATH", home.join("packages"));
    command.env("SHOP_BROKER", owner.rig.redis.url());
    command.env("SHOP_RAN", owner.path().join("ran"));
    command.current_dir(home);
    command
}

/// The producer schedules the task of the page and a batch, of which it revokes some.
fn produce(owner: &mut Owner, name: &str, count: usize) {
    let line = code_in_text(PAGE, "close.apply_async(").remove(0);
    assert!(line.contains("(42,), countdown=1800"), "{line}");
    let batch = batch(name, count);
    let mut lines = vec![json!([line, 1_800, false])];
    lines.extend(batch.iter().map(|(name, fate, delay)| {
        let line = line.replace("42", &format!("'{name}'"));
        let line = line.replace("1800", &delay.to_string());
        json!([line, delay, *fate == Fate::Cancelled])
    }));
    let mut command = python(owner);
    command.arg("schedule.py");
    let not_before = printed(command, &json!(lines).to_string());
    for (number, (name, fate, _)) in batch.into_iter().enumerate() {
        let due_ms = not_before[number + 1].as_i64().unwrap();
        owner.wants(name, fate, due_ms / 1_000);
    }
}

#[tokio::test]
async fn tasks_of_celery_and_changed_ones_run_once_through_everything() {
    let mut owner = Owner::with(&block(PAGE, "toml"), "task.py", 1).await;
    let _worker = Worker::start(&owner);
    let part = tasks() / 2;
    produce(&mut owner, "held", part);
    owner.shell.text(&["migrate"]);
    let mut daemon = owner.listen(&[]).await;
    owner.switch(&LINE, "changed", tasks() - part).await;
    until("some of each batch have run", async || {
        owner.has_run("held") > 3 && owner.has_run("changed") > 3
    })
    .await;
    owner.restart(&mut daemon).await;
    owner.all_is_well().await;

    // Each has kept to its own: Celery holds the task of the page, and `lapsed` has no row for what was Celery's.
    until("Celery holds one task", async || {
        let mut broker = owner.rig.redis.connect(0).await.unwrap();
        let held: i64 = ask(&mut broker, &["HLEN", "unacked"]).await;
        let waiting: i64 = ask(&mut broker, &["LLEN", "celery"]).await;
        (held, waiting) == (1, 0)
    })
    .await;
    let rows = "SELECT COUNT(*) FROM tb_time_limit_task WHERE `key` NOT LIKE 'Order@close@%' OR `key` LIKE '%-held-%'";
    assert_eq!(owner.rig.number(rows).await, 0);
}

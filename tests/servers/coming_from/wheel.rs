//! docs/coming-from/time-wheel.md.

use serde_json::json;

use super::owner::{Fate, Owner, commands, tasks};
use crate::support::wait::until;

const PAGE: &str = "time-wheel.md";

impl Owner {
    /// Tasks that lists cannot cancel run.
    fn push(&mut self, batch: &str, count: usize) {
        for (name, _) in self.schedule(batch, "entry.add", count, &json!({})) {
            let wanted = self.wanted.get_mut(&name).unwrap();
            if wanted.fate == Fate::Cancelled {
                wanted.fate = Fate::Runs;
            }
        }
    }

    async fn until_taken(&self) {
        until("no entry waits in a list", async || {
            let lists: Vec<String> = self.rig.redis_says(&["KEYS", "task_[0-9]*"]).await;
            let taken: i64 = self.rig.redis_says(&["HLEN", "task_lapsed:taken"]).await;
            lists.is_empty() && taken == 0
        })
        .await;
    }
}

#[tokio::test]
async fn entries_of_a_wheel_run_once_through_everything() {
    let mut owner = Owner::new(PAGE, "send-msg.php").await;
    let part = tasks() / 4;
    owner.push("before", part);
    // For whole hours: not in this test's time, and not an hour early.
    let hours: Vec<_> = (0..part)
        .map(|n| json!({ "do": "entry.add", "name": format!("hours-{n}"), "delay": 3_600 * (24 + n % 49) }))
        .collect();
    let long = owner.php(&hours);
    owner.install();
    // The old timer has stopped now. Some visits are missed before the daemon starts.
    let stopped = lapsed::UnixMs(owner.rig.now_ms().await / 1_000 * 1_000);
    let first = owner
        .wanted
        .values()
        .map(|wanted| wanted.due_s)
        .min()
        .unwrap();
    owner
        .rig
        .until_clock(lapsed::UnixMs((first + 3) * 1_000))
        .await;
    for wanted in owner.wanted.values_mut() {
        wanted.watched = wanted.due_s > first + 6;
    }
    let command = commands(PAGE, "lapsed listen --wheel-stopped-at").remove(0);
    let time = stopped.to_string();
    let mut daemon = owner.listen(&[&command[2], &time]).await;
    owner.until_taken().await;
    owner.save().await;
    owner.push("first", part);
    owner.until_taken().await;
    // Before the visits of those entries: they are in the data, and pushed again on purpose.
    owner.restore().await;
    owner.push("restored", part);
    owner.until_taken().await;
    owner.restart(&mut daemon).await;
    owner.push("restarted", tasks() - 3 * part);
    owner.all_is_well().await;
    for (number, written) in long.iter().enumerate() {
        let query = format!(
            "SELECT CAST(MIN(end_time) AS SIGNED) FROM tb_time_limit_task WHERE payload LIKE '%\"hours-{number}\"%'"
        );
        let due_s = written["due_s"].as_i64().unwrap();
        let apart = owner.rig.number(query).await - due_s;
        assert!(apart == 0 || apart == 3_600, "hours-{number}: {apart} s");
        let rows = format!(
            "SELECT COUNT(*) FROM tb_time_limit_task WHERE payload LIKE '%\"hours-{number}\"%'"
        );
        assert_eq!(owner.rig.number(rows).await, 1);
    }
}

#[tokio::test]
async fn entries_without_a_route_are_named_and_stay() {
    let mut owner = Owner::new(PAGE, "send-msg.php").await;
    // A daemon that starts after their visit makes up for it. Otherwise it would wait for the next one, an hour later.
    let stopped = lapsed::UnixMs(owner.rig.now_ms().await / 1_000 * 1_000).to_string();
    owner.push("mine", 3);
    let soon = owner.rig.now_ms().await / 1_000 + 600;
    let list = format!("task_{}", soon % 3_600);
    let other = r#"{"method":"other","params":{"uid":1},"cycle_num":0}"#;
    for _ in 0..2 {
        let _: i64 = owner.rig.redis_says(&["RPUSH", &list, other]).await;
    }
    owner.shell.text(&["migrate"]);
    let (code, stdout, _) = owner.shell.run(&["doctor"]);
    assert_eq!(code, 0);
    let says = "no route takes 2 entries with the key `Wheel@other@~..`";
    assert!(stdout.contains(says), "{stdout}");
    let daemon = owner.listen(&["--wheel-stopped-at", &stopped]).await;
    daemon
        .until_logged("no route adopts a key such as `Wheel@other@~..`")
        .await;
    owner.all_is_well().await;
    let warnings = daemon.log().matches("entries of this method stay").count();
    assert_eq!(warnings, 1);
    let left: i64 = owner.rig.redis_says(&["LLEN", &list]).await;
    assert_eq!(left, 2);
}

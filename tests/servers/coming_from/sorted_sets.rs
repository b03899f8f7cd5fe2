//! docs/coming-from/sorted-set.md, and docs/coming-from/sorted-set-and-table.md.

use serde_json::{Value, json};

use super::owner::{Fate, Owner, tasks};
use crate::support::wait::until;

/// One of the two designs.
struct Design {
    page: &'static str,
    script: &'static str,
    set: &'static str,
    add: &'static str,
    again: &'static str,
    cancel: &'static str,
}

impl Owner {
    /// Tasks of which some are moved and some cancelled, by the owner's own functions. Those are done later.
    fn batch(&mut self, design: &Design, name: &str, count: usize) -> Vec<Value> {
        let scheduled = self.schedule(name, design.add, count, &json!({}));
        let mut later = Vec::new();
        for (number, (name, written)) in scheduled.into_iter().enumerate() {
            match self.wanted[&name].fate {
                Fate::Cancelled => later.push(json!({ "do": design.cancel, "name": name })),
                Fate::Runs if number % 10 == 5 => later.push(
                    json!({ "do": design.again, "name": name, "id": written["id"], "delay": 20 }),
                ),
                _ => {}
            }
        }
        later
    }

    /// Does what was left for later.
    fn change(&mut self, changes: &[Value]) {
        for (change, written) in changes.iter().zip(self.php(changes)) {
            if let Some(due_s) = written["due_s"].as_i64() {
                let name = change["name"].as_str().unwrap();
                self.wanted.get_mut(name).unwrap().due_s = due_s;
            }
        }
    }

    async fn until_acknowledged(&self, set: &str) {
        until("nothing waits in the set for its row", async || {
            let waits: i64 = self
                .rig
                .redis_says(&["ZCOUNT", set, "-inf", "(100000000000000"])
                .await;
            waits == 0
        })
        .await;
    }

    /// Waits until the entries of this server process have been compared with the tasks. Until then, one that is missing
    /// counts as lost, and not as removed.
    async fn until_kept(&self, set: &str) {
        let info: String = self.rig.redis_says(&["INFO", "server"]).await;
        let run_id = info.lines().find_map(|line| line.strip_prefix("run_id:"));
        let kept = format!("#lapsed:kept:{}:", run_id.unwrap());
        until("the mark of the set is kept", async || {
            let words = ["ZRANGEBYSCORE", set, "inf", "inf"];
            let marks: Vec<String> = self.rig.redis_says(&words).await;
            marks.iter().any(|mark| mark.starts_with(&kept))
        })
        .await;
    }
}

async fn follow(design: &Design) {
    let mut owner = Owner::new(design.page, design.script).await;
    if design.add == "row.add" {
        owner.php(&[json!({ "do": "row.tables" })]);
    }
    let part = tasks() / 4;
    // The old consumer has been stopped: these wait, and are changed, before there is a daemon.
    let changes = owner.batch(design, "before", part);
    owner.change(&changes);
    owner.install();
    let mut daemon = owner.listen(&[]).await;
    let changes = owner.batch(design, "first", part);
    owner.until_acknowledged(design.set).await;
    owner.until_kept(design.set).await;
    // What is changed now is as before in the snapshot.
    owner.save().await;
    owner.change(&changes);
    owner.until_acknowledged(design.set).await;
    let cancelled = changes
        .iter()
        .filter(|change| change["do"] == design.cancel)
        .count() as i64;
    until("the cancelled tasks are cancelled", async || {
        owner.rig.with_status(3).await >= cancelled
    })
    .await;
    owner.restore().await;
    owner.until_kept(design.set).await;
    let changes = owner.batch(design, "restored", part);
    owner.change(&changes);
    owner.until_acknowledged(design.set).await;
    owner.restart(&mut daemon).await;
    let changes = owner.batch(design, "restarted", tasks() - 3 * part);
    owner.change(&changes);
    owner.all_is_well().await;
    // Entries of tasks that have ended since the snapshot are left until an audit; none of them is a request.
    owner.until_acknowledged(design.set).await;
    if design.add == "row.add" {
        let with = async |status: u8| {
            let query = format!("SELECT COUNT(*) FROM delay_queue WHERE status = {status}");
            owner.rig.number(query).await
        };
        let fates = |fate: Fate| {
            owner
                .wanted
                .values()
                .filter(|wanted| wanted.fate == fate)
                .count() as i64
        };
        assert_eq!(with(20).await, fates(Fate::Never));
        assert_eq!(with(30).await, fates(Fate::Cancelled));
        assert_eq!(with(10).await, fates(Fate::Runs) + fates(Fate::FailsOnce));
    }
}

#[tokio::test]
async fn members_of_a_sorted_set_run_once_through_everything() {
    follow(&Design {
        page: "sorted-set.md",
        script: "order-timeout.php",
        set: "order",
        add: "member.add",
        again: "member.add",
        cancel: "member.cancel",
    })
    .await;
}

#[tokio::test]
async fn rows_behind_a_sorted_set_run_once_through_everything() {
    follow(&Design {
        page: "sorted-set-and-table.md",
        script: "run-delay-queue.php",
        set: "delay_queue_job",
        add: "row.add",
        again: "row.move",
        cancel: "row.cancel",
    })
    .await;
}

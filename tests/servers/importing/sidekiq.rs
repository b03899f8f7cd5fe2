//! Sidekiq, from Debian.

use serde_json::json;

use super::programs::sidekiq;
use super::{Imported, assert_unchanged, import, tasks};
use crate::support::rig::Rig;
use crate::support::shell::Shell;

#[tokio::test]
async fn scheduled_jobs_and_retries_keep_due_time_arguments_and_attempts() {
    let rig = Rig::new("").await;
    let shell = Shell::of(&rig);
    let jobs = sidekiq(&rig);
    assert_eq!(jobs.len(), 4, "{jobs:?}");
    let report = import(&shell, &["sidekiq"]);
    assert_eq!(
        report.counts(["created", "refused"]),
        [4, 0],
        "{}",
        report.stderr
    );

    let found = tasks(&rig).await;
    let of = |jid: &str| {
        let mut tasks = found.iter().filter(|(key, _)| key.ends_with(jid));
        tasks.next().unwrap_or_else(|| panic!("{jid} in {found:?}"))
    };
    for job in &jobs {
        let at = job["at"].as_f64().unwrap();
        let (key, task) = of(job["jid"].as_str().unwrap());
        let late = at * 1000.0 - task.due as f64;
        assert!(
            (-0.001..1.0).contains(&late),
            "{key}: {at} is not {}",
            task.due
        );
    }
    let in_set = |name: &str, from: usize| -> Vec<(&str, &Imported)> {
        let jobs = jobs.iter().filter(|job| job["set"] == name);
        let jobs = jobs.map(|job| of(job["jid"].as_str().unwrap()));
        jobs.skip(from)
            .map(|(key, task)| (key.as_str(), task))
            .collect()
    };
    let [(worker, first), (shop, second), ..] = in_set("schedule", 0)[..] else {
        panic!("{jobs:?}");
    };
    assert!(worker.starts_with("HardWorker@perform@"), "{worker}");
    assert_eq!(first.payload, json!([42, "unpaid", { "amount": 1.5 }]));
    assert_eq!((first.attempt, first.max_attempts), (0, Some(6)));
    assert!(shop.starts_with("Shop::Close@perform@"), "{shop}");
    assert_eq!(second.payload, json!(["拍賣"]));
    assert_eq!((second.attempt, second.max_attempts), (0, Some(1)));
    // The second run has failed: `retry_count` is 1.
    let [(_, retried)] = in_set("retry", 0)[..] else {
        panic!("{jobs:?}");
    };
    assert_eq!((retried.attempt, retried.max_attempts), (2, Some(6)));

    assert_eq!(
        import(&shell, &["sidekiq"]).counts(["created", "moved", "known"]),
        [0, 0, 4]
    );
    assert_unchanged(&rig, &found).await;

    let report = import(&shell, &["sidekiq", "--queue", "mail", "--take"]);
    assert_eq!(report.counts(["known", "taken"]), [2, 2]);
    for (set, left) in [("schedule", 2), ("retry", 0)] {
        assert_eq!(rig.redis_says::<i64>(&["ZCARD", set]).await, left, "{set}");
    }
}

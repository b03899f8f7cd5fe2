//! Finished rows are forgotten, and nothing else is.

use std::num::NonZeroU32;
use std::ops::ControlFlow;
use std::time::Duration;

use lapsed::client::{Pace, Pruning};
use lapsed::task::State;
use serde_json::json;

use crate::support::maria::numbers;
use crate::support::process::Process;
use crate::support::rig::Rig;
use crate::support::shell::Shell;
use crate::support::wait::until;

/// Rows of every kind, `count` each: old (two hours) and young.
pub async fn rows(rig: &Rig, count: u32) {
    let numbers = numbers(count.into());
    // What they are called, status, sts, due, finished, lease: seconds from now.
    let kinds = [
        ("done_old", 1, 0, -7200, Some(-7200), 0),
        ("done_called_off", 1, 1, -7200, Some(-7200), 0),
        ("done_young", 1, 0, -7200, Some(-60), 0),
        ("done_legacy", 1, 0, -7200, None, 0),
        ("done_legacy_young", 1, 0, -60, None, 0),
        ("dead_old", 2, 0, -7200, Some(-7200), 0),
        ("dead_young", 2, 0, -7200, Some(-60), 0),
        ("cancelled_old", 3, 1, -7200, Some(-7200), 0),
        ("cancelled_ahead", 3, 1, 7200, Some(-7200), 0),
        ("pending_old", 0, 0, -7200, None, 0),
        ("pending_marked", 0, 0, -7200, Some(-7200), 0),
        ("pending_ahead", 0, 0, 7200, None, 0),
        ("running_old", 0, 0, -7200, None, 600),
        ("deleted_old", 0, 1, -7200, None, 0),
    ];
    for (name, status, sts, due, finished, lease) in kinds {
        let finished = finished.map_or("NULL".to_owned(), |at| format!("UNIX_TIMESTAMP() + {at}"));
        let lease = if lease > 0 {
            "UNIX_TIMESTAMP() + 600"
        } else {
            "0"
        };
        rig.run_sql(&format!(
            "INSERT INTO tb_time_limit_task (`key`, status, sts, start_time, end_time, finished_at, lease_until) \
             SELECT CONCAT('Kept@{name}@', seq), {status}, {sts}, UNIX_TIMESTAMP() - 9000, UNIX_TIMESTAMP() + {due}, {finished}, {lease} \
             FROM {numbers}"
        ))
        .await;
    }
}

/// Which kinds are left, with how many of each.
pub async fn left(rig: &Rig) -> Vec<(String, i64)> {
    let question = "SELECT SUBSTRING_INDEX(SUBSTRING_INDEX(`key`, '@', 2), '@', -1) AS kind, COUNT(*) \
                    FROM tb_time_limit_task GROUP BY kind ORDER BY kind";
    sqlx::query_as(question).fetch_all(&rig.sql).await.unwrap()
}

pub fn names(left: &[(String, i64)]) -> Vec<&str> {
    left.iter().map(|(name, _)| name.as_str()).collect()
}

const PENDING: [&str; 5] = [
    "deleted_old",
    "pending_ahead",
    "pending_marked",
    "pending_old",
    "running_old",
];

#[tokio::test]
async fn retention_deletes_old_finished_rows_and_no_others() {
    let rig = Rig::new("retention = { done = '1h', dead = '1h', cancelled = '1h' }").await;
    rows(&rig, 700).await;
    // It can run none of them.
    let daemon = rig.daemon();
    let expected = [
        "cancelled_ahead",
        "dead_young",
        "deleted_old",
        "done_legacy_young",
        "done_young",
        "pending_ahead",
        "pending_marked",
        "pending_old",
        "running_old",
    ];
    crate::support::wait::until_within(
        std::time::Duration::from_secs(120),
        "what is old is gone",
        async || left(&rig).await.len() == expected.len(),
    )
    .await;
    let kept = left(&rig).await;
    assert_eq!(names(&kept), expected);
    assert!(kept.iter().all(|(_, count)| *count == 700), "{kept:?}");
    until("they are counted", async || {
        daemon.metric("lapsed_pruned_total{state=\"done\"}") == 2_100.0
    })
    .await;
    daemon.stop().await;
}

#[tokio::test]
async fn sighup_reloads_retention_and_reports_settings_that_need_a_restart() {
    let rig = Rig::new("").await;
    rows(&rig, 3).await;
    let daemon = Process::listen(&rig, &[]);
    daemon.until_logged("no handler and no route").await;
    let more = "\n[retention]\ndone = '60s'\n[sweep]\ninterval = '2s'\n";
    std::fs::write(daemon.config(), rig.config_text() + more).unwrap();
    daemon.signal(rustix::process::Signal::HUP);
    daemon.until_logged("retention=\"on\"").await;
    daemon.until_logged("sections=\"sweep\"").await;
    until("what is old is gone", async || {
        !names(&left(&rig).await).contains(&"done_old")
    })
    .await;
    let kept = left(&rig).await;
    assert!(names(&kept).contains(&"cancelled_old"), "{kept:?}");
}

#[tokio::test]
async fn manual_pruning_counts_first_and_requires_an_age() {
    let rig = Rig::new("").await;
    rows(&rig, 30).await;
    let shell = Shell::of(&rig);
    let (code, _, error) = shell.run(&["prune"]);
    assert_eq!(code, 2);
    assert!(error.contains("no age is set"), "{error}");
    for wrong in [
        &["prune", "--state", "pending", "--keep", "0"][..],
        &["prune", "--older-than", "7"],
    ] {
        assert_eq!(shell.run(wrong).0, 2, "{wrong:?}");
    }

    let dry = shell.json(&["prune", "--older-than", "1h", "--dry-run"]);
    assert_eq!(
        dry,
        json!({ "pruned": { "done": 90, "cancelled": 30 }, "dry_run": true })
    );
    assert_eq!(left(&rig).await.len(), 14);
    let all = [
        "prune",
        "--older-than",
        "1h",
        "--state",
        "done,dead,cancelled",
    ];
    assert_eq!(shell.text(&all), "90 done, 30 dead, 30 cancelled pruned\n");
    let kept = left(&rig).await;
    assert!(
        PENDING.iter().all(|name| names(&kept).contains(name)),
        "{kept:?}"
    );
    // The rest is a minute old: surplus, as far as it goes.
    let kept = shell.json(&["prune", "--keep", "10", "--state", "done"]);
    assert_eq!(kept["pruned"]["done"], 50);
    let everything = [
        "prune",
        "--older-than",
        "0s",
        "--state",
        "done,dead,cancelled",
    ];
    shell.text(&everything);
    let kept = left(&rig).await;
    let mut expected = PENDING.to_vec();
    expected.insert(0, "cancelled_ahead");
    assert_eq!(names(&kept), expected);
    assert!(kept.iter().all(|(_, count)| *count == 30), "{kept:?}");
}

#[tokio::test]
async fn manual_pruning_starts_before_counting_ends_and_stops_when_interrupted() {
    const ROWS: i64 = 25_000;
    let rig = Rig::new("").await;
    rig.run_sql(&format!(
        "INSERT INTO tb_time_limit_task (`key`, status, sts, start_time, end_time, finished_at) \
         SELECT CONCAT('Kept@done@', seq), 1, 0, UNIX_TIMESTAMP() - 9000, UNIX_TIMESTAMP() - 7200, UNIX_TIMESTAMP() - 7200 FROM {}",
        numbers(ROWS)
    ))
    .await;
    let client = rig.client().await;
    let rows = async || rig.number("SELECT COUNT(*) FROM tb_time_limit_task").await;
    let pace = Pace::per_second(NonZeroU32::new(1_000_000).unwrap());
    let real = Pruning {
        state: State::Done,
        older_than: Some(Duration::from_secs(3600)),
        keep: None,
        archive: false,
        dry_run: false,
    };
    let dry_run = Pruning {
        dry_run: true,
        ..real
    };
    let counted = client.prune_each(dry_run, pace, |_| ControlFlow::Break(()));
    assert_eq!(counted.await.unwrap(), 500, "it counts one page");
    assert_eq!(client.prune(dry_run, pace).await.unwrap(), ROWS as u64);
    let () = rig.redis_says(&["CONFIG", "RESETSTAT"]).await;
    let pruned = client.prune_each(real, pace, |_| ControlFlow::Break(()));
    assert_eq!(pruned.await.unwrap(), 500, "it deletes one batch");
    assert_eq!(rows().await, ROWS - 500);
    let asked = rig.redis_calls("pttl").await;
    assert!(
        (1..=2_500).contains(&asked),
        "{asked} keys were asked for before the first row was deleted"
    );
    let mut said = Vec::new();
    let pruned = client.prune_each(real, pace, |count| {
        said.push(count);
        ControlFlow::Continue(())
    });
    assert_eq!(pruned.await.unwrap(), ROWS as u64 - 500);
    assert!(said.is_sorted() && said.len() == 49, "{said:?}");
    assert_eq!(rows().await, 0);
}

//! Finished rows are archived, and can still be read.

use serde_json::json;

use crate::end_to_end::retention::{left, names, rows};
use crate::support::process::Process;
use crate::support::rig::Rig;
use crate::support::shell::Shell;
use crate::support::wait::{until, until_within};

const SETTINGS: &str = "retention = { done = '1h', dead = '1h', cancelled = '1h', archive = true, archive_keep = '365d' }";

const ARCHIVED: &str = "SELECT COUNT(*) FROM tb_time_limit_task_archive";

/// Kinds of rows that are not old enough, or have not finished.
const KEPT: [&str; 9] = [
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

#[tokio::test]
async fn retention_archives_old_finished_rows_and_no_others() {
    let rig = Rig::new(SETTINGS).await;
    let shell = Shell::of(&rig);
    let migrated = shell.json(&["migrate"]);
    let step = migrated["steps"][0]["sql"].as_str().unwrap();
    assert!(
        step.contains("PARTITION BY RANGE (`ended_ms`)"),
        "{migrated}"
    );
    assert_eq!(shell.json(&["migrate"])["steps"], json!([]));
    rows(&rig, 700).await;
    let daemon = rig.daemon();
    until_within(
        std::time::Duration::from_secs(120),
        "what is old is archived",
        async || left(&rig).await.len() == KEPT.len(),
    )
    .await;
    let kept = left(&rig).await;
    assert_eq!(names(&kept), KEPT);
    assert!(kept.iter().all(|(_, count)| *count == 700), "{kept:?}");
    let kinds =
        "SELECT COUNT(DISTINCT SUBSTRING_INDEX(`key`, '@', 2)) FROM tb_time_limit_task_archive";
    assert_eq!(rig.number(kinds).await, 5);
    assert_eq!(rig.number(ARCHIVED).await, 5 * 700);
    until("they are counted", async || {
        daemon.metric("lapsed_pruned_total{state=\"done\"}") == 2_100.0
    })
    .await;
    daemon.stop().await;
}

#[tokio::test]
async fn a_daemon_without_an_archive_deletes_nothing_until_it_is_created() {
    let rig = Rig::new(SETTINGS).await;
    rows(&rig, 3).await;
    let daemon = Process::listen(&rig, &[]);
    daemon
        .until_logged("there is no table `tb_time_limit_task_archive`")
        .await;
    let kept = left(&rig).await;
    assert_eq!(kept.len(), 14, "{kept:?}");
    assert!(kept.iter().all(|(_, count)| *count == 3), "{kept:?}");
    Shell::of(&rig).text(&["migrate"]);
    until_within(
        std::time::Duration::from_secs(120),
        "it goes on by itself",
        async || left(&rig).await.len() == KEPT.len(),
    )
    .await;
    assert_eq!(rig.number(ARCHIVED).await, 5 * 3);
}

#[tokio::test]
async fn the_command_line_archives_lists_and_shows() {
    let rig = Rig::new(SETTINGS).await;
    let shell = Shell::of(&rig);
    shell.text(&["migrate"]);
    rows(&rig, 3).await;
    let all = ["prune", "--state", "done,dead,cancelled"];
    let dry = shell.json(&[&all[..], &["--dry-run"]].concat());
    let counts = json!({ "done": 9, "dead": 3, "cancelled": 3 });
    assert_eq!(
        dry,
        json!({ "pruned": counts, "archived": true, "dry_run": true })
    );
    assert_eq!(shell.text(&all), "9 done, 3 dead, 3 cancelled archived\n");
    assert_eq!(rig.number(ARCHIVED).await, 15);

    let dead = shell.json_lines(&["list", "--archived", "--state", "dead"]);
    assert_eq!(dead.len(), 3);
    assert!(dead.iter().all(|task| task["archived"] == true), "{dead:?}");
    let id = dead[0]["id"].as_str().unwrap();
    let by_id = shell.json(&["show", "--archived", id]);
    let by_key = shell.json(&["show", "--archived", "Kept@dead_old@1"]);
    assert_eq!(
        (&by_id["key"], &by_id),
        (&json!("Kept@dead_old@1"), &by_key)
    );
    let shown = shell.text(&["show", "--archived", id]);
    assert!(shown.contains("archived      yes"), "{shown}");

    let (code, _, error) = shell.run(&["show", "Kept@dead_old@1"]);
    assert_eq!(code, 1);
    assert!(
        error.contains("but an archived one: `lapsed show --archived 'Kept@dead_old@1'`"),
        "{error}"
    );
    let (code, _, error) = shell.run(&["show", "--archived", "Kept@dead_old@9"]);
    assert_eq!(code, 1);
    assert!(error.contains("there is no archived task"), "{error}");
    // Not those that the table has.
    assert_eq!(shell.run(&["show", "--archived", "Kept@dead_young@1"]).0, 1);

    let deleted = ["prune", "--older-than", "0s", "--no-archive"];
    assert_eq!(shell.text(&deleted), "6 done, 0 cancelled pruned\n");
    assert_eq!(rig.number(ARCHIVED).await, 15);
}

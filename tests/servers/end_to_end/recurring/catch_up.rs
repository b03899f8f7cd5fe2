//! What a daemon that was away does about what it missed.

use lapsed::UnixMs;
use lapsed::task::CatchUp;

use super::{begun_ago, dues, every};
use crate::support::daemon::Daemon;
use crate::support::rig::Rig;
use crate::support::scene::Scene;
use crate::support::wait::until;

#[tokio::test]
async fn a_restarted_daemon_skips_missed_occurrences() {
    missed_occurrences_are_left_out(&Rig::new("").await).await;
}

pub async fn missed_occurrences_are_left_out(scene: &impl Scene) {
    let start = begun_ago(scene, "Job@record@1", every(3_000), 61_000).await;
    let daemon = Daemon::start(&scene.config(), scene.handlers());
    until("it has run", async || !scene.runs().await.is_empty()).await;
    let first = scene.runs().await.remove(0);
    assert_eq!((first.due_ms - start.0) % 3_000, 0, "on schedule");
    assert!(first.due_ms >= start.0 + 60_000, "{first:?} of {start:?}");
    let skipped = "lapsed_occurrences_skipped_total";
    daemon.until_counted(skipped, |count| count >= 20.0).await;
}

#[tokio::test]
async fn a_restarted_daemon_runs_one_occurrence_for_all_missed() {
    missed_occurrences_are_made_up_for_once(&Rig::new("").await).await;
}

pub async fn missed_occurrences_are_made_up_for_once(scene: &impl Scene) {
    let rule = every(60_000).catch_up(CatchUp::Once);
    let start = begun_ago(scene, "Job@record@1", rule, 605_000).await;
    let _daemon = Daemon::start(&scene.config(), scene.handlers());
    until("it goes on", async || {
        scene.record("Job@record@1").await.due > start
    })
    .await;
    assert_eq!(dues(&scene.runs().await), [start.0]);
    let next = scene.record("Job@record@1").await;
    assert_eq!(next.due, UnixMs(start.0 + 660_000));
}

#[tokio::test]
async fn a_restarted_daemon_runs_missed_occurrences_up_to_a_maximum() {
    missed_occurrences_are_run_up_to_a_number(&Rig::new("").await).await;
}

pub async fn missed_occurrences_are_run_up_to_a_number(scene: &impl Scene) {
    let all = every(60_000).catch_up(CatchUp::All);
    let start = begun_ago(scene, "Job@record@1", all.clone(), 305_000).await;
    let few = begun_ago(scene, "Job@record@2", all.catch_up_max(2), 605_000).await;
    let daemon = Daemon::start(&scene.config(), scene.handlers());
    until("both go on", async || {
        scene.record("Job@record@1").await.due.0 == start.0 + 360_000
            && scene.record("Job@record@2").await.due.0 == few.0 + 660_000
    })
    .await;
    let runs = scene.runs_of("Job@record@1").await;
    let expected: Vec<i64> = (0..6).map(|n| start.0 + n * 60_000).collect();
    assert_eq!(dues(&runs), expected);
    let runs = scene.runs_of("Job@record@2").await;
    assert_eq!(dues(&runs), [few.0 + 540_000, few.0 + 600_000]);
    let skipped = "lapsed_occurrences_skipped_total";
    daemon.until_counted(skipped, |count| count == 9.0).await;
}

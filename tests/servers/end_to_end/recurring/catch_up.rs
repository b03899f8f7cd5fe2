//! What a daemon that was away does about what it missed.

use lapsed::UnixMs;
use lapsed::task::CatchUp;

use super::{begun_ago, dues, every};
use crate::support::rig::Rig;
use crate::support::wait::until;

#[tokio::test]
async fn a_daemon_that_was_away_leaves_out_what_was_missed() {
    let rig = Rig::new("").await;
    let start = begun_ago(&rig, "Job@record@1", every(3_000), 61_000).await;
    let daemon = rig.daemon();
    until("it has run", async || !rig.runs().await.is_empty()).await;
    let first = rig.runs().await.remove(0);
    assert_eq!((first.due_ms - start.0) % 3_000, 0, "on schedule");
    assert!(first.due_ms >= start.0 + 60_000, "{first:?} of {start:?}");
    let skipped = "lapsed_occurrences_skipped_total";
    daemon.until_counted(skipped, |count| count >= 20.0).await;
}

#[tokio::test]
async fn a_daemon_that_was_away_makes_up_once_for_all_that_was_missed() {
    let rig = Rig::new("").await;
    let rule = every(60_000).catch_up(CatchUp::Once);
    let start = begun_ago(&rig, "Job@record@1", rule, 605_000).await;
    let _daemon = rig.daemon();
    until("it goes on", async || {
        rig.record("Job@record@1").await.due > start
    })
    .await;
    assert_eq!(dues(&rig.runs().await), [start.0]);
    let next = rig.record("Job@record@1").await;
    assert_eq!(next.due, UnixMs(start.0 + 660_000));
}

#[tokio::test]
async fn a_daemon_that_was_away_runs_each_that_was_missed_up_to_a_number() {
    let rig = Rig::new("").await;
    let all = every(60_000).catch_up(CatchUp::All);
    let start = begun_ago(&rig, "Job@record@1", all.clone(), 305_000).await;
    let few = begun_ago(&rig, "Job@record@2", all.catch_up_max(2), 605_000).await;
    let daemon = rig.daemon();
    until("both go on", async || {
        rig.record("Job@record@1").await.due.0 == start.0 + 360_000
            && rig.record("Job@record@2").await.due.0 == few.0 + 660_000
    })
    .await;
    let runs = rig.runs_of("Job@record@1").await;
    let expected: Vec<i64> = (0..6).map(|n| start.0 + n * 60_000).collect();
    assert_eq!(dues(&runs), expected);
    let runs = rig.runs_of("Job@record@2").await;
    assert_eq!(dues(&runs), [few.0 + 540_000, few.0 + 600_000]);
    let skipped = "lapsed_occurrences_skipped_total";
    daemon.until_counted(skipped, |count| count == 9.0).await;
}

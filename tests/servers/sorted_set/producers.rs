//! Producers of a sorted set go on unchanged: their entries are adopted, moved, cancelled, run once and removed.

use lapsed::task::State;

use super::queue::{MAPPED, Queue, due_of, seconds, with_events};
use crate::support::rig::Rig;
use crate::support::wait::until;

#[tokio::test]
async fn entries_of_an_unchanged_producer_run_once_and_are_removed() {
    let rig = with_events(MAPPED).await;
    let daemon = rig.listening_daemon().await;
    let mut queue = Queue::of(&rig).await;
    let now = seconds(&rig, 0).await;
    queue.add("overdue", now - 5).await;
    queue.add("soon", now + 2).await;
    queue.add("in_ms", (now + 2) * 1000 + 250).await;
    queue.add("fraction", format!("{}.5", now + 2)).await;
    queue.add("Job@effect@own", now + 1).await;
    rig.until_done(5).await;
    rig.each_ran_once(4).await;
    rig.each_effect_once(1).await;
    queue.until_empty().await;
    assert_eq!(daemon.signals("sweep"), 0.0);
    let soon = rig.record("Job@record@soon").await;
    assert_eq!((soon.due, soon.adopted), (due_of(now + 2), true));
    assert_eq!(
        rig.record("Job@record@in_ms").await.due.0,
        (now + 2) * 1000 + 250
    );
}

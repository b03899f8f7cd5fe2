//! The keys whose expiry asks for reconciliation.

use crate::support::rig::Rig;
use crate::support::wait::until;
use lapsed::timer::Source;

async fn left(rig: &Rig) -> Vec<i64> {
    let mut left = Vec::new();
    for number in 1..=10 {
        left.push(rig.pttl(&format!("#SILCK`{number}")).await);
    }
    left
}

#[tokio::test]
async fn sentinels_expire_one_interval_apart_from_the_start() {
    let rig = Rig::new("").await;
    let _daemon = rig.listening_daemon().await;
    until("all are there", async || {
        left(&rig).await.iter().all(|ms| *ms > 0)
    })
    .await;
    for (index, ms) in left(&rig).await.into_iter().enumerate() {
        let due = (index as i64 + 1) * 15 * 60 * 1_000;
        assert!(
            (due - 10_000..=due).contains(&ms),
            "#SILCK`{}: {ms}",
            index + 1
        );
    }
}

#[tokio::test]
async fn sentinels_are_rewritten_after_half_have_expired() {
    let rig = Rig::new("sentinel.interval = '300ms'").await;
    let daemon = rig.listening_daemon().await;
    until("all are there", async || {
        left(&rig).await.iter().all(|ms| *ms > 0)
    })
    .await;
    for round in 1..=2 {
        until(format!("half of them are gone, {round}"), async || {
            rig.pttl("#SILCK`4").await == -2
        })
        .await;
        // The ninth lives on for longer than the whole series takes only if it was written again.
        until(format!("all are new, {round}"), async || {
            let left = left(&rig).await;
            left[3] > 0 && left[8] > 2_100
        })
        .await;
    }
    assert!(daemon.is_alive());
}

#[tokio::test]
async fn the_expiry_of_a_sentinel_finds_tasks_that_no_other_signal_names() {
    // Nobody looks ahead or sweeps by the clock, and the events are lost.
    let rig =
        Rig::new("sentinel.interval = '300ms'\nsweep.interval = '1h'\nnudge.enabled = false").await;
    let daemon = rig.listening_daemon().await;
    // Its first audit would arm again what is deleted below.
    daemon.has_audited().await;
    for number in 0..5 {
        let name = format!("Job@record@{number}");
        daemon.create(&name, 1_000 + number * 300).await;
        let _: i64 = rig.redis_says(&["DEL", &name]).await;
    }
    rig.until_done(5).await;
    rig.each_ran_once(5).await;
    assert_eq!(daemon.signals(Source::Event), 0.0);
}

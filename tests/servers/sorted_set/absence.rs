//! A missing entry cancels a task only if it was in these sets, with these settings, since they were last lost.

use lapsed::engine::DropReason;
use std::time::Duration;

use lapsed::task::State;
use lapsed_sandbox::PrivateRedis;

use super::queue::{MAPPED, Queue, SET, SWEPT, seconds, until_kept, with_events};
use crate::support::daemon::Daemon;
use crate::support::handlers::handlers;
use crate::support::rig::Rig;
use crate::support::setup::Setup;
use crate::support::shell::Shell;
use crate::support::wait::{until, until_within};

const FAR: i64 = 30;

async fn cancelled(rig: &Rig) -> i64 {
    rig.number("SELECT COUNT(*) FROM tb_time_limit_task WHERE status = 3 OR sts = 1")
        .await
}

async fn pending(rig: &Rig) -> i64 {
    rig.number("SELECT COUNT(*) FROM tb_time_limit_task WHERE status = 0 AND sts = 0")
        .await
}

/// Bare keys of programs that know the timer `key_expiry`, and their rows.
async fn arm_keys(rig: &Rig) {
    for number in 0..FAR {
        rig.arm(&format!("Job@record@key{number}"), 3_600_000).await;
    }
    until("the keys are adopted", async || pending(rig).await == FAR).await;
}

/// Audits have asked about every task without an entry, and have cancelled none.
async fn none_is_cancelled(rig: &Rig, daemons: &[&Daemon]) {
    until("the missing entries are judged", async || {
        let judged = daemons
            .iter()
            .map(|daemon| daemon.dropped(DropReason::NotCancelledByKey));
        cancelled(rig).await > 0 || judged.sum::<f64>() >= FAR as f64
    })
    .await;
    assert_eq!((cancelled(rig).await, pending(rig).await), (0, FAR));
}

#[tokio::test]
async fn a_task_that_another_timer_adopted_survives_the_change_back() {
    let rig = with_events(MAPPED).await;
    let before = rig.listening_daemon().await;
    until_kept(&rig).await;
    before.stop().await;
    let config = rig.config_with("timer = 'key_expiry'");
    let between = Daemon::start(&config, handlers());
    between.hears_events().await;
    arm_keys(&rig).await;
    between.stop().await;
    let rearmed = Shell::of(&rig).json(&["rearm"]);
    assert_eq!(
        (&rearmed["present"], &rearmed["missing"]),
        (&0.into(), &FAR.into()),
        "{rearmed}"
    );
    let after = rig.listening_daemon().await;
    none_is_cancelled(&rig, &[&after]).await;
}

#[tokio::test]
async fn a_task_that_another_timer_adopts_meanwhile_survives() {
    let rig = with_events("timer = 'key_expiry'").await;
    let old = rig.listening_daemon().await;
    let config = rig.config_with(MAPPED);
    let first = Daemon::start(&config, handlers());
    first.hears_events().await;
    until_kept(&rig).await;
    arm_keys(&rig).await;
    old.stop().await;
    let second = Daemon::start(&config, handlers());
    second.hears_events().await;
    none_is_cancelled(&rig, &[&first, &second]).await;
}

#[tokio::test]
async fn a_set_that_only_some_daemons_know_loses_no_task() {
    let rig = with_events(SWEPT).await;
    let one = rig.listening_daemon().await;
    until_kept(&rig).await;
    let both = rig.config_with(&format!("sorted_set.keys = ['{SET}', 'refund']"));
    let both = Daemon::start(&both, handlers());
    both.hears_events().await;
    let mut refund = Queue::named(&rig, "refund").await;
    let now = seconds(&rig, 0).await;
    for number in 0..FAR {
        refund.add(&format!("far{number}"), now + 3600).await;
        refund.add(&format!("near{number}"), now + 15).await;
    }
    until("all are adopted", async || pending(&rig).await == 2 * FAR).await;
    one.stop().await;
    let one = rig.listening_daemon().await;
    one.has_audited().await;
    until("the near ones have ended", async || {
        pending(&rig).await == FAR
    })
    .await;
    assert_eq!((cancelled(&rig).await, rig.with_status(1).await), (0, FAR));
    rig.each_ran_once(FAR as usize).await;
    assert_eq!((cancelled(&rig).await, pending(&rig).await), (0, FAR));
    // Once the first kind of daemon is gone, absence is evidence in both sets.
    one.stop().await;
    let deadline = Duration::from_secs(180);
    until_within(deadline, "the second set is kept", async || {
        let words = ["ZRANGEBYSCORE", "refund", "inf", "inf"];
        let marks: Vec<String> = rig.redis_says(&words).await;
        marks.iter().any(|mark| mark.starts_with("#lapsed:kept:"))
    })
    .await;
    assert_eq!((cancelled(&rig).await, pending(&rig).await), (0, FAR));
    let soon = seconds(&rig, 10).await;
    refund.add("removed", soon).await;
    refund.until_acknowledged("removed").await;
    assert!(refund.remove("removed").await);
    rig.until_state("Job@record@removed", State::Cancelled)
        .await;
}

#[tokio::test]
async fn a_task_that_was_moved_here_survives() {
    let (from, to) = (with_events(MAPPED).await, with_events(MAPPED).await);
    let source = from.listening_daemon().await;
    let mut queue = Queue::of(&from).await;
    let due = seconds(&from, 3600).await;
    for number in 0..FAR {
        queue.add(&number.to_string(), due).await;
    }
    until("all are adopted", async || pending(&from).await == FAR).await;
    source.stop().await;
    let passive = to.config_with("adopt.enabled = false");
    let passive = Daemon::start(&passive, handlers());
    passive.hears_events().await;
    until_kept(&to).await;
    let url = to.config().ledger.url.expose().to_owned();
    let moved = Shell::of(&from).json(&["move", "--to", &url]);
    assert_eq!(moved["complete"], true, "{moved}");
    passive.stop().await;
    let active = to.listening_daemon().await;
    none_is_cancelled(&to, &[&active]).await;
}

/// Adopts entries, has `lose` bring back an older copy of the set, and expects that every task is still there.
async fn survives(rig: &Rig, copy: impl AsyncFn() -> Vec<u8>, restore: impl AsyncFn(Vec<u8>)) {
    let daemon = rig.listening_daemon().await;
    until_kept(rig).await;
    let mut queue = Queue::of(rig).await;
    let copied = copy().await;
    let now = seconds(rig, 0).await;
    for number in 0..FAR {
        queue.add(&format!("far{number}"), now + 3600).await;
    }
    queue.add("near", now + 8).await;
    until("all are adopted", async || pending(rig).await == FAR + 1).await;
    queue.until_acknowledged("near").await;
    restore(copied).await;
    assert!(daemon.is_alive());
    rig.until_done(1).await;
    until("the entries are there again", async || {
        cancelled(rig).await > 0 || Queue::of(rig).await.members().await.len() as i64 == FAR
    })
    .await;
    assert_eq!((cancelled(rig).await, pending(rig).await), (0, FAR));
}

#[tokio::test]
async fn a_set_that_is_restored_from_a_copy_loses_no_task() {
    let rig = with_events(MAPPED).await;
    let copy = async || rig.redis_says(&["DUMP", SET]).await;
    survives(&rig, copy, async |copied| {
        let mut restore = redis::cmd("RESTORE");
        restore.arg(SET).arg(0).arg(copied).arg("REPLACE");
        let mut connection = rig.redis_connection().await;
        let () = restore.query_async(&mut connection).await.unwrap();
    })
    .await;
}

#[tokio::test]
async fn a_set_that_was_renamed_and_comes_back_loses_no_task() {
    let rig = with_events(MAPPED).await;
    let copy = async || {
        let () = rig.redis_says(&["RENAME", SET, "away"]).await;
        Vec::new()
    };
    survives(&rig, copy, async |_| {
        let () = rig.redis_says(&["RENAME", "away", SET]).await;
    })
    .await;
}

#[tokio::test]
async fn a_row_that_lost_its_entry_in_a_crash_of_redis_is_not_cancelled() {
    let redis = PrivateRedis::options()
        .set("appendonly", "no")
        .set("save", "");
    let mut rig = Setup::new(MAPPED).redis(redis).start().await;
    let daemon = rig.listening_daemon().await;
    until_kept(&rig).await;
    let mut queue = Queue::of(&rig).await;
    let () = rig.redis_says(&["SAVE"]).await;
    let due = seconds(&rig, 3600).await;
    for number in 0..FAR {
        queue.add(&number.to_string(), due).await;
    }
    until("all are adopted", async || pending(&rig).await == FAR).await;
    rig.redis.kill();
    rig.redis.start_again().await.unwrap();
    until("the entries are there again", async || {
        cancelled(&rig).await > 0 || Queue::of(&rig).await.members().await.len() as i64 == FAR
    })
    .await;
    assert_eq!((cancelled(&rig).await, pending(&rig).await), (0, FAR));
    drop(daemon);
}

#[tokio::test]
async fn an_own_entry_without_a_row_stays_and_is_counted() {
    let rig = Rig::new(MAPPED).await;
    // As a program that counts in microseconds writes it.
    let old = (rig.now_ms().await - 120_000) * 1000;
    let _: i64 = rig
        .redis_says(&["ZADD", SET, &old.to_string(), "micros"])
        .await;
    let daemon = rig.listening_daemon().await;
    until("the entry is counted", async || {
        daemon.dropped(DropReason::Unknown) >= 1.0
    })
    .await;
    assert_eq!(Queue::of(&rig).await.members().await, ["micros"]);
    let doctor = Shell::of(&rig).run(&["doctor"]).1;
    assert!(doctor.contains("overdue by more than a minute"), "{doctor}");
}

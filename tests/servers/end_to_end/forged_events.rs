//! Events prove nothing: old ones, forged ones and foreign ones start nothing.

use lapsed::UnixMs;
use lapsed::engine::DropReason;
use lapsed::timer::Source;

use crate::support::rig::Rig;
use crate::support::tasks::key;
use crate::support::wait::until;

#[tokio::test]
async fn an_event_of_an_older_arming_starts_nothing_early() {
    let rig = Rig::new("").await;
    let daemon = rig.listening_daemon().await;
    let older = daemon.create("Job@record@1", 1_000).await;
    let newer = daemon.create("Job@record@1", 4_000).await;
    assert!(newer.due() > older.due());
    // Before the older arming's time, at it, and after it.
    for moment in [older.due().0 - 500, older.due().0, older.due().0 + 500] {
        rig.until_clock(UnixMs(moment)).await;
        rig.publish_expired("Job@record@1").await;
    }
    until("the events were found to be early", async || {
        daemon.dropped(DropReason::Early) >= 3.0
    })
    .await;
    assert_eq!(rig.runs().await, []);
    rig.until_done(1).await;
    rig.each_ran_once(1).await;
    let runs = rig.runs().await;
    assert_eq!(
        (runs[0].due_ms, &runs[0].task),
        (newer.due().0, &newer.id())
    );
}

#[tokio::test]
async fn an_event_of_an_older_arming_that_redis_itself_emits_starts_nothing_early() {
    // Only a touch expires a key here: writing over one that is due emits the event of the older arming.
    let options = lapsed_sandbox::PrivateRedis::options().set("enable-debug-command", "yes");
    let setup = crate::support::setup::Setup::new("nudge.enabled = false\nadopt.enabled = false");
    let setup = setup.redis(options);
    let rig = setup.start().await;
    let () = rig.redis_says(&["DEBUG", "SET-ACTIVE-EXPIRE", "0"]).await;
    let daemon = rig.listening_daemon().await;
    let due = UnixMs(rig.now_ms().await + 4_000);
    let task = key("Job@record@1");
    let newer = daemon.tasks.create(task, due).await.unwrap();
    // As an older arming left it behind.
    let () = rig
        .redis_says(&["SET", "Job@record@1", "", "PX", "1"])
        .await;
    rig.until_clock(UnixMs(rig.now_ms().await + 5)).await;
    let () = rig
        .redis_says(&["SET", "Job@record@1", "", "PX", "3900"])
        .await;
    until("the event was found to be early", async || {
        daemon.signals(Source::Event) >= 1.0 && daemon.dropped(DropReason::Early) >= 1.0
    })
    .await;
    assert_eq!(rig.runs().await, []);
    rig.until_done(1).await;
    rig.each_ran_once(1).await;
    assert_eq!(rig.runs().await[0].due_ms, newer.due().0);
}

#[tokio::test]
async fn forged_events_run_nothing_and_the_daemon_lives() {
    let rig = Rig::new("adopt.enabled = false").await;
    let daemon = rig.listening_daemon().await;
    for number in 0..200 {
        rig.publish_expired(format!("Job@record@unknown{number}"))
            .await;
        rig.publish_expired(format!("No@such@{number}")).await;
    }
    for foreign in [
        "",
        "@",
        "@@",
        "session:abc",
        "Job",
        "Job@record@a\r\n",
        "#SILCK`",
        "#SILCK`99999",
        "#SILCK`2",
    ] {
        rig.publish_expired(foreign).await;
    }
    rig.publish_expired(&[0xff_u8, 0xfe, 0x00][..]).await;
    rig.publish_expired("Job@record@\0").await;
    rig.publish_expired("Job@record@".to_owned() + &"x".repeat(250))
        .await;
    rig.publish_expired("Job@record@".to_owned() + &"x".repeat(4 << 20))
        .await;
    until("all were counted", async || {
        daemon.dropped(DropReason::Unknown) + daemon.dropped(DropReason::Coalesced) >= 200.0
            && daemon.dropped(DropReason::TooLong) >= 2.0
            && daemon.dropped(DropReason::NotUtf8) >= 1.0
            && daemon.dropped(DropReason::Foreign) >= 7.0
    })
    .await;

    daemon.create("Job@record@real", 100).await;
    rig.until_done(1).await;
    rig.each_ran_once(1).await;
    let rows = rig.number("SELECT COUNT(*) FROM tb_time_limit_task").await;
    assert_eq!(rows, 1, "nothing was written on behalf of an event");
    assert!(daemon.is_alive());
}

#[tokio::test]
async fn events_of_finished_and_cancelled_tasks_run_nothing() {
    let rig = Rig::new("").await;
    let daemon = rig.listening_daemon().await;
    daemon.create("Job@record@done", 0).await;
    daemon.create("Job@record@cancelled", 60_000).await;
    daemon
        .tasks
        .cancel(&key("Job@record@cancelled"))
        .await
        .unwrap();
    rig.until_done(1).await;
    // Those right after the settlement are taken for its echo.
    until("both were found out", async || {
        for name in ["Job@record@done", "Job@record@cancelled"] {
            rig.publish_expired(name).await;
        }
        daemon.dropped(DropReason::Finished) >= 1.0 && daemon.dropped(DropReason::Cancelled) >= 1.0
    })
    .await;
    rig.each_ran_once(1).await;
}

#[tokio::test]
async fn a_task_created_due_and_moved_at_once_does_not_start_for_its_first_time() {
    let rig = Rig::new("").await;
    let daemon = rig.listening_daemon().await;
    // The first armings expire before anybody could look at whose they were.
    for number in 0..100 {
        let name = format!("Job@record@{number}");
        daemon.create(&name, 60_000).await;
        let value = format!("lapsed:{}", rig.now_ms().await + 1);
        for expiry_ms in ["1", "2", "1"] {
            let () = rig
                .redis_says(&["SET", &name, &value, "PX", expiry_ms])
                .await;
        }
        daemon.create(&name, 70_000).await;
    }
    daemon.create("Job@record@last", 1_500).await;
    rig.until_done(1).await;
    let runs = rig.runs().await;
    assert_eq!(runs.len(), 1, "{runs:?}");
}

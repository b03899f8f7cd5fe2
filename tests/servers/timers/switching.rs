//! A running installation changes its timer: `lapsed rearm`, and no pending task is lost.

use lapsed::compose::Adapters;
use lapsed::task::State;
use lapsed::timer::Remaining;

use super::{TIMERS, TimerUnderTest};
use crate::support::daemon::Daemon;
use crate::support::handlers::handlers;
use crate::support::rig::Rig;
use crate::support::shell::Shell;
use crate::support::tasks::{create_many, key};

const FAR: i64 = 2_500;
const NEAR: i64 = 40;

/// The JSON of `lapsed rearm` with this timer.
fn rearm(shell: &Shell, timer: TimerUnderTest, more: &[&str]) -> serde_json::Value {
    let mut command = shell.command(&[&["--json", "rearm"], more].concat());
    let output = command.env("LAPSED__TIMER", timer.name).output().unwrap();
    assert!(output.status.success(), "{output:?}");
    serde_json::from_slice(&output.stdout).unwrap()
}

/// The number of far tasks of which the timer has an entry.
async fn entries(rig: &Rig, timer: TimerUnderTest) -> usize {
    let config = rig.config_with(&format!("timer = '{}'", timer.name));
    let timer = Adapters::new(&config).unwrap().timer;
    let keys: Vec<_> = (0..FAR)
        .map(|number| key(&format!("Job@record@far{number}")))
        .collect();
    let remaining = timer.remaining(&keys).await.unwrap();
    let held = remaining.iter().filter(|held| **held != Remaining::Missing);
    held.count()
}

async fn switch(from: TimerUnderTest, to: TimerUnderTest) {
    let rig = Rig::new(&format!("timer = '{}'", from.name)).await;
    let daemon = rig.daemon();
    create_many(&daemon.tasks, "Job@record@far", FAR, 3_600_000, 1).await;
    create_many(&daemon.tasks, "Job@record@near", NEAR, 500, 100).await;
    daemon.stop().await;

    let shell = Shell::of(&rig);
    let expected = if to.has_entries { FAR } else { 0 };
    assert!(rearm(&shell, to, &["--dry-run"])["pending"].as_i64() >= Some(FAR));
    let first = rearm(&shell, to, &[]);
    assert_eq!(entries(&rig, to).await, expected as usize, "{first}");
    let written = first["written"].as_i64().unwrap();
    assert!(written >= expected, "{first}");
    // Again: it finds what it has written.
    let again = rearm(&shell, to, &[]);
    assert!(again["present"].as_i64() >= Some(FAR), "{again}");
    assert_eq!(again["complete"], true, "{again}");

    let config = rig.config_with(&format!("timer = '{}'", to.name));
    let daemon = Daemon::start(&config, handlers());
    rig.until_done(NEAR as usize).await;
    rig.each_ran_once(NEAR as usize).await;
    assert_eq!(rig.with_status(0).await, FAR, "the others are pending");
    assert_eq!(rig.state("Job@record@far0").await, State::Pending);
    daemon.stop().await;
}

#[tokio::test]
async fn a_switch_of_the_timer_keeps_every_pending_task() {
    for from in TIMERS {
        for to in TIMERS.iter().filter(|to| to.name != from.name) {
            switch(*from, *to).await;
        }
    }
}

#[tokio::test]
async fn rearming_ends_with_1_and_says_how_far_it_came_if_the_timer_does_not_answer() {
    for timer in TIMERS.iter().filter(|timer| timer.has_entries) {
        let mut rig = Rig::new(&format!("timer = '{}'", timer.name)).await;
        create_many(
            &rig.client().await.into(),
            "Job@record@far",
            10,
            3_600_000,
            1,
        )
        .await;
        rig.redis.kill();
        let (code, stdout, stderr) = Shell::of(&rig).run(&["rearm"]);
        assert_eq!((code, &stdout[..]), (1, ""), "{}: {stderr}", timer.name);
        assert!(
            stderr.contains("stopped after 0 of 10 tasks: go on with `lapsed rearm`"),
            "{}: {stderr}",
            timer.name
        );
    }
}

#[tokio::test]
async fn rearming_goes_on_behind_the_place_that_an_earlier_run_has_reached() {
    let timer = super::timer("sorted_set");
    let rig = Rig::new("timer = 'sorted_set'").await;
    let client = rig.client().await.into();
    let made = create_many(&client, "Job@record@far", FAR, 3_600_000, 1_000).await;
    let () = rig.redis_says(&["FLUSHALL"]).await;
    let last = made[999].arming();
    let place = format!("{}-{}", last.due.0, last.row);
    let shell = Shell::of(&rig);
    let result = rearm(&shell, timer, &["--from", &place]);
    assert_eq!(result["pending"], FAR - 1_000, "{result}");
    assert_eq!(result["next"], serde_json::Value::Null, "{result}");
    assert_eq!(entries(&rig, timer).await, FAR as usize - 1_000);
    let (code, _, stderr) = shell.run(&["rearm", "--from", "yesterday"]);
    assert_eq!(code, 2);
    assert!(stderr.contains("expected a place"), "{stderr}");
}

//! The wall clock is set while a daemon runs on a file, whose clock it is. A machine that was suspended looks the same: its
//! wall clock has jumped, and its monotonic clock has not.

use super::embedded::Embedded;
use crate::support::faked_clock::FakedClock;
use crate::support::resp_wire::{Reply, Wire};
use crate::support::wait::until;

const HOUR_MS: i64 = 3_600_000;

/// Schedules a task, and checks when it is due.
fn schedule(wire: &mut Wire, clock: &FakedClock, key: &str, in_ms: i64) {
    let before_ms = clock.now_ms();
    let answer = wire.ask(&["PSETEX", key, &in_ms.to_string(), ""]);
    assert_eq!(answer, Reply::Simple("OK".to_owned()));
    let after_ms = clock.now_ms();
    let Reply::Integer(due_ms) = wire.ask(&["PEXPIRETIME", key]) else {
        panic!("{key} is not pending");
    };
    let due = before_ms + in_ms..=after_ms + in_ms;
    assert!(due.contains(&due_ms), "{key}: {due_ms}, expected {due:?}");
}

#[tokio::test]
async fn a_task_is_due_by_the_wall_clock_as_it_was_just_set() {
    let place = Embedded::new();
    let mut clock = FakedClock::new(&place.path(""));
    let environment = clock.environment();
    let environment = environment
        .each_ref()
        .map(|(name, value)| (*name, &**value));
    let (_daemon, mut wire) = place.serve_with(&environment).await;
    schedule(&mut wire, &clock, "Job@record@far", HOUR_MS);
    clock.set(HOUR_MS / 2);
    // At once: nothing has told the daemon.
    schedule(&mut wire, &clock, "Job@record@farther", HOUR_MS);
    assert_eq!(place.ran(), [""; 0], "half an hour early");
    clock.set(HOUR_MS + 60_000);
    until("the first task is due", async || !place.ran().is_empty()).await;
    assert_eq!(place.ran(), ["Job@record@far"]);
    clock.set(0);
    schedule(&mut wire, &clock, "Job@record@again", HOUR_MS);
    // Too near to look at before it runs.
    wire.ask(&["PSETEX", "Job@record@near", "1", ""]);
    until("a task runs after the clock was set back", async || {
        place.ran().len() > 1
    })
    .await;
    assert_eq!(place.ran(), ["Job@record@far", "Job@record@near"]);
}

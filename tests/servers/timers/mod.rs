//! What every timer does, whichever servers it uses: by itself, and under an engine. A timer is added by one entry of
//! [`TIMERS`] and by its name in `conformance!`.

#![allow(clippy::unwrap_used, reason = "in a test it stops where it went wrong")]

mod alarms;
pub mod engine;
mod harness;
mod servers;
mod switching;

use std::sync::Arc;

use lapsed::Config;
use lapsed::clock::LedgerClock;
use lapsed::engine::Metrics;
use lapsed::timer::Timer;
use lapsed::timer::key_expiry::{Events, KeyExpiry};
use lapsed::timer::ledger_poll::LedgerPoll;
use lapsed::timer::sorted_set::SortedSet;
use lapsed::timer::wheel::Wheel;

/// A timer under test.
#[derive(Clone, Copy)]
pub struct TimerUnderTest {
    /// The value of `timer` in the configuration.
    pub name: &'static str,
    /// Creates it.
    pub build: fn(&Config, LedgerClock) -> Arc<dyn Timer>,
    /// True if it writes entries that other processes can see.
    pub has_entries: bool,
    /// The command by which a program schedules `Job@record`, by a number and a moment in Unix milliseconds. `None`: it has
    /// none, producers write rows.
    pub schedule_command: Option<fn(i64, i64) -> Vec<String>>,
    /// True if that command names the task key, so that a second one moves the task.
    pub names_keys: bool,
    /// Commands of programs that are not about tasks.
    pub garbage: &'static [&'static [&'static str]],
}

/// Every timer.
pub const TIMERS: &[TimerUnderTest] = &[
    TimerUnderTest {
        name: "key_expiry",
        build: |config, clock| {
            let (sentinel, nudge) = (config.sentinel, config.nudge);
            let (events, metrics) = (Events::wanted_by(config), Arc::new(Metrics::default()));
            Arc::new(
                KeyExpiry::new(
                    &config.redis,
                    sentinel,
                    nudge,
                    events,
                    "test".into(),
                    clock,
                    metrics,
                )
                .unwrap(),
            )
        },
        has_entries: true,
        schedule_command: Some(|number, due_ms| {
            let (key, due) = (format!("Job@record@{number}"), due_ms.to_string());
            words(&["SET", &key, "", "PXAT", &due])
        }),
        names_keys: true,
        garbage: &[
            &["SETEX", "no-task", "1", "x"],
            &["SETEX", "@@", "1", ""],
            &["SETEX", "Other@m@1", "1", ""],
        ],
    },
    TimerUnderTest {
        name: "sorted_set",
        build: |config, clock| {
            let (sets, metrics) = (config.sorted_set.clone(), Arc::new(Metrics::default()));
            Arc::new(SortedSet::new(&config.redis, sets, clock, metrics, "timers".into()).unwrap())
        },
        has_entries: true,
        schedule_command: Some(|number, due_ms| {
            let (key, due) = (format!("Job@record@{number}"), due_ms.to_string());
            words(&["ZADD", "delay_queue_job", &due, &key])
        }),
        names_keys: true,
        garbage: &[
            &["ZADD", "delay_queue_job", "1", "no task"],
            &["ZADD", "delay_queue_job", "-5", "@@"],
            &["ZADD", "delay_queue_job", "inf", "Job@record@never"],
        ],
    },
    TimerUnderTest {
        name: "wheel",
        build: |config, clock| {
            let (wheel, metrics) = (&config.wheel, Arc::new(Metrics::default()));
            let adopts = config.adopts_any();
            Arc::new(Wheel::new(&config.redis, wheel, adopts, clock, metrics).unwrap())
        },
        has_entries: true,
        schedule_command: Some(|number, due_ms| {
            let list = format!("task_{}", due_ms / 1_000 % 3_600);
            let entry = format!(r#"{{"method":"record","params":[{number}],"cycle_num":0}}"#);
            words(&["RPUSH", &list, &entry])
        }),
        names_keys: false,
        garbage: &[
            &["RPUSH", "task_7", "no entry"],
            &["RPUSH", "task_7", "{\"cycle_num\":0}"],
            &["RPUSH", "task_lapsed", "no slot"],
        ],
    },
    TimerUnderTest {
        name: "ledger_poll",
        build: |_, clock| Arc::new(LedgerPoll::exact(clock)),
        has_entries: false,
        schedule_command: None,
        names_keys: false,
        garbage: &[],
    },
];

/// The timer of this name.
fn timer(name: &str) -> TimerUnderTest {
    let mut timers = TIMERS.iter().copied();
    timers.find(|timer| timer.name == name).unwrap()
}

fn words(words: &[&str]) -> Vec<String> {
    words.iter().map(ToString::to_string).collect()
}

macro_rules! checks {
    ($timer:ident: $($file:ident::$check:ident)+) => {
        $(#[tokio::test]
        async fn $check() {
            super::$file::$check(super::timer(stringify!($timer))).await;
        })+
    };
}

/// Each check of these files becomes a test of each timer.
macro_rules! conformance {
    ($($timer:ident)+) => {
        $(mod $timer {
            checks! {
                $timer: alarms::every_alarm_is_signalled_and_none_before_its_due_time
                alarms::an_alarm_that_is_armed_repeatedly_is_not_early
                alarms::an_alarm_in_the_past_is_signalled_at_once
                alarms::a_moved_alarm_is_signalled_at_its_new_time
                alarms::a_disarmed_alarm_is_not_signalled
                alarms::ten_thousand_alarms_are_signalled
                alarms::the_ledgers_clock_decides_and_not_the_local_one
                alarms::a_stop_ends_the_timer
                servers::a_new_instance_finds_what_an_earlier_one_has_armed
                servers::an_empty_store_is_filled_again
                servers::a_server_that_was_away_is_used_again
                servers::alarms_that_fall_due_while_the_server_is_silent_are_signalled
                engine::entries_of_programs_run_once
                engine::a_killed_daemon_loses_no_task_repeats_none_and_starts_none_early
                engine::an_audit_restores_what_the_store_has_lost
                engine::two_daemons_run_each_task_once
            }
        })+

        #[test]
        fn every_timer_is_checked() {
            let mut checked = [$(stringify!($timer)),+];
            let mut timers: Vec<&str> = TIMERS.iter().map(|timer| timer.name).collect();
            checked.sort_unstable();
            timers.sort_unstable();
            assert_eq!(timers, checked);
        }
    };
}

conformance! { key_expiry sorted_set wheel ledger_poll }

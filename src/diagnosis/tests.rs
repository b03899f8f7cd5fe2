use std::time::Duration;

use super::*;
use crate::config::Config;
use crate::ledger::{ClockStep, Stats};
use crate::task::{Pause, PauseKind, UnixMs};
use crate::telemetry::history::{LatenessPercentiles, PerSource};

fn minutes(count: u64) -> Duration {
    Duration::from_secs(count * 60)
}

/// A daemon at rest.
fn well() -> Facts {
    Facts {
        is_listening: Some(true),
        window: minutes(5),
        overdue: Some(Duration::ZERO),
        sentinel: Some((Duration::from_secs(900), Duration::from_secs(900))),
        ..Facts::default()
    }
}

fn stepped(is_ahead: bool) -> ClockStep {
    ClockStep {
        by: minutes(60),
        is_ahead,
        ago: Duration::from_secs(9),
    }
}

fn found_with(settings: &str, facts: &Facts) -> Vec<Found> {
    let config = Config::from_toml(&format!("[alerts]\n{settings}")).unwrap();
    diagnose(facts, &Thresholds::from(&config.alerts))
}

fn found(facts: &Facts) -> Vec<Found> {
    found_with("", facts)
}

/// What is wrong, as `severity: text`.
fn lines(facts: &Facts) -> Vec<String> {
    let line = |found: &Found| format!("{}: {}", found.severity.as_str(), found.summary());
    found(facts).iter().map(line).collect()
}

#[test]
fn the_thresholds_are_the_defaults_of_the_configuration() {
    let alerts = Config::default().alerts;
    assert_eq!(Thresholds::from(&alerts), Thresholds::default());
    assert_eq!((alerts.window, alerts.down_for), (WINDOW, DOWN_FOR));
}

#[test]
fn each_condition_has_a_name_of_its_own_and_its_places_are_filled() {
    let mut ids: Vec<&str> = CONDITIONS.iter().map(|condition| condition.id).collect();
    ids.sort_unstable();
    ids.dedup();
    assert_eq!(ids.len(), CONDITIONS.len());
    let facts = Facts {
        ledger: LedgerState::Fails {
            why: "connection refused".to_owned(),
            since: Some(UnixMs(0)),
        },
        is_listening: Some(false),
        is_stopping: true,
        window: minutes(5),
        started: PerSource {
            sweep: 10,
            ..PerSource::default()
        },
        died: 1,
        keys_lost: 1,
        cancelled_by_key: 1,
        late: Some((late(2_000), minutes(5))),
        overdue: Some(minutes(2)),
        counts: Some(Stats {
            dead: 1,
            malformed: 1,
            ..Stats::default()
        }),
        lost_daemons: vec!["a:1".to_owned()],
        sentinel: Some((minutes(2), minutes(1))),
        retention_behind: true,
        pauses: 1,
        has_hold: true,
        failing: vec![("sweep", "timed out".to_owned())],
        clock_step: Some(stepped(true)),
        ..Facts::default()
    };
    let paused = Facts {
        all_paused: true,
        clock_step: Some(stepped(false)),
        ..Facts::default()
    };
    let found = [found(&facts), found(&paused)].concat();
    for condition in CONDITIONS {
        let holds = found.iter().any(|found| found.condition.id == condition.id);
        assert!(holds, "{}", condition.id);
    }
    for found in found {
        for message in found.remedy.iter().chain([&found.text]) {
            let places = message.phrase.english().matches("{}").count();
            assert_eq!(places, message.values.len(), "{message:?}");
        }
    }
}

#[test]
fn a_daemon_at_rest_is_well() {
    assert!(lines(&well()).is_empty());
    assert!(lines(&Facts::default()).is_empty());
}

fn late(p99_ms: u64) -> LatenessPercentiles {
    LatenessPercentiles {
        count: 1,
        p50_ms: 10,
        p95_ms: 20,
        p99_ms,
        max_ms: p99_ms,
    }
}

#[test]
fn lateness_is_compared_with_its_limit() {
    let late = |ms| Facts {
        late: Some((late(ms), minutes(5))),
        ..well()
    };
    let text = "warning: tasks start late: p99 is 1.5 s over 1 runs in the last 5 min, expected at most 1 s";
    assert_eq!(lines(&late(1_500)), [text]);
    assert!(lines(&late(1_000)).is_empty());
    assert!(found_with("late = 'none'", &late(9_000)).is_empty());
    let urgent = Facts {
        blocked: vec![blocked(WhyCause::NoRoute, 1, 61_000)],
        ..late(9_000)
    };
    let known = found(&urgent);
    assert_eq!(known.len(), 1, "it is known which tasks do not start");
    assert_eq!(known[0].condition.id, "overdue");
}

#[test]
fn one_dead_task_is_reported_unless_more_are_expected() {
    let two = Facts { died: 2, ..well() };
    assert_eq!(lines(&two), ["warning: tasks died in the last 5 min: 2"]);
    assert!(found_with("dead = 3", &two).is_empty());
    assert!(found_with("dead = 0", &two).is_empty());
}

#[test]
fn dead_tasks_are_a_warning_only_while_more_die() {
    let mut facts = Facts {
        counts: Some(Stats {
            dead: 3,
            ..Stats::default()
        }),
        ..well()
    };
    assert_eq!(lines(&facts), ["note: dead tasks: 3"]);
    facts.died = 2;
    assert_eq!(
        lines(&facts),
        [
            "warning: tasks died in the last 5 min: 2",
            "note: dead tasks: 3"
        ]
    );
}

#[test]
fn the_sweep_may_start_a_share_of_the_tasks() {
    let starts = |nudge, sweep| Facts {
        started: PerSource {
            nudge,
            sweep,
            ..PerSource::default()
        },
        ..well()
    };
    assert_eq!(found(&starts(89, 11)).len(), 1);
    assert!(found(&starts(91, 10)).is_empty(), "ten of a hundred");
    assert!(found(&starts(0, 9)).is_empty(), "too few to judge");
    assert!(found_with("swept = 100", &starts(0, 50)).is_empty());
}

#[test]
fn a_sentinel_is_missed_after_one_and_a_half_intervals() {
    let secs = Duration::from_secs;
    let heard = |age, interval| Facts {
        sentinel: Some((secs(age), secs(interval))),
        ..well()
    };
    assert!(lines(&heard(1_350, 900)).is_empty());
    assert_eq!(lines(&heard(1_351, 900)).len(), 1);
    assert!(lines(&heard(9_999, 0)).is_empty(), "a timer without any");
}

#[test]
fn an_overdue_task_is_reported_by_one_daemon() {
    let waited = |overdue| Facts { overdue, ..well() };
    assert_eq!(
        lines(&waited(Some(minutes(2)))),
        ["ERROR: a due task has not been started for 2 min"]
    );
    assert!(lines(&waited(Some(minutes(1)))).is_empty());
    assert!(lines(&waited(None)).is_empty());
}

#[test]
fn while_the_ledger_is_down_nothing_is_known_of_its_tasks() {
    let down = Facts {
        ledger: LedgerState::Unread,
        ..well()
    };
    let unknown = CONDITIONS.iter().filter(|it| !it.is_known(&down));
    let unknown: Vec<&str> = unknown.map(|condition| condition.id).collect();
    assert_eq!(unknown, ["overdue", "retention"]);
    assert!(
        CONDITIONS
            .iter()
            .all(|condition| condition.is_known(&well()))
    );
}

#[test]
fn the_worst_is_first() {
    let facts = Facts {
        ledger: LedgerState::Fails {
            why: "it refuses connections".to_owned(),
            since: None,
        },
        is_listening: Some(false),
        lost_daemons: vec!["worker-2:7".to_owned()],
        pauses: 2,
        counts: Some(Stats {
            dead: 3,
            ..Stats::default()
        }),
        ..well()
    };
    let expected = [
        "ERROR: the ledger does not answer: it refuses connections",
        "warning: no events arrive from Redis",
        "warning: a daemon is lost: worker-2:7",
        "note: pauses: 2",
        "note: dead tasks: 3",
    ];
    assert_eq!(lines(&facts), expected);
    let unready = found(&facts).into_iter();
    let unready = unready.filter(|found| found.condition.is_unready);
    let reasons: Vec<String> = unready.map(|found| found.sentences()).collect();
    assert!(
        reasons[0].starts_with("The ledger does not answer: it refuses connections. No task"),
        "{reasons:?}"
    );
    assert_eq!(reasons.len(), 2);
}

#[test]
fn without_events_a_bare_key_may_be_lost() {
    let advice = |hears_keys| {
        let facts = Facts {
            is_listening: Some(false),
            hears_keys,
            ..well()
        };
        found(&facts)[0].advice()
    };
    assert!(advice(true).contains("A bare SETEX is found only by an audit"));
    assert!(!advice(false).contains("SETEX"));
}

fn pause(scope: &str) -> Pause {
    Pause {
        kind: PauseKind::Pause,
        scope: scope.parse().unwrap(),
        since: UnixMs(0),
        due_before: None,
        until: None,
        by: "ann".to_owned(),
        reason: "stocktaking".to_owned(),
    }
}

fn blocked(cause: WhyCause, tasks: u64, ms_max: u64) -> Blocked {
    Blocked {
        name: "Order@close".to_owned(),
        cause,
        tasks,
        ms_max,
        is_of_several: false,
    }
}

#[test]
fn a_clock_that_was_set_is_told_with_what_it_means() {
    for (is_ahead, what, advice) in [
        (
            true,
            "the clock of the ledger jumped ahead by 1 h, 9 s ago",
            "pause everything",
        ),
        (
            false,
            "the clock of the ledger went back by 1 h, 9 s ago",
            "Tasks wait longer",
        ),
    ] {
        let facts = Facts {
            clock_step: Some(stepped(is_ahead)),
            ..well()
        };
        let found = &found(&facts)[0];
        assert_eq!(
            (found.condition.id, found.summary()),
            ("clock", what.to_owned())
        );
        assert!(found.advice().contains(advice), "{}", found.advice());
    }
}

#[test]
fn a_backlog_of_one_class_is_counted_whole_though_not_all_were_looked_at() {
    let facts = Facts {
        blocked: vec![blocked(WhyCause::Concurrency(1), 9_999, 600_000)],
        counts: Some(Stats {
            overdue: 200_000,
            ..Stats::default()
        }),
        ..well()
    };
    let found = &found(&facts)[0];
    assert_eq!(
        found.summary(),
        "overdue tasks: 200,000, the oldest by 10 min"
    );
    assert!(found.advice().starts_with("Those that fell due first are "));
}

#[test]
fn a_pause_hides_no_other_cause() {
    let no_worker = WhyCause::NoWorker(Some("render".into()), None);
    let facts = |overdue| Facts {
        blocked: vec![
            blocked(WhyCause::Paused(pause("Push@notify")), 3_340, 600_000),
            blocked(no_worker.clone(), 220, 1_800_000),
            blocked(WhyCause::NoRoute, 60, 2_640_000),
        ],
        counts: Some(Stats {
            overdue,
            ..Stats::default()
        }),
        ..well()
    };
    let expected = [
        "ERROR: overdue tasks: 220, the oldest by 30 min",
        "ERROR: overdue tasks: 60, the oldest by 44 min",
        "warning: overdue tasks: 3,340, the oldest by 10 min",
    ];
    assert_eq!(lines(&facts(3_620)), expected);
    assert!(
        lines(&facts(9_000))[0].contains("at least 220"),
        "not all were counted by class"
    );
}

#[test]
fn tasks_that_are_overdue_for_a_minute_need_a_person_unless_they_are_paused() {
    for (cause, severity, advice) in [
        (WhyCause::Unknown, Severity::Error, "Usual causes"),
        (
            WhyCause::NoWorker(Some("mail".into()), None),
            Severity::Error,
            "No worker asks any daemon for the queue `mail`. Start the workers of the queue.",
        ),
        (
            WhyCause::NoWorker(None, None),
            Severity::Error,
            "No worker asks any daemon",
        ),
        (
            WhyCause::NoRoute,
            Severity::Error,
            "No daemon has a matching handler or route",
        ),
        (
            WhyCause::Away(vec!["b:2".to_owned()]),
            Severity::Error,
            "have a matching route: b:2",
        ),
        (
            WhyCause::Concurrency(4),
            Severity::Error,
            "at the same time: 4 on each daemon",
        ),
        (
            WhyCause::Paused(pause("Order")),
            Severity::Warning,
            "By ann. Reason: stocktaking. Resume it",
        ),
        (
            WhyCause::Held(pause("Order")),
            Severity::Warning,
            "Release it",
        ),
    ] {
        let of = |ms_max| {
            let facts = Facts {
                blocked: vec![blocked(cause.clone(), 1_200, ms_max)],
                ..well()
            };
            found(&facts)
        };
        assert!(of(3_000).is_empty(), "about to start");
        assert_eq!(of(3_001)[0].severity, Severity::Warning);
        assert_eq!(of(60_000)[0].severity, Severity::Warning);
        let first = of(60_001).remove(0);
        assert_eq!(first.severity, severity, "{first:?}");
        assert_eq!(first.cause, Some(cause));
        let said = first.advice();
        assert!(said.starts_with("All are Order@close. "), "{said}");
        assert!(said.contains(advice), "{said}");
    }
}

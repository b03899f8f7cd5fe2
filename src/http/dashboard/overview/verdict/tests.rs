use super::*;
use crate::task::PauseKind;

fn pause(scope: &str) -> Pause {
    Pause {
        kind: PauseKind::Pause,
        scope: scope.parse().unwrap(),
        since: UnixMs(0),
        due_before: None,
        by: "ann".to_owned(),
        reason: "stocktaking".to_owned(),
    }
}

fn paused(scope: &str) -> WhyCause {
    WhyCause::Paused(pause(scope))
}

fn of(facts: &Facts) -> Vec<String> {
    let findings = findings(facts, Language::English).into_iter();
    let lines = findings.map(|finding| format!("{}: {}", finding.severity.class(), finding.what));
    lines.collect()
}

fn counts(counts: Stats) -> Facts {
    Facts {
        counts: Some(counts),
        ..Facts::default()
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
fn without_trouble_all_is_well() {
    assert!(of(&Facts::default()).is_empty());
    let late = Facts {
        blocked: vec![blocked(WhyCause::Unknown, 1, 2_900)],
        ..Facts::default()
    };
    assert!(of(&late).is_empty());
}

#[test]
fn a_pause_hides_no_other_cause() {
    let facts = Facts {
        blocked: vec![
            blocked(paused("Push@notify"), 3_340, 600_000),
            blocked(
                WhyCause::NoWorker(Some("render".into()), None),
                220,
                1_800_000,
            ),
            blocked(WhyCause::NoRoute, 60, 2_640_000),
        ],
        ..counts(Stats {
            overdue: 3_620,
            ..Stats::default()
        })
    };
    let expected = [
        "bad: Overdue tasks: 220, the oldest by 30 min",
        "bad: Overdue tasks: 60, the oldest by 44 min",
        "warning: Overdue tasks: 3,340, the oldest by 10 min",
    ];
    assert_eq!(of(&facts), expected);
    let more = Facts {
        counts: Some(Stats {
            overdue: 9_000,
            ..Stats::default()
        }),
        ..facts
    };
    assert!(
        of(&more)[0].contains("≥ 220"),
        "not all were counted by class"
    );
}

#[test]
fn tasks_that_start_late_are_no_good_state() {
    let mut facts = Facts {
        is_late: true,
        late: Some(LatenessPercentiles {
            count: 100,
            p50_ms: 10,
            p95_ms: 30_000,
            p99_ms: 34_810,
            max_ms: 40_000,
        }),
        ..Facts::default()
    };
    assert_eq!(
        of(&facts),
        ["warning: Tasks start late: 1 % of the last hour later than 34.81 s"]
    );
    facts.is_late = false;
    assert!(of(&facts).is_empty());
}

#[test]
fn the_worst_is_first() {
    let facts = Facts {
        ledger_trouble: Some("it refuses connections".to_owned()),
        is_listening: Some(false),
        gone: vec!["worker-2:7".to_owned()],
        pauses: 2,
        counts: Some(Stats {
            dead: 3,
            ..Stats::default()
        }),
        ..Facts::default()
    };
    let expected = [
        "bad: The ledger does not answer",
        "warning: No expiry events arrive from Redis",
        "warning: A daemon is gone: worker-2:7",
        "note: Pauses: 2",
        "note: Dead tasks: 3",
    ];
    assert_eq!(of(&facts), expected);
}

#[test]
fn dead_tasks_are_a_warning_only_while_more_die() {
    let mut facts = counts(Stats {
        dead: 3,
        ..Stats::default()
    });
    assert_eq!(of(&facts), ["note: Dead tasks: 3"]);
    facts.dead_lately = 2;
    assert_eq!(
        of(&facts),
        ["warning: Dead tasks: 3; in the last hour 2 died"]
    );
}

#[test]
fn tasks_that_are_overdue_for_minutes_need_a_person_unless_they_are_paused() {
    let what = "Overdue tasks: 1,200, the oldest by 2 min 5 s";
    for (cause, severity, action, path) in [
        (
            WhyCause::Unknown,
            "bad",
            "Usual causes",
            "/tasks?state=overdue",
        ),
        (
            WhyCause::NoWorker(Some("mail".into()), None),
            "bad",
            "queue mail",
            "/queues",
        ),
        (
            WhyCause::NoWorker(None, None),
            "bad",
            "any daemon",
            "/queues",
        ),
        (
            WhyCause::NoRoute,
            "bad",
            "No daemon has a route",
            "/daemons",
        ),
        (
            WhyCause::Away(vec!["b:2".to_owned()]),
            "bad",
            "have a route for them: b:2",
            "/daemons",
        ),
        (
            WhyCause::Concurrency(4),
            "bad",
            "at most 4 run",
            "/tasks?state=overdue",
        ),
        (
            paused("Order"),
            "warning",
            "resume them if it is time. Paused by ann. Reason: stocktaking.",
            "/pauses",
        ),
        (
            WhyCause::Held(pause("Order")),
            "warning",
            "release them",
            "/pauses",
        ),
    ] {
        let facts = Facts {
            blocked: vec![blocked(cause, 1_200, 125_000)],
            ..Facts::default()
        };
        assert_eq!(of(&facts), [format!("{severity}: {what}")]);
        let first = findings(&facts, Language::English).remove(0);
        assert!(first.action.contains("All are Order@close"), "{first:?}");
        assert!(first.action.contains(action), "{first:?}");
        assert_eq!(first.link.unwrap().0, path);
    }
}

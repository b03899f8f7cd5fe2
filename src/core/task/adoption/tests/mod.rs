mod legacy;
mod limits;

use super::*;

const NOW: UnixMs = UnixMs(1_000_007);
const STATES: [State; 6] = [
    State::Pending,
    State::Waiting,
    State::Running,
    State::Done,
    State::Dead,
    State::Cancelled,
];
const MOVED_OR_BEGUN_ANEW: [AdoptionDecision; 6] = [
    AdoptionDecision::Move,
    AdoptionDecision::Move,
    AdoptionDecision::Move,
    AdoptionDecision::Recreate,
    AdoptionDecision::Recreate,
    AdoptionDecision::Recreate,
];

fn at(ms: i64) -> UnixMs {
    UnixMs(NOW.0 + ms)
}

/// A row from a key, last changed a minute ago; a finished one ended a second ago.
fn row(state: State, due_ms: i64) -> RowEvidence {
    RowEvidence {
        state,
        due: at(due_ms),
        due_at: at(due_ms),
        origin: Origin::Key,
        deleted: false,
        changed: at(-60_000),
        created: at(-60_000),
        ended: state.is_finished().then(|| at(-1_000)),
    }
}

fn of_a_client(state: State, due_ms: i64) -> RowEvidence {
    RowEvidence {
        origin: Origin::Row,
        ..row(state, due_ms)
    }
}

fn of_a_program(state: State, due_ms: i64) -> RowEvidence {
    RowEvidence {
        changed: UnixMs(0),
        ..of_a_client(state, due_ms)
    }
}

fn heard(due_ms: i64) -> Countdown {
    Countdown {
        due: at(due_ms),
        tolerance: Duration::ZERO,
        alive_at: Some(NOW),
        heard: Some(NOW),
        late: false,
        kept_since: None,
        meant: None,
    }
}

fn heard_at(ms: i64, due_ms: i64) -> Countdown {
    Countdown {
        heard: Some(at(ms)),
        ..heard(due_ms)
    }
}

fn found(due_ms: i64) -> Countdown {
    Countdown {
        heard: None,
        late: false,
        kept_since: Some(UnixMs(0)),
        ..heard(due_ms)
    }
}

fn judge(row: RowEvidence, key: Countdown) -> AdoptionDecision {
    decide_adoption(Some(&row), &key, NOW)
}

#[test]
fn a_key_without_a_row_is_adopted() {
    for key in [heard(60_000), found(60_000), Countdown::expired(NOW, NOW)] {
        assert_eq!(decide_adoption(None, &key, NOW), AdoptionDecision::Insert);
    }
}

#[test]
fn a_key_found_after_a_restart_does_not_change_an_older_row() {
    let deleted = RowEvidence {
        origin: Origin::DeletedKey,
        ..row(State::Cancelled, 60_000)
    };
    let last_word = deleted.last_word();
    for (kept_since, counts) in [
        (None, false),
        (Some(NOW), false),
        (Some(last_word), false),
        (Some(UnixMs(last_word.0 - 1)), true),
    ] {
        let key = Countdown {
            kept_since,
            ..found(90_000)
        };
        assert_eq!(judge(deleted, key) == AdoptionDecision::Recreate, counts);
    }
    // The row was written while the key waited.
    let key = Countdown {
        alive_at: Some(UnixMs(last_word.0 - 1)),
        ..found(90_000)
    };
    assert_eq!(judge(deleted, key), AdoptionDecision::Leave);
    for state in STATES {
        let since = row(state, 0).last_word();
        let key = Countdown {
            kept_since: Some(since),
            ..found(90_000)
        };
        assert_eq!(
            judge(row(state, -100), key),
            AdoptionDecision::Leave,
            "{state}"
        );
    }
}

#[test]
fn an_arming_heard_before_a_run_ended_needs_an_inspection() {
    let ended = row(State::Done, -5_000);
    for (heard_ms, needs) in [(-1_001, true), (-999, false)] {
        let key = heard_at(heard_ms, 60_000);
        assert_eq!(key.needs_inspection(&ended, NOW), needs);
        assert_eq!(judge(ended, key), AdoptionDecision::Recreate);
    }
}

#[test]
fn older_evidence_does_not_count_at_any_due_time() {
    for state in STATES {
        for of in [row, of_a_client, of_a_program] {
            for due_ms in [100, 30_000, 90_000] {
                let row = of(state, 60_000);
                let key = heard_at(-60_021, due_ms);
                assert_eq!(judge(row, key), AdoptionDecision::Leave, "{state}");
                let ours = Countdown {
                    meant: Some(at(60_000)),
                    ..key
                };
                assert_eq!(judge(row, ours), AdoptionDecision::Leave, "{state}");
            }
        }
    }
}

#[test]
fn a_key_armed_after_a_cancellation_or_an_end_starts_over_at_any_due_time() {
    for state in [State::Done, State::Dead, State::Cancelled] {
        for of in [row, of_a_client, of_a_program] {
            for apart in [-1_000, 0, 1_000] {
                let ended = of(state, 5_000);
                assert_eq!(
                    judge(ended, heard(5_000 + apart)),
                    AdoptionDecision::Recreate
                );
            }
        }
    }
    // Until the run ended, it was the arming that ran.
    for of in [row, of_a_client, of_a_program] {
        let done = of(State::Done, 0);
        assert_eq!(judge(done, heard_at(-2_000, 0)), AdoptionDecision::Leave);
    }
}

#[test]
fn a_newer_key_that_matches_its_row_is_the_same_arming() {
    for state in [State::Pending, State::Waiting, State::Running] {
        for apart in [-100, 0, 100] {
            // The second listener heard it.
            let key = heard_at(-59_900, 60_000 + apart);
            assert_eq!(
                judge(row(state, 60_000), key),
                AdoptionDecision::Leave,
                "{state}"
            );
        }
        for apart in [-2_000, 0, 2_000] {
            let program = of_a_program(state, 60_000);
            let key = heard(60_000 + apart);
            assert_eq!(judge(program, key), AdoptionDecision::Leave, "{state}");
        }
    }
}

#[test]
fn a_key_over_a_row_of_a_client_is_exact() {
    let pending = of_a_client(State::Pending, 60_000);
    for apart in [-1_900, -1, 1, 1_900] {
        let key = heard(60_000 + apart);
        assert_eq!(judge(pending, key), AdoptionDecision::Move, "{apart}");
    }
    assert_eq!(judge(pending, heard(60_000)), AdoptionDecision::Leave);
}

#[test]
fn a_key_armed_for_another_time_is_a_new_arming() {
    for (state, wanted) in STATES.into_iter().zip(MOVED_OR_BEGUN_ANEW) {
        for due_ms in [5_000, 60_101] {
            assert_eq!(judge(row(state, 60_000), heard(due_ms)), wanted, "{state}");
        }
        for due_ms in [5_000, 62_001] {
            let program = of_a_program(state, 60_000);
            assert_eq!(judge(program, heard(due_ms)), wanted, "{state}");
        }
    }
}

#[test]
fn a_run_that_started_after_the_keys_due_time_is_left_alone() {
    for state in [State::Waiting, State::Running, State::Done, State::Dead] {
        let begun = of_a_client(state, -1_500);
        let key = heard_at(-10_000, -5_000);
        assert_eq!(judge(begun, key), AdoptionDecision::Leave, "{state}");
    }
}

#[test]
fn a_due_task_is_not_moved_to_another_past_time() {
    let gone = Countdown {
        alive_at: None,
        ..heard(-3_000)
    };
    assert_eq!(judge(row(State::Pending, 0), gone), AdoptionDecision::Leave);
    assert_eq!(judge(row(State::Pending, 1), gone), AdoptionDecision::Move);
}

#[test]
fn a_key_that_outlives_its_row_was_armed_again_at_any_due_time() {
    for (state, wanted) in STATES.into_iter().zip(MOVED_OR_BEGUN_ANEW).take(5) {
        let due = RowEvidence {
            ended: None,
            ..row(state, -50)
        };
        assert_eq!(judge(due, heard(40)), wanted, "{state}");
        let expired = Countdown {
            alive_at: None,
            ..heard(40)
        };
        assert_eq!(judge(due, expired), AdoptionDecision::Leave, "{state}");
    }
}

#[test]
fn the_key_of_a_redriven_task_is_not_a_new_arming() {
    let own_key = Countdown {
        alive_at: None,
        ..heard_at(-2, -1)
    };
    for (state, wanted) in STATES.into_iter().zip(MOVED_OR_BEGUN_ANEW) {
        let redriven = RowEvidence {
            changed: at(-4),
            due_at: at(-6_000),
            ended: None,
            ..row(state, -60_000)
        };
        assert_eq!(judge(redriven, own_key), AdoptionDecision::Leave, "{state}");
        let redriven_before = RowEvidence {
            changed: at(-3_000),
            due_at: redriven.due,
            ..redriven
        };
        if state != State::Pending {
            assert_eq!(judge(redriven_before, own_key), wanted, "{state}");
        }
    }
}

#[test]
fn a_key_of_a_retry_that_was_armed_late_is_not_a_new_arming() {
    let own_key = Countdown {
        alive_at: None,
        ..heard_at(-2, -1)
    };
    for (state, wanted) in STATES.into_iter().zip(MOVED_OR_BEGUN_ANEW) {
        let retried = RowEvidence {
            due_at: at(-15_000),
            ended: state.is_finished().then(|| at(-9_000)),
            ..row(state, -20_000)
        };
        assert_eq!(judge(retried, own_key), AdoptionDecision::Leave, "{state}");
        let ended_long_ago = RowEvidence {
            ended: Some(at(-11_000)),
            ..retried
        };
        let ran_once = RowEvidence {
            due_at: retried.due,
            ..retried
        };
        if state.is_finished() {
            assert_eq!(judge(ended_long_ago, own_key), wanted, "{state}");
            assert_eq!(judge(ran_once, own_key), wanted, "{state}");
        }
    }
}

/// A key that is gone, of a late event that was published at this time or later, and read now.
fn late(after_ms: i64) -> Countdown {
    Countdown {
        late: true,
        ..Countdown::expired(NOW, at(after_ms))
    }
}

#[test]
fn a_late_event_of_a_key_that_is_gone_is_not_a_new_arming() {
    for state in STATES {
        // Another daemon has heard of the key when it was armed, 4 s ago.
        let adopted = RowEvidence {
            changed: at(-4_000),
            created: at(-4_000),
            ended: state.is_finished().then(|| at(-3_300)),
            ..row(state, -3_400)
        };
        for after_ms in [-4_100, -4_010, -3_990] {
            assert_eq!(
                judge(adopted, late(after_ms)),
                AdoptionDecision::Leave,
                "{state} {after_ms}"
            );
        }
        assert_eq!(
            decide_adoption(None, &late(-4_100), NOW),
            AdoptionDecision::Insert
        );
    }
    // Armed again long after the row's arming, and read late.
    let before = row(State::Done, -40_000);
    assert_eq!(judge(before, late(-4_000)), AdoptionDecision::Recreate);
}

#[test]
fn a_key_that_is_there_when_a_late_event_is_read_counts_if_it_is_inspected_again() {
    let cancelled = RowEvidence {
        ended: Some(at(-1_000)),
        ..row(State::Cancelled, 60_000)
    };
    let key = Countdown {
        late: true,
        ..heard_at(-4_000, 90_000)
    };
    assert_eq!(judge(cancelled, key), AdoptionDecision::Recreate);
    assert!(key.needs_inspection(&cancelled, NOW));
    assert!(!key.is_surely_younger(&cancelled));
    // Cancelled after it was inspected.
    let since = RowEvidence {
        ended: Some(at(1)),
        ..cancelled
    };
    assert_eq!(judge(since, key), AdoptionDecision::Leave);
}

#[test]
fn after_the_clock_was_set_back_a_key_counts_if_it_is_inspected_again() {
    for (state, wanted) in STATES.into_iter().zip(MOVED_OR_BEGUN_ANEW) {
        let ahead = RowEvidence {
            changed: at(60_000),
            created: at(60_000),
            ended: state.is_finished().then(|| at(61_000)),
            ..row(state, 300_000)
        };
        assert!(ahead.is_ahead_of(NOW));
        assert_eq!(judge(ahead, heard(2_000)), wanted, "{state}");
        assert!(heard(2_000).needs_inspection(&ahead, NOW));
        assert!(!heard(2_000).is_surely_younger(&ahead));
        let gone = Countdown::expired(NOW, NOW);
        assert_eq!(judge(ahead, gone), AdoptionDecision::Leave, "{state}");
    }
    // A program may be ahead by the rest of its second.
    let legacy = RowEvidence {
        changed: UnixMs(0),
        ended: None,
        created: UnixMs(at(0).0 / 1000 * 1000),
        ..row(State::Pending, 60_000)
    };
    assert!(!legacy.is_ahead_of(NOW));
}

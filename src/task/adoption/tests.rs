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
        slack: Duration::ZERO,
        alive_at: Some(NOW),
        heard: Some(NOW),
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
            ..redriven
        };
        if state != State::Pending {
            assert_eq!(judge(redriven_before, own_key), wanted, "{state}");
        }
    }
}

#[test]
fn a_legacy_rewrite_of_an_adopted_row_is_recognized_by_whole_seconds() {
    let row = RowEvidence {
        due: UnixMs(1_060_000),
        ..row(State::Pending, 0)
    };
    for due in [1_060_000, 1_060_900, 1_062_000] {
        let key = Countdown {
            due: UnixMs(due),
            alive_at: Some(UnixMs(due - 1)),
            ..heard(0)
        };
        assert_eq!(
            decide_adoption(Some(&row), &key, UnixMs(due)),
            AdoptionDecision::Leave
        );
        assert_ne!(key.row_due().0 % 1000, 0);
        assert!(key.row_due() >= key.due);
    }
}

#[test]
fn a_legacy_program_may_write_the_current_second() {
    let row = RowEvidence {
        created: UnixMs(1_000_000),
        ..of_a_program(State::Pending, 60_000)
    };
    assert_eq!(row.last_word(), UnixMs(1_000_999));
    let exact = RowEvidence {
        created: UnixMs(1_000_001),
        ..row
    };
    assert_eq!(exact.last_word(), UnixMs(1_000_001));
}

#[test]
fn a_cancellation_by_an_earlier_version_counts_as_a_change() {
    let cancelled = RowEvidence {
        ended: Some(at(-10)),
        ..of_a_program(State::Cancelled, 60_000)
    };
    assert_eq!(
        judge(cancelled, heard_at(-31, 90_000)),
        AdoptionDecision::Leave
    );
    assert_eq!(judge(cancelled, heard(90_000)), AdoptionDecision::Recreate);
}

#[test]
fn a_key_never_seen_alive_counts_only_against_rows_from_keys() {
    let gone = |due_ms| Countdown::expired(at(due_ms), at(due_ms));
    for state in STATES {
        for of in [of_a_client, of_a_program] {
            assert_eq!(
                judge(of(state, 60_000), gone(0)),
                AdoptionDecision::Leave,
                "{state}"
            );
        }
        assert_eq!(
            judge(row(state, 0), gone(2_000)),
            AdoptionDecision::Leave,
            "{state}"
        );
    }
    assert_eq!(
        judge(row(State::Pending, 60_000), gone(0)),
        AdoptionDecision::Move
    );
    assert_eq!(
        judge(row(State::Done, -2_001), gone(0)),
        AdoptionDecision::Recreate
    );
    // It may have been the task's own key, for a retry.
    let waiting = RowEvidence {
        due_at: at(-1),
        ..row(State::Waiting, -30_000)
    };
    assert_eq!(judge(waiting, gone(0)), AdoptionDecision::Leave);
}

#[test]
fn each_earlier_expiry_of_a_key_of_lapsed_counts() {
    let ours = |meant_ms, due_ms| Countdown {
        meant: Some(at(meant_ms)),
        ..heard(due_ms)
    };
    assert_eq!(
        decide_adoption(None, &ours(60_000, 5_000), NOW),
        AdoptionDecision::Leave
    );
    for state in STATES {
        let hastened = match state {
            State::Pending | State::Running => AdoptionDecision::Move,
            _ => AdoptionDecision::Leave,
        };
        for row_ms in [60_000, 30_000, 2_000] {
            let row = of_a_client(state, row_ms);
            assert_eq!(judge(row, ours(60_000, 5_000)), hastened, "{state}");
            assert_eq!(
                judge(row, ours(60_000, 90_000)),
                AdoptionDecision::Leave,
                "{state}"
            );
        }
    }
    let due = of_a_client(State::Pending, -1);
    assert_eq!(judge(due, ours(-1, -5_000)), AdoptionDecision::Leave);
}

#[test]
fn a_slow_reply_widens_the_match_towards_earlier_only() {
    let slow = |due_ms| Countdown {
        slack: Duration::from_millis(500),
        ..heard(due_ms)
    };
    let pending = RowEvidence {
        changed: NOW,
        ..row(State::Pending, 60_000)
    };
    assert_eq!(judge(pending, slow(60_600)), AdoptionDecision::Leave);
    assert_eq!(judge(pending, slow(60_601)), AdoptionDecision::Move);
    assert_eq!(judge(pending, slow(59_899)), AdoptionDecision::Move);
}

#[test]
fn a_scanned_key_counts_only_against_rows_from_keys_and_by_seconds() {
    for state in STATES {
        let row = row(state, 60_000);
        assert_eq!(
            judge(row, found(62_000)),
            AdoptionDecision::Leave,
            "{state}"
        );
    }
    let pending = row(State::Pending, 60_000);
    assert_eq!(judge(pending, found(62_001)), AdoptionDecision::Move);
    let done = row(State::Done, -5_000);
    assert_eq!(judge(done, found(60_000)), AdoptionDecision::Recreate);
    // A move or cancellation while Redis was down left the older key there.
    for state in STATES {
        for of in [of_a_client, of_a_program] {
            assert_eq!(
                judge(of(state, 60_000), found(90_000)),
                AdoptionDecision::Leave
            );
        }
    }
}

#[test]
fn a_key_found_over_a_cancelled_task_is_a_leftover_unless_its_key_was_deleted() {
    let cancelled = row(State::Cancelled, 60_000);
    for due_ms in [5_000, 60_000, 90_000] {
        assert_eq!(judge(cancelled, found(due_ms)), AdoptionDecision::Leave);
        let withdrawn = RowEvidence {
            origin: Origin::DeletedKey,
            ..cancelled
        };
        assert_eq!(judge(withdrawn, found(due_ms)), AdoptionDecision::Recreate);
    }
}

#[test]
fn a_task_deleted_by_a_legacy_program_is_adopted_only_if_heard_and_due_at_another_time() {
    let deleted = RowEvidence {
        deleted: true,
        ended: None,
        ..of_a_program(State::Cancelled, 60_000)
    };
    assert_eq!(judge(deleted, heard(61_000)), AdoptionDecision::Leave);
    assert_eq!(judge(deleted, heard(90_000)), AdoptionDecision::Recreate);
    assert_eq!(judge(deleted, found(90_000)), AdoptionDecision::Leave);
}

#[test]
fn a_fresh_inspection_decides_where_the_clocks_are_too_coarse() {
    let doubt = |row: &RowEvidence, key: &Countdown| {
        (key.needs_inspection(row, NOW), key.is_surely_younger(row))
    };
    let pending = of_a_client(State::Pending, 60_000);
    assert_eq!(doubt(&pending, &heard_at(-60_010, 90_000)), (true, false));
    assert_eq!(doubt(&pending, &heard_at(-59_900, 90_000)), (true, true));
    assert_eq!(doubt(&pending, &heard(90_000)), (false, true));
    let cancelled = of_a_client(State::Cancelled, 60_000);
    assert_eq!(doubt(&cancelled, &heard(90_000)), (true, true));
    // A key that is due has expired.
    assert_eq!(doubt(&cancelled, &heard(-1)), (false, true));
}

#[test]
fn an_entry_that_stays_is_compared_by_its_exact_due_time() {
    let decide = |row: &RowEvidence, due_ms| decide_requested(Some(row), at(due_ms), NOW);
    assert_eq!(decide_requested(None, at(5), NOW), AdoptionDecision::Insert);
    for (state, moved) in STATES.into_iter().zip(MOVED_OR_BEGUN_ANEW) {
        let same = match state {
            State::Cancelled => AdoptionDecision::Recreate,
            _ => AdoptionDecision::Leave,
        };
        for row in [row(state, 5_000), of_a_client(state, 5_000)] {
            assert_eq!(decide(&row, 5_000), same, "{row:?}");
            assert_eq!(decide(&row, 5_001), moved, "{row:?}");
            assert_eq!(decide(&row, -9_000), moved, "overdue: {row:?}");
            let newer = RowEvidence {
                changed: at(1_000),
                ..row
            };
            assert_eq!(decide(&newer, 5_001), AdoptionDecision::Leave);
        }
    }
    let deleted = RowEvidence {
        deleted: true,
        ..of_a_program(State::Pending, 5_000)
    };
    assert_eq!(decide(&deleted, 5_000), AdoptionDecision::Recreate);
}

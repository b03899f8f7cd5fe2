//! Rows and keys of legacy programs, scanned keys, and clocks that are too coarse.

use super::*;

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
        tolerance: Duration::from_millis(500),
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
fn an_entry_read_at_about_the_time_of_a_change_may_be_the_one_before_it() {
    let changed_at = |row: RowEvidence, ms: i64| RowEvidence {
        changed: at(ms),
        ..row
    };
    for state in STATES {
        let by_client = of_a_client(state, 5_000);
        for (ms, doubt) in [(-10_000, false), (-251, false), (-250, true), (5, true)] {
            let row = changed_at(by_client, ms);
            assert_eq!(may_be_replaced(&row, NOW), doubt, "{ms} ms: {row:?}");
        }
        let read_before = RowEvidence {
            origin: Origin::Entry,
            ..changed_at(by_client, -5)
        };
        let is_cancelled = state == State::Cancelled;
        assert_eq!(may_be_replaced(&read_before, NOW), is_cancelled);
        let removed = RowEvidence {
            origin: Origin::DeletedKey,
            ..read_before
        };
        assert_eq!(may_be_replaced(&removed, NOW), !is_cancelled);
    }
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

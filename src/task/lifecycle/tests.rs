use super::*;

const NOW: UnixMs = UnixMs(1_000_000);

fn attempt(number: u16) -> Attempt {
    Attempt {
        number,
        crashes: 0,
        max_attempts: None,
        since: NOW,
        snoozes: 0,
    }
}

fn failed(advice: RetryAdvice) -> Outcome {
    Outcome::Failed(Failure {
        message: "no".into(),
        advice,
    })
}

fn judged(outcome: Outcome, attempt: Attempt) -> Verdict {
    judge(outcome, attempt, &RetryPolicy::default(), NOW, 0.5)
}

#[test]
fn success_completes() {
    assert_eq!(judged(Outcome::Succeeded, attempt(1)), Verdict::Complete);
}

#[test]
fn a_failure_waits_its_rung() {
    let at = NOW.plus(Duration::from_secs(180));
    assert_eq!(
        judged(failed(RetryAdvice::ByPolicy), attempt(4)),
        Verdict::RetryAt {
            at,
            error: "no".into()
        }
    );
}

#[test]
fn the_handlers_own_delay_comes_before_the_ladder() {
    let at = NOW.plus(Duration::from_secs(7));
    let outcome = failed(RetryAdvice::After(Duration::from_secs(7)));
    assert_eq!(
        judged(outcome, attempt(1)),
        Verdict::RetryAt {
            at,
            error: "no".into()
        }
    );
}

#[test]
fn the_last_attempt_buries() {
    let verdict = judged(failed(RetryAdvice::ByPolicy), attempt(16));
    let Verdict::Bury { reason, error } = verdict else {
        panic!("not buried")
    };
    assert_eq!(reason, Reason::Exhausted);
    assert_eq!(error, "gave up after 16 of 16 attempts: no");
    assert!(matches!(
        judged(failed(RetryAdvice::ByPolicy), attempt(15)),
        Verdict::RetryAt { .. }
    ));
}

#[test]
fn the_tasks_own_limit_stands_over_the_routes() {
    let once = Attempt {
        max_attempts: Some(1),
        ..attempt(1)
    };
    assert!(matches!(
        judged(failed(RetryAdvice::ByPolicy), once),
        Verdict::Bury { .. }
    ));
    let longer = Attempt {
        max_attempts: Some(20),
        ..attempt(16)
    };
    assert!(matches!(
        judged(failed(RetryAdvice::ByPolicy), longer),
        Verdict::RetryAt { .. }
    ));
}

#[test]
fn a_permanent_failure_is_buried_at_once() {
    let verdict = judged(failed(RetryAdvice::Never), attempt(1));
    assert_eq!(
        verdict,
        Verdict::Bury {
            reason: Reason::Permanent,
            error: "permanent failure: no".into()
        }
    );
}

#[test]
fn a_handler_cannot_ask_for_a_moment_that_the_ledger_has_no_room_for() {
    let verdict = judged(failed(RetryAdvice::After(Duration::MAX)), attempt(1));
    let at = NOW.plus(DELAY_MAX);
    assert!(matches!(verdict, Verdict::RetryAt { at: found, .. } if found == at));
}

#[test]
fn timeouts_and_panics_are_tried_again() {
    let timed_out = Outcome::TimedOut {
        after: Duration::from_secs(5),
    };
    let panicked = Outcome::Panicked {
        message: "boom".into(),
    };
    for outcome in [timed_out, panicked] {
        assert!(matches!(
            judged(outcome, attempt(1)),
            Verdict::RetryAt { .. }
        ));
    }
}

#[test]
fn what_is_no_fault_of_the_task_is_released() {
    assert_eq!(judged(Outcome::Interrupted, attempt(16)), Verdict::Release);
}

#[test]
fn poison_is_buried() {
    let suspect = Attempt {
        crashes: POISON_CRASHES,
        ..attempt(4)
    };
    let verdict = judged(Outcome::Poisoned, suspect);
    assert_eq!(
        verdict,
        Verdict::Bury {
            reason: Reason::Poison,
            error: "poison: 3 leases ran out while it was running".into()
        }
    );
}

#[test]
fn no_attempt_begins_after_the_deadline() {
    let policy = RetryPolicy {
        deadline: Some(Duration::from_secs(100)),
        ..RetryPolicy::fixed(Duration::from_secs(40))
    };
    let late = |seconds: u64| {
        let now = NOW.plus(Duration::from_secs(seconds));
        judge(failed(RetryAdvice::ByPolicy), attempt(1), &policy, now, 0.5)
    };
    assert!(matches!(late(60), Verdict::RetryAt { .. }));
    let Verdict::Bury { reason, error } = late(61) else {
        panic!("not buried")
    };
    assert_eq!(reason, Reason::Deadline);
    assert_eq!(
        error,
        "gave up after 1 attempts: the next would have begun after its deadline of 1m 40s: no"
    );
    let snoozed = Outcome::Snoozed {
        delay: Duration::from_secs(101),
    };
    assert!(matches!(
        judge(snoozed, attempt(1), &policy, NOW, 0.5),
        Verdict::Bury {
            reason: Reason::Deadline,
            ..
        }
    ));
}

#[test]
fn a_snooze_waits_and_one_too_many_counts_as_a_failure() {
    let snoozed = |snoozes| {
        let delay = Duration::from_secs(7);
        let attempt = Attempt {
            snoozes,
            ..attempt(16)
        };
        judged(Outcome::Snoozed { delay }, attempt)
    };
    let at = NOW.plus(Duration::from_secs(7));
    assert_eq!(snoozed(0), Verdict::SnoozeUntil(at));
    assert_eq!(snoozed(SNOOZES_MAX - 1), Verdict::SnoozeUntil(at));
    let error = "gave up after 16 of 16 attempts: snoozed more than 1000 times in a row";
    assert_eq!(
        snoozed(SNOOZES_MAX),
        Verdict::Bury {
            reason: Reason::Exhausted,
            error: error.into()
        }
    );
}

#[test]
fn what_comes_too_late_is_buried_and_says_how_late() {
    let expired = Outcome::Expired {
        late: Duration::from_secs(7200),
        limit: Duration::from_secs(3600),
    };
    let error = "expired: it would have started 2h after it fell due, 1h at most is of use".into();
    let reason = Reason::Expired;
    assert_eq!(judged(expired, attempt(1)), Verdict::Bury { reason, error });
}

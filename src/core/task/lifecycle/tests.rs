use super::*;

const NOW: UnixMs = UnixMs(1_000_000);

const STARTED: UnixMs = UnixMs(999_000);

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
    judged_by(&RetryPolicy::default(), outcome, attempt, NOW)
}

fn judged_by(policy: &RetryPolicy, outcome: Outcome, attempt: Attempt, now: UnixMs) -> Verdict {
    let run = EndedRun {
        outcome,
        result: None,
        attempt,
        started: STARTED,
        daemon: "here:1",
    };
    judge(run, policy, now, 0.5).expect("the handler has not settled it")
}

fn attempt_error(how: How, attempt: u16, error: &str) -> AttemptError {
    AttemptError {
        how,
        attempt,
        started: how.was_run().then_some(STARTED),
        at: NOW,
        error: error.into(),
        daemon: "here:1".into(),
        crashes: 0,
        snoozes: 0,
    }
}

/// Reason and error of a burial.
fn burial(verdict: Verdict) -> (Reason, String) {
    match verdict {
        Verdict::Bury(Death { reason, error, .. }) => (reason, error),
        verdict => panic!("not buried: {verdict:?}"),
    }
}

#[test]
fn success_completes_with_the_result_if_there_is_one() {
    assert_eq!(judged(Outcome::Succeeded, attempt(1)), Verdict::Complete);
    let run = EndedRun {
        outcome: Outcome::Succeeded,
        result: Some("7".into()),
        attempt: attempt(1),
        started: STARTED,
        daemon: "here:1",
    };
    let verdict = judge(run, &RetryPolicy::default(), NOW, 0.5);
    assert_eq!(verdict, Some(Verdict::CompleteWith("7".into())));
}

#[test]
fn a_task_that_its_handler_has_settled_needs_no_verdict() {
    for outcome in [Outcome::Completed, Outcome::Again(NOW)] {
        let run = EndedRun {
            outcome,
            result: None,
            attempt: attempt(1),
            started: STARTED,
            daemon: "here:1",
        };
        assert_eq!(judge(run, &RetryPolicy::default(), NOW, 0.5), None);
    }
}

#[test]
fn a_failure_waits_its_rung() {
    let at = NOW.plus(Duration::from_secs(180));
    assert_eq!(
        judged(failed(RetryAdvice::ByPolicy), attempt(4)),
        Verdict::RetryAt {
            at,
            error: "no".into(),
            attempt_error: attempt_error(How::Failed, 4, "no"),
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
            error: "no".into(),
            attempt_error: attempt_error(How::Failed, 1, "no"),
        }
    );
}

#[test]
fn the_last_attempt_buries() {
    let verdict = judged(failed(RetryAdvice::ByPolicy), attempt(16));
    assert_eq!(
        verdict,
        Verdict::Bury(Death {
            reason: Reason::Exhausted,
            error: "gave up after 16 of 16 attempts: no".into(),
            attempt_error: attempt_error(How::Failed, 16, "no"),
        })
    );
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
        Verdict::Bury(_)
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
    let error = "permanent failure: no".to_owned();
    assert_eq!(burial(verdict), (Reason::Permanent, error));
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
    let error = "poison: 3 leases ran out while it was running";
    assert_eq!(
        verdict,
        Verdict::Bury(Death {
            reason: Reason::Poison,
            error: error.into(),
            attempt_error: AttemptError {
                crashes: POISON_CRASHES,
                // The fourth attempt was claimed and not run.
                ..attempt_error(How::Poisoned, 3, error)
            },
        })
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
        judged_by(&policy, failed(RetryAdvice::ByPolicy), attempt(1), now)
    };
    assert!(matches!(late(60), Verdict::RetryAt { .. }));
    let error =
        "gave up after 1 attempts: the next would have begun after its deadline of 1 min 40 s: no";
    assert_eq!(burial(late(61)), (Reason::Deadline, error.to_owned()));
    let snoozed = Outcome::Snoozed {
        delay: Duration::from_secs(101),
    };
    let (reason, _) = burial(judged_by(&policy, snoozed, attempt(1), NOW));
    assert_eq!(reason, Reason::Deadline);
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
    let waits = |snoozes| Verdict::Snooze {
        at,
        attempt_error: AttemptError {
            snoozes,
            ..attempt_error(How::Snoozed, 16, "")
        },
    };
    assert_eq!(snoozed(0), waits(1));
    assert_eq!(snoozed(SNOOZES_MAX - 1), waits(SNOOZES_MAX));
    let error = "snoozed more than 1000 times in a row";
    assert_eq!(
        snoozed(SNOOZES_MAX),
        Verdict::Bury(Death {
            reason: Reason::Exhausted,
            error: format!("gave up after 16 of 16 attempts: {error}"),
            attempt_error: attempt_error(
                How::Failed,
                16,
                &format!("gave up after 16 of 16 attempts: {error}")
            ),
        })
    );
}

#[test]
fn what_comes_too_late_is_buried_and_says_how_late() {
    let expired = Outcome::Expired {
        late: Duration::from_secs(7200),
        limit: Duration::from_secs(3600),
    };
    let error = "expired: it would have started 2 h after it fell due, 1 h at most is of use";
    assert_eq!(
        judged(expired, attempt(1)),
        Verdict::Bury(Death {
            reason: Reason::Expired,
            error: error.into(),
            attempt_error: attempt_error(How::Expired, 0, error),
        })
    );
}

#[test]
fn a_run_succeeds_if_it_completes_its_task_or_its_occurrence() {
    let death = || match judged(failed(RetryAdvice::Never), attempt(1)) {
        Verdict::Bury(death) => death,
        verdict => panic!("not buried: {verdict:?}"),
    };
    let next = |end| Verdict::NextOccurrence {
        next: NOW,
        end,
        result: None,
    };
    for success in [
        Verdict::Complete,
        Verdict::CompleteWith("1".into()),
        next(OccurrenceEnd::Succeeded),
        next(OccurrenceEnd::Skipped),
    ] {
        assert!(success.is_success(), "{success:?}");
    }
    for other in [
        judged(failed(RetryAdvice::ByPolicy), attempt(1)),
        Verdict::Bury(death()),
        Verdict::Release,
        Verdict::GiveBack,
        next(OccurrenceEnd::Failed(death())),
    ] {
        assert!(!other.is_success(), "{other:?}");
    }
}

#[test]
fn an_outcome_has_the_name_that_metrics_and_logs_use() {
    let names = [
        (Outcome::Succeeded, "succeeded"),
        (Outcome::Completed, "succeeded"),
        (Outcome::Again(NOW), "succeeded"),
        (failed(RetryAdvice::ByPolicy), "failed"),
        (
            Outcome::TimedOut {
                after: Duration::ZERO,
            },
            "timed_out",
        ),
        (Outcome::Poisoned, "poisoned"),
        (Outcome::Missed, "missed"),
        (Outcome::HandedOn, "handed_on"),
        (Outcome::Interrupted, "interrupted"),
        (Outcome::NotStarted, "interrupted"),
    ];
    for (outcome, name) in names {
        assert_eq!(outcome.as_str(), name, "{outcome:?}");
    }
}

#[test]
fn a_task_that_waits_for_others_has_snoozed_no_more_often() {
    let delay = Duration::from_secs(7);
    let error = "a task with tag `eu` is pending";
    let postponed = Outcome::Postponed {
        delay,
        error: error.into(),
    };
    let snoozes = SNOOZES_MAX;
    let attempt = Attempt {
        snoozes,
        ..attempt(1)
    };
    let Verdict::Snooze { at, attempt_error } = judged(postponed, attempt) else {
        panic!("it does not wait");
    };
    assert_eq!(at, NOW.plus(delay));
    assert_eq!(
        (attempt_error.how, attempt_error.snoozes),
        (How::Snoozed, snoozes)
    );
    assert_eq!(attempt_error.error, error);
}

//! How a run can end, and what follows from that for its task.

use std::time::Duration;

use super::{DELAY_MAX, How, Reason, RetryPolicy, UnixMs, spoken};

/// With so many leases that ran out, a task is taken to kill its daemon: it is buried without running.
pub const POISON_CRASHES: u8 = 3;

/// With so many, it is suspected: at most one such task runs at a time.
pub const SUSPECT_CRASHES: u8 = 2;

/// A task may be snoozed so many times in a row; one more counts as a failed attempt, so that it is noticed.
pub const SNOOZES_MAX: u16 = 1000;

/// Turns the outcome of a run into what is done about it. `unit` is a random number in `[0, 1)`, for
/// the jitter of the retry.
pub fn judge(
    outcome: Outcome,
    attempt: Attempt,
    policy: &RetryPolicy,
    now: UnixMs,
    unit: f64,
) -> Verdict {
    let next = Next {
        attempt,
        policy,
        now,
        unit,
    };
    let error = outcome.error();
    match outcome {
        Outcome::Succeeded | Outcome::Missed | Outcome::HandedOn => Verdict::Complete,
        Outcome::Completed => Verdict::Settled(None),
        Outcome::Again(due) => Verdict::Settled(Some(due)),
        Outcome::Failed(Failure { message: _, advice }) => match advice {
            RetryAdvice::ByPolicy => next.after_failure(error, None),
            RetryAdvice::After(delay) => next.after_failure(error, Some(delay)),
            RetryAdvice::Never => Verdict::Bury {
                reason: Reason::Permanent,
                error: format!("permanent failure: {error}"),
            },
        },
        Outcome::TimedOut { .. } | Outcome::Panicked { .. } => next.after_failure(error, None),
        Outcome::Snoozed { .. } if attempt.snoozes >= SNOOZES_MAX => {
            let error = format!("snoozed more than {SNOOZES_MAX} times in a row");
            next.after_failure(error, None)
        }
        Outcome::Snoozed { delay } => match next.moment(delay) {
            Some(at) => Verdict::SnoozeUntil(at),
            None => next.too_late("it was snoozed"),
        },
        Outcome::Expired { .. } => Verdict::Bury {
            reason: Reason::Expired,
            error,
        },
        Outcome::Poisoned => Verdict::Bury {
            reason: Reason::Poison,
            error: format!(
                "poison: {} leases ran out while it was running",
                attempt.crashes
            ),
        },
        Outcome::Interrupted => Verdict::Release,
    }
}

/// The attempt after this one, if there may be one.
struct Next<'a> {
    attempt: Attempt,
    policy: &'a RetryPolicy,
    now: UnixMs,
    unit: f64,
}

impl Next<'_> {
    /// Tries again, unless this attempt was the last one: after `delay`, else as the policy says.
    fn after_failure(&self, error: String, delay: Option<Duration>) -> Verdict {
        let number = self.attempt.number;
        let attempts_max = self
            .attempt
            .max_attempts
            .unwrap_or(self.policy.max_attempts);
        if number >= attempts_max {
            return Verdict::Bury {
                reason: Reason::Exhausted,
                error: format!("gave up after {number} of {attempts_max} attempts: {error}"),
            };
        }
        let delay = delay.unwrap_or_else(|| self.policy.delay(number, self.unit));
        match self.moment(delay) {
            Some(at) => Verdict::RetryAt { at, error },
            None => self.too_late(&error),
        }
    }

    /// The moment after this delay; `None` if that is behind the deadline.
    fn moment(&self, delay: Duration) -> Option<UnixMs> {
        let at = self.now.plus(delay.min(DELAY_MAX));
        let deadline = self.policy.deadline;
        let in_time = deadline.is_none_or(|limit| at <= self.attempt.since.plus(limit));
        in_time.then_some(at)
    }

    fn too_late(&self, error: &str) -> Verdict {
        Verdict::Bury {
            reason: Reason::Deadline,
            error: format!(
                "gave up after {} attempts: the next would have begun after its deadline of {}: {error}",
                self.attempt.number,
                spoken(self.policy.deadline.unwrap_or_default())
            ),
        }
    }
}

/// What the engine does about an outcome.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Verdict {
    /// Done.
    Complete,
    /// The handler's own transaction has settled it; armed again for this moment, if any.
    Settled(Option<UnixMs>),
    /// Pending again, not before this moment.
    RetryAt {
        /// When.
        at: UnixMs,
        /// Why.
        error: String,
    },
    /// Pending again, not before this moment; the attempt does not count.
    SnoozeUntil(UnixMs),
    /// Dead.
    Bury {
        /// Why, in a word.
        reason: Reason,
        /// Why, for people.
        error: String,
    },
    /// Pending again as if it had not been claimed: no crash is counted, and no attempt but that of a task that comes
    /// again.
    Release,
    /// The series goes on with its next occurrence.
    GoOn {
        /// When that is due.
        next: UnixMs,
        /// Why this one failed for good, if it did: in a word, and for people.
        died: Option<(Reason, String)>,
    },
}

/// How one run ended.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Outcome {
    /// The handler returned success.
    Succeeded,
    /// The handler's own transaction completed the task: nothing is left to write.
    Completed,
    /// The handler's own transaction completed the task and armed its key again.
    Again(UnixMs),
    /// The handler returned an error.
    Failed(Failure),
    /// The run outlived its time limit.
    TimedOut {
        /// The limit.
        after: Duration,
    },
    /// The handler panicked.
    Panicked {
        /// What it said.
        message: String,
    },
    /// The handler asked to be called again after so long. No fault of anybody's.
    Snoozed {
        /// How long.
        delay: Duration,
    },
    /// Too many leases ran out before: not run at all.
    Poisoned,
    /// It would have started too late to be of use: not run at all.
    Expired {
        /// How late.
        late: Duration,
        /// How late would have been in time.
        limit: Duration,
    },
    /// An occurrence of a series, too late to be run.
    Missed,
    /// An occurrence of a series that has become a task of its own.
    HandedOn,
    /// Shutdown or a lost lease ended it: no fault of the task.
    Interrupted,
}

impl Outcome {
    /// The word for it in metrics and logs.
    pub fn as_str(&self) -> &'static str {
        match self {
            Self::Succeeded | Self::Completed | Self::Again(_) => "succeeded",
            Self::Failed(_) => "failed",
            Self::TimedOut { .. } => "timed_out",
            Self::Panicked { .. } => "panicked",
            Self::Snoozed { .. } => "snoozed",
            Self::Poisoned => "poisoned",
            Self::Expired { .. } => "expired",
            Self::Missed => "missed",
            Self::HandedOn => "handed_on",
            Self::Interrupted => "interrupted",
        }
    }

    /// Whether the handler was started.
    pub fn was_run(&self) -> bool {
        match self {
            Self::Poisoned | Self::Expired { .. } | Self::Missed | Self::HandedOn => false,
            Self::Succeeded
            | Self::Completed
            | Self::Again(_)
            | Self::Failed(_)
            | Self::TimedOut { .. }
            | Self::Panicked { .. }
            | Self::Snoozed { .. }
            | Self::Interrupted => true,
        }
    }

    /// What went wrong, for people; nothing if nothing did.
    pub fn error(&self) -> String {
        match self {
            Self::Failed(failure) => failure.message.clone(),
            Self::TimedOut { after } => format!("timed out after {} s", after.as_secs_f64()),
            Self::Panicked { message } => format!("panicked: {message}"),
            Self::Expired { late, limit } => format!(
                "expired: it would have started {} after it fell due, {} at most is of use",
                spoken(*late),
                spoken(*limit)
            ),
            Self::Succeeded
            | Self::Completed
            | Self::Again(_)
            | Self::Snoozed { .. }
            | Self::Poisoned
            | Self::Missed
            | Self::HandedOn
            | Self::Interrupted => String::new(),
        }
    }

    /// What it is called in a task's history; `None` if it leaves no entry there.
    pub fn how(&self) -> Option<How> {
        match self {
            Self::Failed(_) => Some(How::Failed),
            Self::TimedOut { .. } => Some(How::TimedOut),
            Self::Panicked { .. } => Some(How::Panicked),
            Self::Snoozed { .. } => Some(How::Snoozed),
            Self::Poisoned => Some(How::Poisoned),
            Self::Expired { .. } => Some(How::Expired),
            Self::Succeeded
            | Self::Completed
            | Self::Again(_)
            | Self::Missed
            | Self::HandedOn
            | Self::Interrupted => None,
        }
    }
}

/// A handler's error, as the lifecycle sees it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Failure {
    /// For people.
    pub message: String,
    /// What the handler says about trying again.
    pub advice: RetryAdvice,
}

/// What a handler says about trying again.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum RetryAdvice {
    /// Nothing: the retry policy decides.
    ByPolicy,
    /// After this long, if any attempt is left.
    After(Duration),
    /// Never: trying again cannot help.
    Never,
}

/// Which run of a task this is, by the counters of its claim.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Attempt {
    /// Runs started, this one included: 1 for the first.
    pub number: u16,
    /// Leases of this arming that ran out.
    pub crashes: u8,
    /// The task's own limit of runs, over its route's.
    pub max_attempts: Option<u16>,
    /// When the arming fell due, or was made or redriven, if later: deadlines are counted from here.
    pub since: UnixMs,
    /// How often in a row it was snoozed before.
    pub snoozes: u16,
}

#[cfg(test)]
mod tests {
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
        let error =
            "expired: it would have started 2h after it fell due, 1h at most is of use".into();
        let reason = Reason::Expired;
        assert_eq!(judged(expired, attempt(1)), Verdict::Bury { reason, error });
    }
}

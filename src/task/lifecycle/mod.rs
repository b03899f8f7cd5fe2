//! How a run can end, and what follows from that for its task.

use std::time::Duration;

use super::{DELAY_MAX, How, Reason, RetryPolicy, UnixMs, spoken};

/// Number of expired leases after which a task counts as killing its daemon: it is buried without running.
pub const POISON_CRASHES: u8 = 3;

/// Number of expired leases after which a task is suspected: at most one such task runs at a time.
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
    /// Back to pending without counting a crash or an attempt (a recurring task keeps its attempt).
    Release,
    /// The series continues with its next occurrence.
    NextOccurrence {
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
mod tests;

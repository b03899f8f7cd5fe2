//! Lifecycle of a run: outcomes, and the verdict on its task that follows from an outcome.

mod failure;
mod occurrence;

use std::time::Duration;

pub use self::failure::{Failure, RetryAdvice};
pub use self::occurrence::{EndedOccurrence, NotAnOccurrence, OccurrenceEnd, OccurrenceOutcome};
use super::{AttemptError, DELAY_MAX, How, Reason, RetryPolicy, UnixMs};
use crate::format::duration;

/// Number of expired leases after which a task counts as killing its daemon: it is buried without running.
pub const POISON_CRASHES: u8 = 3;

/// Number of expired leases after which a task is suspected: such tasks run one at a time, until some have ended by
/// themselves.
pub const SUSPECT_CRASHES: u8 = 2;

/// Maximum number of snoozes in a row. One more counts as a failed attempt, so that it is noticed.
pub const SNOOZES_MAX: u16 = 1000;

/// A run that has ended.
#[derive(Debug, Clone)]
pub struct EndedRun<'a> {
    /// How it ended.
    pub outcome: Outcome,
    /// The handler's result to be stored, as JSON.
    pub result: Option<String>,
    /// Which run of its task this was.
    pub attempt: Attempt,
    /// When it started.
    pub started: UnixMs,
    /// The daemon that ran it.
    pub daemon: &'a str,
}

/// Returns the verdict on a run; `None` if the handler's own transaction has settled the task. `unit` is a random number
/// in `[0, 1)`, for the jitter of the retry.
pub fn judge(run: EndedRun<'_>, policy: &RetryPolicy, now: UnixMs, unit: f64) -> Option<Verdict> {
    let error = run.outcome.error();
    let judged = Judged {
        run: &run,
        policy,
        now,
        unit,
    };
    Some(match &run.outcome {
        Outcome::Succeeded | Outcome::Missed | Outcome::HandedOn => match run.result {
            Some(result) => Verdict::CompleteWith(result),
            None => Verdict::Complete,
        },
        Outcome::Completed | Outcome::Again(_) => return None,
        Outcome::Failed(Failure { message: _, advice }) => match *advice {
            RetryAdvice::ByPolicy => judged.after_failure(error, None),
            RetryAdvice::After(delay) => judged.after_failure(error, Some(delay)),
            RetryAdvice::Never => {
                judged.bury(Reason::Permanent, format!("permanent failure: {error}"))
            }
        },
        Outcome::TimedOut { .. } | Outcome::Panicked { .. } => judged.after_failure(error, None),
        Outcome::Snoozed { .. } if run.attempt.snoozes >= SNOOZES_MAX => {
            let error = format!("snoozed more than {SNOOZES_MAX} times in a row");
            judged.after_failure(error, None)
        }
        Outcome::Snoozed { delay } => match judged.moment(*delay) {
            Some(at) => Verdict::Snooze {
                at,
                attempt_error: judged.snooze(),
            },
            None => judged.too_late("it was snoozed"),
        },
        // However long it waits: that is not up to its handler.
        Outcome::Postponed { delay, .. } => Verdict::Snooze {
            at: now.plus(*delay),
            attempt_error: AttemptError {
                snoozes: run.attempt.snoozes,
                ..judged.attempt_error(How::Snoozed, error)
            },
        },
        Outcome::Expired { .. } => judged.bury(Reason::Expired, error),
        Outcome::Poisoned => judged.bury(
            Reason::Poison,
            format!(
                "poison: {} leases ran out while it was running",
                run.attempt.crashes
            ),
        ),
        Outcome::Interrupted => Verdict::Release,
        Outcome::NotStarted => Verdict::GiveBack,
    })
}

/// A run that did not succeed, and what decides about the next one.
struct Judged<'a> {
    run: &'a EndedRun<'a>,
    policy: &'a RetryPolicy,
    now: UnixMs,
    unit: f64,
}

impl Judged<'_> {
    /// Tries again, unless this attempt was the last one: after `delay`, else as the policy says.
    fn after_failure(&self, error: String, delay: Option<Duration>) -> Verdict {
        let attempt = &self.run.attempt;
        let (number, own_max) = (attempt.number, attempt.max_attempts);
        let attempts_max = own_max.unwrap_or(self.policy.max_attempts);
        if number >= attempts_max {
            let error = format!("gave up after {number} of {attempts_max} attempts: {error}");
            return self.bury(Reason::Exhausted, error);
        }
        let delay = delay.unwrap_or_else(|| self.policy.delay(number, self.unit));
        match self.moment(delay) {
            Some(at) => Verdict::RetryAt {
                at,
                attempt_error: self.failure(&error),
                error,
            },
            None => self.too_late(&error),
        }
    }

    /// The time after this delay; `None` if that is after the deadline.
    fn moment(&self, delay: Duration) -> Option<UnixMs> {
        let at = self.now.plus(delay.min(DELAY_MAX));
        let deadline = self.policy.deadline;
        let in_time = deadline.is_none_or(|limit| at <= self.run.attempt.since.plus(limit));
        in_time.then_some(at)
    }

    fn too_late(&self, error: &str) -> Verdict {
        let error = format!(
            "gave up after {} attempts: the next would have begun after its deadline of {}: {error}",
            self.run.attempt.number,
            duration(self.policy.deadline.unwrap_or_default())
        );
        self.bury(Reason::Deadline, error)
    }

    fn bury(&self, reason: Reason, error: String) -> Verdict {
        Verdict::Bury(Death {
            reason,
            attempt_error: self.failure(&error),
            error,
        })
    }

    /// The history's entry for a failure. `error` is the verdict's, for outcomes without an error of their own.
    fn failure(&self, error: &str) -> AttemptError {
        let outcome = &self.run.outcome;
        match outcome.how() {
            Some(How::Poisoned) => self.attempt_error(How::Poisoned, error.to_owned()),
            // Snoozed once too often, or for too long.
            Some(How::Snoozed) | None => self.attempt_error(How::Failed, error.to_owned()),
            Some(how) => self.attempt_error(how, outcome.error()),
        }
    }

    fn snooze(&self) -> AttemptError {
        AttemptError {
            snoozes: self.run.attempt.snoozes.saturating_add(1),
            ..self.attempt_error(How::Snoozed, String::new())
        }
    }

    fn attempt_error(&self, how: How, error: String) -> AttemptError {
        AttemptError {
            how,
            attempt: self.run.attempt.runs_started(&self.run.outcome),
            started: self.run.outcome.was_run().then_some(self.run.started),
            at: self.now,
            error,
            daemon: self.run.daemon.to_owned(),
            crashes: self.run.attempt.crashes,
            snoozes: 0,
        }
    }
}

/// What is done about a run: what its settlement writes.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Verdict {
    /// Done.
    Complete,
    /// Done, with a result: JSON, at most [`RESULT_BYTES_MAX`](crate::task::RESULT_BYTES_MAX) bytes.
    CompleteWith(String),
    /// Pending again, not before `at`.
    RetryAt {
        /// When.
        at: UnixMs,
        /// Why; cut to [`ERROR_BYTES_MAX`](crate::task::ERROR_BYTES_MAX).
        error: String,
        /// The newest entry of the history.
        attempt_error: AttemptError,
    },
    /// Pending again, not before `at`. The attempt is not counted, and the latest error stays.
    Snooze {
        /// When.
        at: UnixMs,
        /// The entry of the history. It replaces that of the previous snooze.
        attempt_error: AttemptError,
    },
    /// Dead. With [`Expired`](Reason::Expired) and [`Poison`](Reason::Poison) the attempt is not counted: the task was
    /// claimed and not run.
    Bury(Death),
    /// Back to pending after a run that was interrupted, without counting a crash or an attempt. If the task was cancelled
    /// meanwhile, that run was its last. An occurrence of a recurring task has begun: it is not missed, however late it
    /// begins again.
    Release,
    /// As [`Release`](Self::Release), for a claim that was never run. A task that was cancelled meanwhile still starts once:
    /// the answer to the cancellation was that it runs.
    GiveBack,
    /// Pending again as the next occurrence of a recurring task: another stable id, counters reset.
    NextOccurrence {
        /// When that is due; not the same time as that of the run.
        next: UnixMs,
        /// How this occurrence ended. Unless it was run, error and result of the previous one stay.
        end: OccurrenceEnd,
        /// The handler's result to be stored, as JSON, if it succeeded.
        result: Option<String>,
    },
}

/// Why a task, or an occurrence of a recurring task, is dead.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Death {
    /// The reason as a category.
    pub reason: Reason,
    /// The reason for people; cut to [`ERROR_BYTES_MAX`](crate::task::ERROR_BYTES_MAX).
    pub error: String,
    /// The newest entry of the history.
    pub attempt_error: AttemptError,
}

impl Verdict {
    /// True if the run succeeded.
    pub fn is_success(&self) -> bool {
        match self {
            Self::Complete | Self::CompleteWith(_) => true,
            Self::NextOccurrence { end, .. } => end.death().is_none(),
            Self::RetryAt { .. }
            | Self::Snooze { .. }
            | Self::Bury(_)
            | Self::Release
            | Self::GiveBack => false,
        }
    }
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
    /// The run exceeded its timeout.
    TimedOut {
        /// The limit.
        after: Duration,
    },
    /// The handler panicked.
    Panicked {
        /// The panic message.
        message: String,
    },
    /// The handler asked to be called again after a delay. Not a failure.
    Snoozed {
        /// The delay.
        delay: Duration,
    },
    /// It starts after other tasks, which have not ended: not run.
    Postponed {
        /// When to look again.
        delay: Duration,
        /// What it waits for.
        error: String,
    },
    /// Too many of its leases expired before: not run.
    Poisoned,
    /// It would have started later than the route allows: not run.
    Expired {
        /// The lateness.
        late: Duration,
        /// The maximum lateness.
        limit: Duration,
    },
    /// An occurrence of a recurring task, too late to be run.
    Missed,
    /// An occurrence of a recurring task that has become a task of its own.
    HandedOn,
    /// Shutdown or a lost lease ended it. Not a failure of the task.
    Interrupted,
    /// It was claimed and given back: no handler or worker has begun it.
    NotStarted,
}

impl Outcome {
    /// The name for metrics and logs.
    pub fn as_str(&self) -> &'static str {
        match self {
            Self::Succeeded | Self::Completed | Self::Again(_) => "succeeded",
            Self::Failed(_) => "failed",
            Self::TimedOut { .. } => "timed_out",
            Self::Panicked { .. } => "panicked",
            Self::Snoozed { .. } => "snoozed",
            Self::Postponed { .. } => "postponed",
            Self::Poisoned => "poisoned",
            Self::Expired { .. } => "expired",
            Self::Missed => "missed",
            Self::HandedOn => "handed_on",
            Self::Interrupted | Self::NotStarted => "interrupted",
        }
    }

    /// True if the handler was started.
    pub fn was_run(&self) -> bool {
        match self {
            Self::Postponed { .. }
            | Self::Poisoned
            | Self::Expired { .. }
            | Self::Missed
            | Self::HandedOn
            | Self::NotStarted => false,
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

    /// The error for people; empty if there is none.
    pub fn error(&self) -> String {
        match self {
            Self::Failed(failure) => failure.message.clone(),
            Self::TimedOut { after } => format!("timed out after {}", duration(*after)),
            Self::Panicked { message } => format!("panicked: {message}"),
            Self::Postponed { error, .. } => error.clone(),
            Self::Expired { late, limit } => format!(
                "expired: it would have started {} after it fell due, {} at most is of use",
                duration(*late),
                duration(*limit)
            ),
            Self::Succeeded
            | Self::Completed
            | Self::Again(_)
            | Self::Snoozed { .. }
            | Self::Poisoned
            | Self::Missed
            | Self::HandedOn
            | Self::Interrupted
            | Self::NotStarted => String::new(),
        }
    }

    /// The name in a task's history; `None` if it leaves no entry there.
    pub fn how(&self) -> Option<How> {
        match self {
            Self::Failed(_) => Some(How::Failed),
            Self::TimedOut { .. } => Some(How::TimedOut),
            Self::Panicked { .. } => Some(How::Panicked),
            Self::Snoozed { .. } | Self::Postponed { .. } => Some(How::Snoozed),
            Self::Poisoned => Some(How::Poisoned),
            Self::Expired { .. } => Some(How::Expired),
            Self::Succeeded
            | Self::Completed
            | Self::Again(_)
            | Self::Missed
            | Self::HandedOn
            | Self::Interrupted
            | Self::NotStarted => None,
        }
    }
}

/// A run's position among the runs of its task, by the counters of its claim.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Attempt {
    /// Number of runs started, including this one.
    pub number: u16,
    /// Number of expired leases of this arming.
    pub crashes: u8,
    /// The task's own maximum number of runs, instead of its route's.
    pub max_attempts: Option<u16>,
    /// When the arming fell due, or was created or redriven, if later. Deadlines count from here.
    pub since: UnixMs,
    /// Number of snoozes in a row before this run.
    pub snoozes: u16,
}

impl Attempt {
    /// Number of runs of this arming, including this one if the handler was run.
    pub fn runs_started(&self, outcome: &Outcome) -> u16 {
        match outcome.was_run() {
            true => self.number,
            false => self.number.saturating_sub(1),
        }
    }
}

#[cfg(test)]
mod tests;

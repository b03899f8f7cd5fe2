//! How far an audit has come, and why it runs.

use std::time::Duration;

use tokio::time::Instant;

use super::AuditReport;
use super::missing::Missing;
use crate::task::UnixMs;
use crate::timer::Cause;

/// An audit that broke off less than this ago continues where it stopped.
const RESUMABLE_FOR: Duration = Duration::from_secs(60);

/// The next step of an audit, in their order.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Default)]
pub(super) enum Step {
    /// Tasks due soon.
    #[default]
    Soon,
    /// The armed keys.
    Keys,
    /// All other future tasks.
    Later,
    /// Tasks that are due and wait, where a missing entry cancels a task.
    Due,
    /// Nothing more.
    End,
}

/// A place of an audit, and how many tasks it had checked there.
#[derive(Debug, Clone, Copy)]
pub(super) struct Place {
    pub(super) step: Step,
    pub(super) after: Option<(UnixMs, u64)>,
    pub(super) pending: usize,
}

/// Progress of an audit.
#[derive(Debug, Default)]
pub(super) struct Progress {
    pub(super) report: AuditReport,
    pub(super) step: Step,
    /// The row after which the audit continues.
    pub(super) after: Option<(UnixMs, u64)>,
    /// The position in the keys at which the audit continues.
    pub(super) cursor: Option<u64>,
    /// Keys that were missing, and are armed a little later.
    pub(super) missing: Missing<Place>,
    /// When the audit began, on the ledger's clock.
    pub(super) began: Option<UnixMs>,
    /// When the audit broke off.
    pub(super) broke_off: Option<Instant>,
}

impl Progress {
    /// Progress with which an audit resumes after `self` broke off. Starts over if that was long ago or the timer has
    /// lost its data since. Starts over with the keys if some may have been armed unheard since.
    pub(super) fn resume(self, cause: Cause) -> Self {
        let is_recent = |at: Instant| at.elapsed() < RESUMABLE_FOR;
        match self.broke_off {
            Some(at) if is_recent(at) && cause != Cause::RedisChanged => {
                let restart_keys = cause == Cause::Subscribed && self.step >= Step::Later;
                Self {
                    broke_off: None,
                    step: if restart_keys { Step::Keys } else { self.step },
                    cursor: self.cursor.filter(|_| cause != Cause::Subscribed),
                    ..self
                }
            }
            _ => Self::default(),
        }
    }

    /// Notes where to continue: at the first page whose missing keys are not armed.
    pub(super) fn break_off(&mut self) {
        if let Some(place) = self.missing.forget() {
            (self.step, self.after) = (place.step, place.after);
            self.report.pending = place.pending;
        }
        self.broke_off = Some(Instant::now());
    }
}

/// A request for an audit.
#[derive(Debug, Clone, Copy)]
pub(super) struct Request {
    pub(super) cause: Cause,
    /// An audit by another daemon satisfies the request if it began after this.
    pub(super) since: UnixMs,
}

impl Request {
    /// Merges two requests.
    pub(super) fn with(self, other: Self) -> Self {
        Self {
            cause: self.cause.max(other.cause),
            since: self.since.max(other.since),
        }
    }
}

/// Result of one page.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Page {
    /// More pages follow.
    More,
    /// This was the last page.
    Last,
    /// The timer did not answer: the page is to be repeated.
    Failed,
}

impl Page {
    /// Proceeds to `next` after the last page. Returns true if the audit continues.
    pub(super) fn proceed(self, next: Step, progress: &mut Progress) -> bool {
        if self == Self::Last {
            progress.step = next;
            if next == Step::Due {
                progress.after = None;
            }
        }
        self != Self::Failed
    }
}

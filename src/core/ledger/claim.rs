//! A claim: the fenced, leased right to run one attempt of one task.

use std::sync::Arc;
use std::time::Duration;

use tokio::time::Instant;

use super::{LatestProgress, Owner};
use crate::task::{
    Arming, Attempt, Contents, Occurrence, Recurrence, RecurrenceError, TaskKey, UnixMs,
};

/// The daemon that claims, and the length of its leases.
#[derive(Debug, Clone)]
pub struct Claimant {
    /// Name of the daemon, at most 64 characters.
    pub daemon: String,
    /// Length of the lease.
    pub lease: Duration,
}

/// A fenced right to one run: row, arming and claim.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct Lease {
    /// The arming.
    pub arming: Arming,
    /// The claim.
    pub owner: Owner,
}

/// A task that this process may run once, until the lease expires.
#[derive(Debug, Clone)]
pub struct Claim {
    /// The lease.
    pub lease: Lease,
    /// The key of the task.
    pub key: TaskKey,
    /// Number and limits of this run.
    pub attempt: Attempt,
    /// When the task was created.
    pub created: UnixMs,
    /// When the run could start: `end_time`, or the time of the retry.
    pub due_at: UnixMs,
    /// The payload, JSON. `None` if there is none, or it is [too long](Self::oversize).
    pub payload: Option<String>,
    /// Length of the payload in bytes, if that exceeds
    /// [`PAYLOAD_READ_MAX`](crate::task::PAYLOAD_READ_MAX): the task cannot run.
    pub oversize: Option<u64>,
    /// The tag of the task.
    pub tag: Option<String>,
    /// The recurrence; an error if the stored text cannot be parsed.
    pub recurrence: Option<Arc<Result<Recurrence, RecurrenceError>>>,
    /// Before the claim statement was sent: the lease lasts at least its length from then.
    pub claimed: Instant,
    /// What the run has reported in this process, for the next renewal of its lease.
    pub progress: Arc<LatestProgress>,
}

impl Claim {
    /// True if an occurrence of a recurring task was begun before this claim, even if no attempt was counted.
    pub fn has_started_before(&self) -> bool {
        self.attempt.number > 1 || self.due_at > self.lease.arming.due
    }

    /// Returns payload, tag and limit of the task.
    pub fn contents(&self) -> Contents {
        Contents {
            payload: self.payload.clone(),
            tag: self.tag.clone(),
            max_attempts: self.attempt.max_attempts,
        }
    }

    /// Returns the occurrence that this run is, seen at `now` on the ledger's clock. `None` if the task runs once.
    pub fn occurrence(&self, now: UnixMs) -> Option<Occurrence<'_>> {
        let recurrence = self.recurrence.as_deref()?.as_ref().ok()?;
        Some(Occurrence {
            recurrence,
            due: self.lease.arming.due,
            ready: self.due_at.max(self.attempt.since),
            started: self.started(now),
        })
    }

    /// Returns when the run started, seen at `now` on the ledger's clock.
    pub fn started(&self, now: UnixMs) -> UnixMs {
        now.minus(self.claimed.elapsed())
    }
}

/// Result of [`Claims::renew`](super::Claims::renew) for one lease.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Renewal {
    /// The lease lasts its full length from when the statement was sent.
    Held,
    /// The lease has expired, or another claim holds the row: stop the run.
    Lost,
    /// Another session holds the row's lock. The lease was not renewed; try again soon.
    Locked,
}

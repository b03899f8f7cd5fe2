//! A claim: the fenced, leased right to run one attempt of one task.

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use tokio::time::Instant;

use crate::task::{Arming, Attempt, Occurrence, Recurrence, RecurrenceError, TaskKey, UnixMs};

/// Owner token: 16 random bytes, new for every claim statement. Only the holder of the row's token may act on it.
#[derive(Clone, Copy, PartialEq, Eq, Hash)]
pub struct Owner(pub [u8; 16]);

impl Owner {
    /// A new one.
    pub fn random() -> Self {
        Self(rand::random())
    }
}

impl fmt::Debug for Owner {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Owner({:02x}{:02x}..)", self.0[0], self.0[1])
    }
}

/// Who claims, and for how long.
#[derive(Debug, Clone)]
pub struct Claimant {
    /// Name of the daemon, for people; at most 64 characters.
    pub daemon: String,
    /// Length of the lease.
    pub lease: Duration,
}

/// A fenced right to one run: the row, its arming and the claim that holds it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct Lease {
    /// The arming.
    pub arming: Arming,
    /// The claim.
    pub owner: Owner,
}

/// A task this process may run once, until the lease runs out.
#[derive(Debug, Clone)]
pub struct Claim {
    /// The right.
    pub lease: Lease,
    /// The task.
    pub key: TaskKey,
    /// Which run this is.
    pub attempt: Attempt,
    /// When the task was created.
    pub created: UnixMs,
    /// When it could start: `end_time`, or the retry that was ahead.
    pub due_at: UnixMs,
    /// JSON. `None` if there is none, or it is [too long](Self::oversize).
    pub payload: Option<String>,
    /// How many bytes the payload has, if that is more than
    /// [`PAYLOAD_READ_MAX`](crate::task::PAYLOAD_READ_MAX): the task cannot be run.
    pub oversize: Option<u64>,
    /// For people.
    pub tag: Option<String>,
    /// Its recurrence; an error if the stored text cannot be read.
    pub recurrence: Option<Arc<Result<Recurrence, RecurrenceError>>>,
    /// Before the statement was sent: the lease holds at least its length from then.
    pub claimed: Instant,
}

impl Claim {
    /// Which occurrence of its series this is, seen from `now` on the ledger's clock; `None` if it runs once.
    pub fn occurrence(&self, now: UnixMs) -> Option<Occurrence<'_>> {
        let recurrence = self.recurrence.as_deref()?.as_ref().ok()?;
        let elapsed_ms = i64::try_from(self.claimed.elapsed().as_millis()).unwrap_or(i64::MAX);
        Some(Occurrence {
            recurrence,
            due: self.lease.arming.due,
            ready: self.due_at.max(self.attempt.since),
            started: UnixMs(now.0.saturating_sub(elapsed_ms)),
        })
    }
}

/// What [`Claims::renew`](super::Claims::renew) came to, for one lease.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Renewal {
    /// It holds, for its whole length from when the statement was sent.
    Held,
    /// It has run out or is somebody else's: stop the run.
    Lost,
    /// Another session holds the row's lock: not renewed, try again soon.
    Locked,
}

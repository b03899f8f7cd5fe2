//! What a claim token has beside the lease, packed into an array of JSON.

use std::borrow::Cow;

use crate::task::{Attempt, TaskKey, UnixMs};

/// What a settlement needs beside the lease.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Rest {
    pub(super) key: TaskKey,
    pub(super) attempt: Attempt,
    pub(super) created: UnixMs,
    pub(super) due_at: UnixMs,
    pub(super) recurrence: Option<String>,
    /// When the worker got the task, on the ledger's clock.
    pub(super) handed: UnixMs,
    pub(super) visibility_ms: u64,
    pub(super) worker: String,
}

/// [`Rest`] as an array of JSON, which is short. Times are relative to the due time of the arming: key; attempt, crashes,
/// limit, start and snoozes of the [`Attempt`]; created, due and handed; visibility; worker; recurrence.
type Packed<'a> = (
    Cow<'a, str>,
    u16,
    u8,
    Option<u16>,
    i64,
    u16,
    i64,
    i64,
    i64,
    u64,
    Cow<'a, str>,
    Option<Cow<'a, str>>,
);

impl Rest {
    pub(super) fn packed(&self, due: UnixMs) -> Vec<u8> {
        let Self {
            key,
            attempt:
                Attempt {
                    number,
                    crashes,
                    max_attempts,
                    since,
                    snoozes,
                },
            created,
            due_at,
            recurrence,
            handed,
            visibility_ms,
            worker,
        } = self;
        let relative = |at: &UnixMs| at.0.saturating_sub(due.0);
        let packed: Packed<'_> = (
            key.as_str().into(),
            *number,
            *crashes,
            *max_attempts,
            relative(since),
            *snoozes,
            relative(created),
            relative(due_at),
            relative(handed),
            *visibility_ms,
            worker.into(),
            recurrence.as_deref().map(Into::into),
        );
        serde_json::to_vec(&packed).expect("texts and numbers are JSON")
    }

    pub(super) fn unpacked(packed: &[u8], due: UnixMs) -> Option<Self> {
        let (
            key,
            number,
            crashes,
            max_attempts,
            since,
            snoozes,
            created,
            due_at,
            handed,
            visibility_ms,
            worker,
            recurrence,
        ): Packed<'_> = serde_json::from_slice(packed).ok()?;
        let absolute = |relative: i64| UnixMs(relative.saturating_add(due.0));
        Some(Self {
            key: TaskKey::parse(&key).ok()?,
            attempt: Attempt {
                number,
                crashes,
                max_attempts,
                since: absolute(since),
                snoozes,
            },
            created: absolute(created),
            due_at: absolute(due_at),
            recurrence: recurrence.map(Into::into),
            handed: absolute(handed),
            visibility_ms,
            worker: worker.into(),
        })
    }
}

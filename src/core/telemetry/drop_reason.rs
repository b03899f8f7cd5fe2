//! Reasons for which signals and adoption candidates are dropped.

/// Why a signal or an adoption candidate led to no run. The label `reason` of `lapsed_signals_dropped_total`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum DropReason {
    /// A signal for the same key waits already, or settled the task just now.
    Coalesced,
    /// No handler or route of this daemon runs the task.
    Unroutable,
    /// Another daemon owns the task.
    NotOurs,
    /// The queue of the route is full, and the route may not start runs now.
    Held,
    /// The signal queue is full.
    Overflow,
    /// The key has no row.
    Unknown,
    /// The task is not due yet.
    Early,
    /// The task is paused or held for review.
    Paused,
    /// The task is running.
    Running,
    /// The task is done or dead.
    Finished,
    /// The task is cancelled.
    Cancelled,
    /// A legacy program marked the row as deleted.
    Deleted,
    /// The route does not adopt keys.
    NotAdopted,
    /// Too many adoption candidates wait.
    CandidateOverflow,
    /// The row of an adoption candidate says the same already.
    Known,
    /// The key of an adoption candidate changed meanwhile.
    OutOfDate,
    /// The row of an adoption candidate changed meanwhile.
    Overtaken,
    /// The task of a deleted key was not adopted from this key, or has changed since.
    NotCancelledByKey,
    /// The table cannot store the key.
    UnfitKey,
    /// The ledger refused the row of an adoption candidate.
    Refused,
    /// The key was armed, and has no expiry any more.
    Lasting,
    /// The server that announced the deletion of a key is not the master any more, or a key that was never read is missing on
    /// another server than the one that announced it.
    Unverified,
    /// Too many armed keys wait to be inspected.
    ArmingOverflow,
    /// Too many hints wait to be sent to other daemons.
    HintOverflow,
    /// The expired key is not a task key.
    Foreign,
    /// The expired key is too long for a task key.
    TooLong,
    /// The expired key is not UTF-8.
    NotUtf8,
    /// An element of a list of the wheel is not an entry.
    NotAnEntry,
}

impl DropReason {
    /// The name for metrics and logs.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Coalesced => "coalesced",
            Self::Unroutable => "unroutable",
            Self::NotOurs => "not_ours",
            Self::Held => "held",
            Self::Overflow => "overflow",
            Self::Unknown => "unknown",
            Self::Early => "early",
            Self::Paused => "paused",
            Self::Running => "running",
            Self::Finished => "finished",
            Self::Cancelled => "cancelled",
            Self::Deleted => "deleted",
            Self::NotAdopted => "not_adopted",
            Self::CandidateOverflow => "sighting_overflow",
            Self::Known => "known",
            Self::OutOfDate => "out_of_date",
            Self::Overtaken => "overtaken",
            Self::NotCancelledByKey => "not_withdrawn",
            Self::UnfitKey => "unfit_key",
            Self::Refused => "refused",
            Self::Lasting => "lasting",
            Self::Unverified => "unverified",
            Self::ArmingOverflow => "arming_overflow",
            Self::HintOverflow => "hint_overflow",
            Self::Foreign => "foreign",
            Self::TooLong => "too_long",
            Self::NotUtf8 => "not_utf8",
            Self::NotAnEntry => "not_an_entry",
        }
    }
}

impl std::fmt::Display for DropReason {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(self.as_str())
    }
}

//! What an audit has done.

use crate::timer::Cause;

/// Report of one audit.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, serde::Serialize)]
pub struct AuditReport {
    /// Number of tasks checked: future ones, and due ones if a missing entry cancels a task; 0 for a timer without a
    /// server, which cannot lose any.
    pub pending: usize,
    /// Number of keys armed again.
    pub rearmed: usize,
    /// Number of undeleted rows, which a legacy program had deleted and armed again.
    pub revived: usize,
    /// Number of rows written for keys that other programs had armed.
    pub adopted: usize,
    /// True if the audit finished. It breaks off when the timer does not answer.
    pub complete: bool,
}

impl AuditReport {
    /// Logs it.
    pub(super) fn log(self, cause: Cause) {
        let Self {
            pending,
            rearmed,
            revived,
            adopted,
            complete: _,
        } = self;
        tracing::info!(
            cause = cause.as_str(),
            pending,
            rearmed,
            revived,
            adopted,
            "audited"
        );
    }
}

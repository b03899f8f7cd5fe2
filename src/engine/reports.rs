//! Reports: what is both logged and counted. Each is a value, so that log line and metric cannot drift apart.

use super::deps::Deps;
use crate::ledger::{AdoptionRequest, Claim, Settled};
use crate::task::{Death, Reason, State, TaskKey, UnixMs};
use crate::telemetry::DropReason;
use crate::timer::{Cause, Source};

/// A task was claimed because of a signal from this source. Counted without a log line: the run has one.
pub struct TaskClaimed {
    pub source: Source,
}

impl TaskClaimed {
    pub fn emit(self, deps: &Deps) {
        let starts = deps.metrics.starts();
        let counter = match self.source {
            Source::Event => &starts.event,
            Source::Nudge => &starts.nudge,
            Source::Sweep => &starts.sweep,
            Source::Direct => &starts.direct,
        };
        counter.inc();
    }
}

/// The handler of a claimed task starts.
pub struct RunStarted<'a> {
    pub claim: &'a Claim,
    pub route: &'a str,
    pub lateness_ms: u64,
}

impl RunStarted<'_> {
    pub fn emit(self, deps: &Deps) {
        let Self {
            claim,
            route,
            lateness_ms,
        } = self;
        deps.metrics.started(route, lateness_ms);
        tracing::debug!(task.key = %claim.key, task.attempt = claim.attempt.number, lateness_ms, route, "run starts");
    }
}

/// The result of a run was discarded: its lease was lost.
pub struct ResultDiscarded<'a> {
    pub claim: &'a Claim,
    pub why: Settled,
}

impl ResultDiscarded<'_> {
    pub fn emit(self, deps: &Deps) {
        let Self { claim, why } = self;
        deps.metrics.fenced();
        tracing::warn!(task.class_method = claim.key.class_method(), task.id = %claim.lease.arming, %why, "result discarded: the claim was no longer ours");
    }
}

/// A task is dead.
pub struct TaskDied<'a> {
    pub claim: &'a Claim,
    pub route: &'a str,
    /// Number of runs of this arming.
    pub attempt: u16,
    pub death: &'a Death,
}

impl TaskDied<'_> {
    pub fn emit(self, deps: &Deps) {
        let Self {
            claim,
            route,
            attempt,
            death: Death { reason, error, .. },
        } = self;
        deps.metrics.buried(route, *reason);
        match reason {
            Reason::Expired => {
                tracing::warn!(task.class_method = claim.key.class_method(), task.id = %claim.lease.arming, %error, route, "task expired before it could run: not run, and dead");
            }
            _ => {
                tracing::error!(task.class_method = claim.key.class_method(), task.id = %claim.lease.arming, task.attempt = attempt, %reason, %error, route, "task is dead: redrive it when the cause is fixed");
            }
        }
    }
}

/// An occurrence of a recurring task is dead.
pub struct OccurrenceDied<'a> {
    pub claim: &'a Claim,
    pub route: &'a str,
    pub death: &'a Death,
    /// Due time of the next occurrence.
    pub next: UnixMs,
}

impl OccurrenceDied<'_> {
    pub fn emit(self, deps: &Deps) {
        let Self {
            claim,
            route,
            death: Death { reason, error, .. },
            next,
        } = self;
        deps.metrics.buried(route, *reason);
        tracing::error!(task.class_method = claim.key.class_method(), task.id = %claim.lease.arming, task.attempt = claim.attempt.number, %reason, %error, %next, route, "occurrence is dead: the recurring task continues");
    }
}

/// Occurrences of a recurring task were missed.
pub struct OccurrencesSkipped<'a> {
    pub claim: &'a Claim,
    pub count: u64,
    /// Due time of the next occurrence.
    pub next: UnixMs,
}

impl OccurrencesSkipped<'_> {
    pub fn emit(self, deps: &Deps) {
        let Self { claim, count, next } = self;
        deps.metrics.occurrences_skipped(count);
        tracing::warn!(task.class_method = claim.key.class_method(), task.id = %claim.lease.arming, occurrences = count, %next, "occurrences were missed and are skipped");
    }
}

/// A row was written for a key that a program armed.
pub struct KeyAdopted<'a> {
    pub row: &'a AdoptionRequest,
    pub reason: &'static str,
}

impl KeyAdopted<'_> {
    pub fn emit(self, deps: &Deps) {
        let Self { row, reason } = self;
        deps.metrics.adopted(reason);
        tracing::debug!(task.key = %row.key, task.due = %row.due, reason, "adopted");
    }
}

/// A key is not adopted, since the table cannot store it. Such keys are dropped until a person changes the table.
pub struct KeyUnfit<'a> {
    pub key: &'a TaskKey,
    pub why: &'a str,
}

impl KeyUnfit<'_> {
    pub fn emit(self, deps: &Deps) {
        let Self { key, why } = self;
        deps.metrics.dropped(DropReason::UnfitKey, 1);
        if let Some(held_back) = deps.warnings.admit("unfit key") {
            tracing::warn!(
                task.class_method = key.class_method(),
                held_back,
                "a key {why}; it is not run, nor are others like it"
            );
        }
    }
}

/// A key is not adopted, since the ledger refused its row.
pub struct KeyRefused<'a> {
    pub error: &'a str,
}

impl KeyRefused<'_> {
    pub fn emit(self, deps: &Deps) {
        let Self { error } = self;
        deps.metrics.dropped(DropReason::Refused, 1);
        if let Some(held_back) = deps.failures.admit("adopt a key") {
            tracing::error!(error, held_back, "could not adopt a key");
        }
    }
}

/// An adopted task was cancelled, since its key was deleted.
pub struct TaskWithdrawn<'a> {
    pub key: &'a TaskKey,
}

impl TaskWithdrawn<'_> {
    pub fn emit(self, deps: &Deps) {
        let Self { key } = self;
        deps.metrics.withdrawn();
        tracing::debug!(task.key = %key, "task cancelled: its key was deleted");
    }
}

/// Fewer tasks cancelled at once, because their entries or keys are missing, are no pattern.
const WITHDRAWN_MANY: usize = 20;

/// Reports that many tasks were cancelled at once.
pub fn withdrawn_many(deps: &Deps, count: usize) {
    if count < WITHDRAWN_MANY {
        return;
    }
    deps.metrics.withdrawn_at_once(count as u64);
    if let Some(held_back) = deps.warnings.admit("withdrawn at once") {
        tracing::warn!(
            count,
            held_back,
            "many tasks cancelled at once: programs have removed their entries or keys"
        );
    }
}

/// Entries that look like those of lapsed are overdue, and have no row.
pub struct EntriesWithoutRow {
    pub count: usize,
}

impl EntriesWithoutRow {
    pub fn emit(self, deps: &Deps) {
        let Self { count } = self;
        deps.metrics.dropped(DropReason::Unknown, count as u64);
        if let Some(held_back) = deps.warnings.admit("entries without a row") {
            tracing::warn!(
                count,
                held_back,
                "overdue entries without a row stay in the set and do not run: a program has written microseconds, or the ledger has lost these tasks; write them again with a score in seconds to run them, or remove them"
            );
        }
    }
}

/// An audit was left to another daemon.
pub struct AuditSkipped {
    pub cause: Cause,
}

impl AuditSkipped {
    pub fn emit(self, deps: &Deps) {
        let Self { cause } = self;
        deps.metrics.audit_skipped();
        tracing::debug!(cause = cause.as_str(), "another daemon has audited");
    }
}

/// Retention prunes more slowly than rows pass their retention.
pub struct RetentionBehind {
    pub state: State,
}

impl RetentionBehind {
    pub fn emit(self, deps: &Deps) {
        let Self { state } = self;
        deps.metrics.prune_behind(state, true);
        if let Some(held_back) = deps.failures.admit("keep up with retention") {
            tracing::warn!(%state, held_back, "retention is behind: more rows are past their retention than `retention.rate` allows to prune");
        }
    }
}

//! Reports: what is both logged and counted. Each is a value, so that log line and metric cannot drift apart.

use std::sync::Arc;
use std::time::Duration;

use crate::diagnosis::CANCELLED_BY_KEY_MIN;
use crate::ledger::{AdoptionRequest, Claim, Settled};
use crate::task::{Death, Reason, State, TaskKey, UnixMs};
use crate::telemetry::log::LogLimiter;
use crate::telemetry::{DropReason, Metrics};
use crate::timer::{Cause, Source};

/// Where reports go: the metrics, and the log with its limits.
#[derive(Debug)]
pub struct Reporter {
    pub metrics: Arc<Metrics>,
    /// Limits log lines about failures: one per kind every 10 s.
    pub failures: LogLimiter,
    /// Limits log lines about conditions that last until a person acts: one per kind every 10 min.
    pub warnings: LogLimiter,
}

impl Reporter {
    pub fn new(metrics: Arc<Metrics>) -> Self {
        Self {
            metrics,
            failures: LogLimiter::every(Duration::from_secs(10)),
            warnings: LogLimiter::every(Duration::from_secs(600)),
        }
    }
}

/// A task was claimed because of a signal from this source. Counted without a log line: the run has one.
pub struct TaskClaimed {
    pub source: Source,
}

impl TaskClaimed {
    pub fn emit(self, reporter: &Reporter) {
        let starts = reporter.metrics.starts();
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
    /// The pull queue from which a worker has taken it.
    pub queue: Option<&'a str>,
    pub lateness_ms: u64,
}

impl RunStarted<'_> {
    pub fn emit(self, reporter: &Reporter) {
        let Self {
            claim,
            route,
            queue,
            lateness_ms,
        } = self;
        reporter.metrics.started(route, queue, lateness_ms);
        tracing::debug!(task.key = %claim.key, task.attempt = claim.attempt.number, lateness_ms, route, "run starts");
    }
}

/// The result of a run was discarded: its lease was lost.
pub struct ResultDiscarded<'a> {
    pub claim: &'a Claim,
    pub why: Settled,
}

impl ResultDiscarded<'_> {
    pub fn emit(self, reporter: &Reporter) {
        let Self { claim, why } = self;
        reporter.metrics.fenced();
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
    pub fn emit(self, reporter: &Reporter) {
        let Self {
            claim,
            route,
            attempt,
            death: Death { reason, error, .. },
        } = self;
        reporter.metrics.buried(route, *reason);
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
    pub fn emit(self, reporter: &Reporter) {
        let Self {
            claim,
            route,
            death: Death { reason, error, .. },
            next,
        } = self;
        reporter.metrics.buried(route, *reason);
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
    pub fn emit(self, reporter: &Reporter) {
        let Self { claim, count, next } = self;
        reporter.metrics.occurrences_skipped(count);
        tracing::warn!(task.class_method = claim.key.class_method(), task.id = %claim.lease.arming, occurrences = count, %next, "occurrences were missed and are skipped");
    }
}

/// A row was written for a key that a program armed.
pub struct KeyAdopted<'a> {
    pub row: &'a AdoptionRequest,
    pub reason: &'static str,
}

impl KeyAdopted<'_> {
    pub fn emit(self, reporter: &Reporter) {
        let Self { row, reason } = self;
        reporter.metrics.adopted(reason);
        tracing::debug!(task.key = %row.key, task.due = %row.due, reason, "adopted");
    }
}

/// A key is not adopted, since the table cannot store it. Such keys are dropped until a person changes the table.
pub struct KeyUnfit<'a> {
    pub key: &'a TaskKey,
    pub why: &'a str,
}

impl KeyUnfit<'_> {
    pub fn emit(self, reporter: &Reporter) {
        let Self { key, why } = self;
        reporter.metrics.dropped(DropReason::UnfitKey, 1);
        if let Some(held_back) = reporter.warnings.admit("unfit key") {
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
    pub fn emit(self, reporter: &Reporter) {
        let Self { error } = self;
        reporter.metrics.dropped(DropReason::Refused, 1);
        if let Some(held_back) = reporter.failures.admit("adopt a key") {
            tracing::error!(error, held_back, "could not adopt a key");
        }
    }
}

/// An adopted task was cancelled, since its key was deleted.
pub struct TaskCancelledByKey<'a> {
    pub key: &'a TaskKey,
}

impl TaskCancelledByKey<'_> {
    pub fn emit(self, reporter: &Reporter) {
        let Self { key } = self;
        reporter.metrics.cancelled_by_key();
        tracing::debug!(task.key = %key, "task cancelled: its key was deleted");
    }
}

/// Reports that many tasks were cancelled at once.
pub fn many_cancelled_by_key(reporter: &Reporter, count: usize) {
    if count < CANCELLED_BY_KEY_MIN {
        return;
    }
    reporter.metrics.cancelled_by_key_at_once(count as u64);
    if let Some(held_back) = reporter.warnings.admit("many cancelled by key") {
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
    pub fn emit(self, reporter: &Reporter) {
        let Self { count } = self;
        reporter.metrics.dropped(DropReason::Unknown, count as u64);
        if let Some(held_back) = reporter.warnings.admit("entries without a row") {
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
    pub fn emit(self, reporter: &Reporter) {
        let Self { cause } = self;
        reporter.metrics.audit_skipped();
        tracing::debug!(cause = cause.as_str(), "another daemon has audited");
    }
}

/// Retention prunes more slowly than rows pass their retention.
pub struct RetentionBehind {
    pub state: State,
}

impl RetentionBehind {
    pub fn emit(self, reporter: &Reporter) {
        let Self { state } = self;
        reporter.metrics.prune_behind(state, true);
        if let Some(held_back) = reporter.failures.admit("keep up with retention") {
            tracing::warn!(%state, held_back, "retention is behind: more rows are past their retention than `retention.rate` allows to prune");
        }
    }
}

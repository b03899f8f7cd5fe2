//! The trace of the running code, and the seam to a recorder of spans.
//!
//! A handler's tokio task knows the trace of its run, so that tasks created through a `TaskClient`
//! belong to the same trace. A *spawned* task does not inherit it; wrap its future in [`within`].

use std::future::Future;

use tokio::time::Instant;

use crate::task::{Arming, TaskKey, Traceparent};

tokio::task_local! {
    static CURRENT: Traceparent;
}

/// Returns the trace of the current run.
pub fn current() -> Option<Traceparent> {
    CURRENT.try_with(|trace| *trace).ok()
}

/// Runs `work` as part of this trace. With `None`, runs it unchanged.
///
/// # Cancel safety
/// Same as `work`.
pub async fn within<F: Future>(trace: Option<Traceparent>, work: F) -> F::Output {
    match trace {
        Some(trace) => CURRENT.scope(trace, work).await,
        None => work.await,
    }
}

/// Records the spans of tasks, such as an OpenTelemetry SDK.
pub trait Tracer: Send + Sync {
    /// Starts a span. Must not block.
    fn start(&self, span: SpanStart<'_>) -> Box<dyn TaskSpan>;
}

/// A span that has started. It ends when it is dropped.
pub trait TaskSpan: Send + Sync {
    /// The context of this span: the parent of the spans that it causes. `None` if it is not part of a trace.
    fn context(&self) -> Option<Traceparent>;

    /// Ends the span now.
    fn end(self: Box<Self>, end: SpanEnd<'_>);
}

/// A step in the life of a task, which has a span.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Step {
    /// A producer creates the task.
    Create,
    /// A daemon claims the task: from taking its signal to the ledger's answer.
    Claim,
    /// The handler runs.
    Run,
    /// The result of the run is written: from the end of the run to the ledger's answer.
    Settle,
}

/// A span to be started.
#[derive(Debug, Clone, Copy)]
pub struct SpanStart<'a> {
    /// The step.
    pub step: Step,
    /// The parent; `None` begins a trace.
    pub parent: Option<Traceparent>,
    /// When the step began.
    pub began: Instant,
    /// The key of the task. Its arguments are not for a recorder: they may hold personal data.
    pub key: &'a TaskKey,
    /// The run that the step belongs to; `None` when the task is created.
    pub run: Option<RunFacts<'a>>,
}

/// What identifies a run.
#[derive(Debug, Clone, Copy)]
pub struct RunFacts<'a> {
    /// The arming of the task: its id.
    pub arming: Arming,
    /// The number of the attempt.
    pub attempt: u16,
    /// The name of the route.
    pub route: &'a str,
    /// Milliseconds from when the run could start until it did; `None` before and after the run.
    pub lateness_ms: Option<u64>,
}

/// How a step ended.
#[derive(Debug, Clone, Copy)]
pub struct SpanEnd<'a> {
    /// One of a small fixed set of names: the outcome of a run, or what the ledger answered.
    pub result: &'a str,
    /// The error, if the step failed.
    pub error: Option<&'a str>,
}

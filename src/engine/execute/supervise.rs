//! Runs a handler in a task of its own.

use std::sync::Arc;
use std::time::Duration;

use tokio::task::{JoinError, JoinHandle};
use tokio_util::sync::CancellationToken;
use tracing::Instrument as _;

use crate::handler::{HandlerError, Layers, Route, TaskContext};
use crate::task::Outcome;
use crate::trace;

/// Time allowed for an aborted run to release its thread.
const ABORT_GRACE: Duration = Duration::from_secs(2);

/// Runs the handler in a task of its own, so that a panic or a hang becomes an outcome.
pub(super) async fn supervise(
    context: &TaskContext,
    route: &Route,
    layers: &Layers,
    ended: &CancellationToken,
) -> Outcome {
    let mut handler = {
        let (layers, handler) = (layers.clone(), Arc::clone(&route.handler));
        let (span, trace) = (span_of(context, route), context.traceparent());
        let context = context.clone();
        let run = async move { layers.run(&handler, context).await };
        AbortOnDrop(tokio::spawn(trace::within(trace, run).instrument(span)))
    };
    tokio::select! {
        biased;
        result = &mut handler.0 => of_result(result),
        () = ended.cancelled() => handler.abort(Outcome::Interrupted).await,
        () = tokio::time::sleep(route.timeout) => handler.abort(Outcome::TimedOut { after: route.timeout }).await,
    }
}

/// Span of the handler's log lines. Without a trace it is a span at DEBUG.
fn span_of(context: &TaskContext, route: &Route) -> tracing::Span {
    let (key, attempt, route) = (context.key(), context.attempt(), &*route.name);
    let Some(trace) = context.traceparent() else {
        return tracing::debug_span!("run", task.key = %key, task.attempt = attempt, route);
    };
    let span = tracing::info_span!(
        "run",
        task.class_method = key.class_method(),
        task.id = context.id(),
        task.key = tracing::field::Empty,
        task.attempt = attempt,
        route,
        trace_id = trace.trace_id(),
        traceparent = %trace,
    );
    // Arguments are not logged above DEBUG.
    if tracing::enabled!(tracing::Level::DEBUG) {
        span.record("task.key", key.as_str());
    }
    span
}

struct AbortOnDrop(JoinHandle<Result<(), HandlerError>>);

impl AbortOnDrop {
    /// Aborts the handler. If it has just finished by itself, its own outcome counts.
    async fn abort(mut self, outcome: Outcome) -> Outcome {
        self.0.abort();
        match tokio::time::timeout(ABORT_GRACE, &mut self.0).await {
            Ok(Err(error)) if error.is_cancelled() => outcome,
            Ok(result) => of_result(result),
            Err(_) => {
                tracing::error!(
                    "a handler blocks its thread and cannot be ended; use `spawn_blocking` for blocking work"
                );
                outcome
            }
        }
    }
}

impl Drop for AbortOnDrop {
    fn drop(&mut self) {
        self.0.abort();
    }
}

fn of_result(result: Result<Result<(), HandlerError>, JoinError>) -> Outcome {
    match result {
        Ok(Ok(())) => Outcome::Succeeded,
        Ok(Err(error)) => error.into_outcome(),
        Err(error) => match error.try_into_panic() {
            Ok(panic) => Outcome::Panicked {
                message: panic_message(&*panic),
            },
            Err(_) => Outcome::Interrupted,
        },
    }
}

fn panic_message(panic: &(dyn std::any::Any + Send)) -> String {
    let text = panic.downcast_ref::<&str>().map(|text| (*text).to_owned());
    text.or_else(|| panic.downcast_ref::<String>().cloned())
        .unwrap_or_else(|| "no message".to_owned())
}

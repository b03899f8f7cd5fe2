//! The trace of the running code.
//!
//! A handler's tokio task knows the trace of its run, so that tasks created through a [`TaskClient`](crate::TaskClient)
//! belong to the same trace. A *spawned* task does not inherit it; wrap its future in [`within`].

use std::future::Future;

use crate::task::Traceparent;

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

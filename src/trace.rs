//! The trace that the code which runs now belongs to.
//!
//! While a handler runs, its task of the runtime knows the trace of the run, so that what it creates through a
//! [`TaskClient`](crate::TaskClient) belongs to the same one. What a handler *spawns* is another task of the runtime and
//! knows nothing of it: wrap it in [`within`].

use std::future::Future;

use crate::task::Traceparent;

tokio::task_local! {
    static CURRENT: Traceparent;
}

/// The trace of the run that this code is part of.
pub fn current() -> Option<Traceparent> {
    CURRENT.try_with(|trace| *trace).ok()
}

/// Does `work` as part of this trace; of none, as it would be done anyway.
///
/// # Cancel safety
/// As `work`.
pub async fn within<F: Future>(trace: Option<Traceparent>, work: F) -> F::Output {
    match trace {
        Some(trace) => CURRENT.scope(trace, work).await,
        None => work.await,
    }
}

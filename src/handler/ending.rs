//! How a handler's own transaction ends its task, on every ledger that has such transactions.

use super::{HandlerError, TaskContext};
use crate::ledger::Ending;
use crate::task::{Due, Outcome, UnixMs};

/// Completes the task. A recurring task goes on to its next arming.
pub(super) fn completion(context: &TaskContext) -> Ending {
    let now = context.ledger().clock().now();
    Ending::Complete {
        next: context.following(now),
    }
}

/// Completes the task and creates the next arming of its key.
///
/// # Errors
/// Permanent if the due time is invalid.
pub(super) fn again(context: &TaskContext, due: Due) -> Result<Ending, HandlerError> {
    let now = context.ledger().clock().now();
    let due = due
        .resolve_checked(now)
        .map_err(|error| HandlerError::permanent(error.to_string()))?;
    // The same due time would be the same arming, which has just been completed.
    let due = if due == context.due() {
        UnixMs(due.0 + 1)
    } else {
        due
    };
    Ok(Ending::Again { now, due })
}

/// Notes that the transaction has settled the run.
///
/// # Errors
/// [`HandlerError::fenced`] for `None`: the claim was lost.
pub(super) fn conclude(
    context: &TaskContext,
    settled: Option<Outcome>,
) -> Result<(), HandlerError> {
    match settled {
        Some(outcome) => {
            context.conclude(outcome);
            Ok(())
        }
        None => Err(HandlerError::fenced()),
    }
}

//! The spans of created tasks.

use tokio::time::Instant;

use crate::ledger::LedgerError;
use crate::task::{TaskKey, Traceparent};
use crate::trace::{SpanEnd, SpanStart, Step, TaskSpan, Tracer};

/// The spans of the tasks that one call creates. They end when this is dropped.
#[derive(Default)]
pub(super) struct CreateSpans(Vec<Box<dyn TaskSpan>>);

impl CreateSpans {
    /// Starts the span of a task that belongs to the trace of `caller`. Returns what the task carries.
    pub fn start(
        &mut self,
        tracer: &dyn Tracer,
        key: &TaskKey,
        caller: Traceparent,
    ) -> Option<Traceparent> {
        let span = tracer.start(SpanStart {
            step: Step::Create,
            parent: Some(caller),
            began: Instant::now(),
            key,
            run: None,
        });
        let context = span.context();
        self.0.push(span);
        Some(context.unwrap_or(caller))
    }

    /// Ends the spans now.
    pub fn end(self, error: Option<&LedgerError>) {
        let error = error.map(ToString::to_string);
        for span in self.0 {
            span.end(SpanEnd {
                result: if error.is_none() {
                    "answered"
                } else {
                    "failed"
                },
                error: error.as_deref(),
            });
        }
    }
}

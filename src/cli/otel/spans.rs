//! Spans of tasks as spans of OpenTelemetry, after its conventions for messaging systems.

use lapsed::Traceparent;
use lapsed::trace::{RunFacts, SpanEnd, SpanStart, Step, TaskSpan, Tracer};
use opentelemetry::trace::{
    Span as _, SpanBuilder, SpanContext, SpanId, SpanKind, Status, TraceContextExt as _,
    TraceFlags, TraceId, TraceState, Tracer as _,
};
use opentelemetry::{Context, KeyValue};
use opentelemetry_sdk::trace::{SdkTracer, Span};

/// Records spans with an SDK.
pub struct SpanRecorder(pub SdkTracer);

struct Recorded(Span);

impl Tracer for SpanRecorder {
    fn start(&self, span: SpanStart<'_>) -> Box<dyn TaskSpan> {
        let SpanStart {
            step,
            parent,
            began,
            key,
            run,
        } = span;
        let (name, operation, kind) = operation(step);
        let destination = key.class_method();
        let builder = SpanBuilder::from_name(format!("{name} {destination}"))
            .with_kind(kind)
            .with_start_time(opentelemetry::time::now() - began.elapsed());
        let mut span = self.0.build_with_context(builder, &context_of(parent));
        if span.is_recording() {
            span.set_attributes([
                KeyValue::new("messaging.system", "lapsed"),
                KeyValue::new("messaging.operation.name", name),
                KeyValue::new("messaging.operation.type", operation),
                KeyValue::new("messaging.destination.name", destination.to_owned()),
            ]);
            span.set_attributes(run.into_iter().flat_map(attributes_of));
        }
        Box::new(Recorded(span))
    }
}

impl TaskSpan for Recorded {
    fn context(&self) -> Option<Traceparent> {
        let context = self.0.span_context();
        let trace = u128::from_be_bytes(context.trace_id().to_bytes());
        let span = u64::from_be_bytes(context.span_id().to_bytes());
        Traceparent::from_parts(trace, span, context.is_sampled())
    }

    fn end(mut self: Box<Self>, end: SpanEnd<'_>) {
        let SpanEnd { result, error } = end;
        let span = &mut self.0;
        if span.is_recording() {
            span.set_attribute(KeyValue::new("lapsed.result", result.to_owned()));
            if let Some(error) = error {
                span.set_attribute(KeyValue::new("error.type", result.to_owned()));
                span.set_status(Status::error(error.to_owned()));
            }
        }
        span.end();
    }
}

/// Name and type of the operation, and kind of the span.
fn operation(step: Step) -> (&'static str, &'static str, SpanKind) {
    match step {
        Step::Create => ("create", "create", SpanKind::Producer),
        Step::Claim => ("claim", "receive", SpanKind::Client),
        Step::Run => ("run", "process", SpanKind::Consumer),
        Step::Settle => ("settle", "settle", SpanKind::Client),
    }
}

fn attributes_of(run: RunFacts<'_>) -> impl Iterator<Item = KeyValue> {
    let RunFacts {
        arming,
        attempt,
        route,
        lateness_ms,
    } = run;
    let lateness = lateness_ms.map(|ms| i64::try_from(ms).unwrap_or(i64::MAX));
    [
        KeyValue::new("messaging.message.id", arming.to_string()),
        KeyValue::new("lapsed.task.attempt", i64::from(attempt)),
        KeyValue::new("lapsed.route", route.to_owned()),
    ]
    .into_iter()
    .chain(lateness.map(|ms| KeyValue::new("lapsed.lateness_ms", ms)))
}

fn context_of(parent: Option<Traceparent>) -> Context {
    let Some(parent) = parent else {
        return Context::new();
    };
    let (trace, span) = parent.ids();
    let flags = TraceFlags::default().with_sampled(parent.is_sampled());
    Context::new().with_remote_span_context(SpanContext::new(
        TraceId::from(trace),
        SpanId::from(span),
        flags,
        true,
        TraceState::NONE,
    ))
}

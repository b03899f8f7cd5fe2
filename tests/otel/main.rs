//! The daemon with the feature `otel`, and an OpenTelemetry collector.

mod collector;
mod daemon;
mod metrics;
mod outages;
mod traces;

/// What this binary uses of `tests/support`.
#[path = "../support"]
mod support {
    pub mod program;
    pub mod wait;
}

//! What the daemon says about itself: log lines and metrics, never apart from each other.

pub mod log;
mod metrics;

pub use metrics::Metrics;

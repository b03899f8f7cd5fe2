//! Telemetry: metrics, their history, and the limiter of repeated log lines.

mod drop_reason;
pub mod history;
pub mod log;
mod marks;
mod metrics;

pub use self::drop_reason::DropReason;
pub use self::marks::TaskMarks;
pub use self::metrics::Metrics;

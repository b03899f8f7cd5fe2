//! Queues of pull workers in a measurement.

/// The queue of the tasks.
pub const QUEUE: &str = "bench";

/// A queue without tasks.
pub const EMPTY_QUEUE: &str = "bench-empty";

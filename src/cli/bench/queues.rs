//! Queues of pull workers in a measurement.

/// The queue of the tasks.
pub const QUEUE: &str = "bench";

/// A queue with tasks and without workers.
pub const BLOCKED_QUEUE: &str = "bench-blocked";

/// A queue without tasks.
pub const EMPTY_QUEUE: &str = "bench-empty";

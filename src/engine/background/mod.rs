//! What runs beside the main path: each task is a value with its own state, started and supervised in one place.

pub mod adoption;
pub mod arm_horizon;
pub mod audit;
pub mod audit_lock;
pub mod gauges;
pub mod look_ahead;
pub mod membership;
pub mod pauses;
pub mod rate_limit;
pub mod recovery;
pub mod recurring;
pub mod retention;
pub mod sweep;

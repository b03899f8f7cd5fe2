//! The pure heart: what a task is called, when it is due, and what follows from how a run ended.
//!
//! Nothing here does I/O, reads a clock or draws a random number: `now` and jitter come in as
//! arguments. It knows no ledger, no Redis and no handler.

mod key;
mod lifecycle;
mod retry;
mod schedule;

pub use key::{Foreign, KeyError, KeyName, TaskKey, KEY_BYTES_MAX, SENTINEL_PREFIX};
pub use lifecycle::{
    judge, Attempt, Failure, Outcome, RetryAdvice, State, Verdict, POISON_CRASHES, SUSPECT_CRASHES,
};
pub use retry::{Backoff, RetryPolicy};
pub use schedule::{Due, ScheduleError, UnixMs, DELAY_MAX};

//! The class of a key, and how often and how soon its task is tried again.

use std::time::Duration;

use lapsed::RetryPolicy;

use crate::keyed::PULLED_ATTEMPTS;
use crate::plan::PULLED;

/// The retries of all tasks.
pub const RETRY: Duration = Duration::from_secs(2);

/// The class of a key.
pub fn class_of(key: &str) -> &str {
    key.split('@').next().unwrap_or_default()
}

/// The most attempts of the task of a key.
pub fn attempts_max(key: &str) -> u16 {
    match class_of(key) {
        PULLED => PULLED_ATTEMPTS,
        _ => RetryPolicy::fixed(RETRY).max_attempts,
    }
}

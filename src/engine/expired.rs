//! Expired keys without a row: their arming was not heard, or is not written yet.

use std::time::Duration;

use super::candidates::Candidates;
use crate::task::{TaskKey, UnixMs};
use crate::timer::{AdoptionCandidate, Seen};

/// Makes expired keys without a row adoption candidates that are due after `wait`. Returns the keys for which there is no
/// room.
pub fn adopt_expired(
    candidates: &Candidates,
    keys: impl IntoIterator<Item = TaskKey>,
    now: UnixMs,
    wait: Duration,
) -> Vec<TaskKey> {
    let mut refused = Vec::new();
    for key in keys {
        // An observation of the live key says more. The row is written as the key was seen, so that another daemon that
        // saw the key too recognizes the arming.
        if candidates.expedite(&key) {
            continue;
        }
        let (waiting, payload) = candidates.take(&key).unzip();
        let seen = match waiting {
            Some(seen @ (Seen::Expired(_) | Seen::Requested { .. })) => seen,
            Some(Seen::Armed(_) | Seen::Disarmed(_)) | None => Seen::Expired(now),
        };
        let candidate = AdoptionCandidate {
            key: key.clone(),
            seen,
            payload: payload.flatten(),
        };
        if !candidates.add(candidate, wait) {
            refused.push(key);
        }
    }
    refused
}

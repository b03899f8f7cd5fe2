//! Entries that are proposed for adoption and not answered yet.

use std::collections::HashMap;
use std::sync::{Mutex, MutexGuard};
use std::time::Duration;

use tokio::time::Instant;

use lapsed_core::task::TaskKey;

/// Most entries, and most bytes of their payloads.
const ENTRIES_MAX: usize = 50_000;
const BYTES_MAX: usize = 64 * 1024 * 1024;

/// An entry without an answer is proposed again after this time.
const ANSWERED_WITHIN: Duration = Duration::from_secs(30);

/// The proposals without an answer.
#[derive(Debug, Default)]
pub(super) struct Proposals(Mutex<Waiting>);

#[derive(Debug, Default)]
struct Waiting {
    entries: HashMap<TaskKey, (Instant, usize)>,
    bytes: usize,
}

impl Proposals {
    /// Adds a proposal. Returns false if it waits already, or if there is no room.
    pub(super) fn add(&self, key: &TaskKey, bytes: usize) -> bool {
        let mut waiting = self.waiting();
        let fits =
            waiting.entries.len() < ENTRIES_MAX && waiting.bytes.saturating_add(bytes) <= BYTES_MAX;
        if !fits || waiting.entries.contains_key(key) {
            return false;
        }
        waiting.bytes += bytes;
        let now = Instant::now();
        waiting.entries.insert(key.clone(), (now, bytes));
        true
    }

    pub(super) fn remove<'a>(&self, keys: impl IntoIterator<Item = &'a TaskKey>) {
        let mut waiting = self.waiting();
        for key in keys {
            if let Some((_, bytes)) = waiting.entries.remove(key) {
                waiting.bytes -= bytes;
            }
        }
    }

    /// Forgets those without an answer for long. Returns the number of the others, or `None` if there is no room for more.
    pub(super) fn expire(&self) -> Option<usize> {
        let mut waiting = self.waiting();
        waiting
            .entries
            .retain(|_, (since, _)| since.elapsed() < ANSWERED_WITHIN);
        waiting.bytes = waiting.entries.values().map(|(_, bytes)| bytes).sum();
        let has_room = waiting.entries.len() < ENTRIES_MAX && waiting.bytes < BYTES_MAX;
        has_room.then_some(waiting.entries.len())
    }

    fn waiting(&self) -> MutexGuard<'_, Waiting> {
        self.0
            .lock()
            .expect("nothing panics while holding the proposals")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn key(number: usize) -> TaskKey {
        TaskKey::build("C", "m", [number.to_string()]).unwrap()
    }

    #[tokio::test(start_paused = true)]
    async fn a_proposal_waits_for_its_answer_but_not_for_ever() {
        let proposals = Proposals::default();
        assert!(proposals.add(&key(1), 7));
        assert!(!proposals.add(&key(1), 7));
        proposals.remove([&key(1), &key(2)]);
        assert!(proposals.add(&key(1), 7));
        tokio::time::advance(ANSWERED_WITHIN).await;
        assert!(proposals.add(&key(2), 7));
        assert_eq!(proposals.expire(), Some(1));
        assert!(proposals.add(&key(1), 7));
    }

    #[tokio::test(start_paused = true)]
    async fn their_number_and_bytes_are_bounded() {
        let proposals = Proposals::default();
        assert!(!proposals.add(&key(0), BYTES_MAX + 1));
        assert!(proposals.add(&key(0), BYTES_MAX));
        assert!(!proposals.add(&key(1), 1));
        proposals.remove([&key(0)]);
        for number in 0..ENTRIES_MAX {
            assert!(proposals.add(&key(number), 1));
        }
        assert!(!proposals.add(&key(ENTRIES_MAX), 1));
        assert_eq!(proposals.expire(), None);
    }
}

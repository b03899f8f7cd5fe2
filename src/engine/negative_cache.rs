//! Keys that no row is known of.

use std::collections::HashMap;
use std::sync::Mutex;
use std::time::Duration;

use tokio::time::Instant;

use crate::task::TaskKey;

/// Keys that were asked for lately and have no row: whoever forges events for them again and again does not
/// reach the ledger each time. A row that appears meanwhile is found by the look-ahead and the sweep.
#[derive(Debug, Default)]
pub(crate) struct NegativeCache(Mutex<HashMap<TaskKey, Instant>>);

impl NegativeCache {
    const REMEMBERED_FOR: Duration = Duration::from_secs(5);
    const REMEMBERED_MAX: usize = 8_192;

    pub(crate) fn insert(&self, key: TaskKey) {
        let mut keys = self.0.lock().expect("nothing panics while holding it");
        if keys.len() >= Self::REMEMBERED_MAX {
            keys.clear();
        }
        keys.insert(key, Instant::now());
    }

    pub(crate) fn contains(&self, key: &TaskKey) -> bool {
        let keys = self.0.lock().expect("nothing panics while holding it");
        keys.get(key)
            .is_some_and(|asked| asked.elapsed() < Self::REMEMBERED_FOR)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test(start_paused = true)]
    async fn a_stranger_is_known_for_a_while_and_their_number_is_bounded() {
        let strangers = NegativeCache::default();
        let key = |n: usize| TaskKey::build("C", "m", [n.to_string()]).unwrap();
        strangers.insert(key(0));
        assert!(strangers.contains(&key(0)) && !strangers.contains(&key(1)));
        tokio::time::advance(NegativeCache::REMEMBERED_FOR).await;
        assert!(!strangers.contains(&key(0)));
        (0..2 * NegativeCache::REMEMBERED_MAX).for_each(|n| strangers.insert(key(n)));
        assert!(strangers.0.lock().unwrap().len() <= NegativeCache::REMEMBERED_MAX);
    }
}

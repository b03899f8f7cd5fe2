//! Negative cache: keys of recent signals that have no row.

use std::collections::HashMap;
use std::sync::Mutex;
use std::time::Duration;

use tokio::time::Instant;

use crate::task::TaskKey;

/// Negative cache of keys without a row: repeated forged events for such a key do not each reach the ledger. The
/// look-ahead and the sweep find a row that appears meanwhile.
#[derive(Debug, Default)]
pub struct NegativeCache(Mutex<HashMap<TaskKey, Instant>>);

impl NegativeCache {
    const REMEMBERED_FOR: Duration = Duration::from_secs(5);
    const REMEMBERED_MAX: usize = 8_192;

    pub fn insert(&self, key: TaskKey) {
        let mut keys = self.0.lock().expect("nothing panics while holding it");
        if keys.len() >= Self::REMEMBERED_MAX {
            keys.clear();
        }
        keys.insert(key, Instant::now());
    }

    pub fn contains(&self, key: &TaskKey) -> bool {
        let keys = self.0.lock().expect("nothing panics while holding it");
        keys.get(key)
            .is_some_and(|since| since.elapsed() < Self::REMEMBERED_FOR)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test(start_paused = true)]
    async fn a_key_is_cached_for_a_while_and_the_number_of_keys_is_bounded() {
        let cache = NegativeCache::default();
        let key = |n: usize| TaskKey::build("C", "m", [n.to_string()]).unwrap();
        cache.insert(key(0));
        assert!(cache.contains(&key(0)) && !cache.contains(&key(1)));
        tokio::time::advance(NegativeCache::REMEMBERED_FOR).await;
        assert!(!cache.contains(&key(0)));
        (0..2 * NegativeCache::REMEMBERED_MAX).for_each(|n| cache.insert(key(n)));
        assert!(cache.0.lock().unwrap().len() <= NegativeCache::REMEMBERED_MAX);
    }
}

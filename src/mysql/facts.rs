//! Facts about the server and the table. Cached briefly, since a migration or a failover may change them.

use std::sync::{Arc, Mutex, MutexGuard};
use std::time::Duration;

use tokio::time::Instant;

use super::charset::KeyCharset;

/// Maximum age of cached facts.
const AGE_MAX: Duration = Duration::from_secs(10);

/// Facts about the server and the table.
#[derive(Debug)]
pub(super) struct Facts {
    /// The character set of the column of keys.
    pub key_charset: KeyCharset,
    /// The server's name for it.
    pub key_charset_name: String,
    /// True if the server has `innodb_snapshot_isolation`: MariaDB from the middle of 2024 on.
    pub snapshot_isolation: bool,
}

/// The facts that were read last, and when.
#[derive(Debug, Default)]
pub(super) struct CachedFacts(Mutex<Option<(Instant, Arc<Facts>)>>);

impl CachedFacts {
    /// Drops the facts, since the server contradicts them. The next use reads them again.
    pub fn forget(&self) {
        *self.cached() = None;
    }

    /// Returns the facts, or `None` if they are too old.
    pub fn get(&self) -> Option<Arc<Facts>> {
        let cached = self.cached();
        let (read, facts) = cached.as_ref()?;
        (read.elapsed() < AGE_MAX).then(|| Arc::clone(facts))
    }

    pub fn set(&self, facts: &Arc<Facts>) {
        *self.cached() = Some((Instant::now(), Arc::clone(facts)));
    }

    fn cached(&self) -> MutexGuard<'_, Option<(Instant, Arc<Facts>)>> {
        self.0.lock().expect("nothing panics while holding it")
    }
}

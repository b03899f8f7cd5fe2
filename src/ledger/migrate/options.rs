//! Options of a migration.

use std::time::Duration;

/// How to migrate.
#[derive(Debug, Clone)]
#[non_exhaustive]
pub struct Options {
    /// How long one statement may wait for transactions that use the table, and the whole for another migration.
    pub lock_wait: Duration,
    /// Whether the column of keys becomes `utf8mb4`, so that keys may have any character. Otherwise it keeps its
    /// character set.
    pub utf8mb4: bool,
}

impl Default for Options {
    fn default() -> Self {
        Self {
            lock_wait: Duration::from_secs(30),
            utf8mb4: false,
        }
    }
}

impl Options {
    /// With another patience.
    #[must_use]
    pub fn lock_wait(mut self, lock_wait: Duration) -> Self {
        self.lock_wait = lock_wait;
        self
    }

    /// With the column of keys in `utf8mb4`, or as it is.
    #[must_use]
    pub fn utf8mb4(mut self, utf8mb4: bool) -> Self {
        self.utf8mb4 = utf8mb4;
        self
    }
}

//! Options of a migration.

use std::time::Duration;

/// Options of a migration.
#[derive(Debug, Clone)]
#[non_exhaustive]
pub struct Options {
    /// How long one statement may wait for transactions that use the table, and the migration for another migration.
    pub lock_wait: Duration,
    /// Converts the column of keys to `utf8mb4`, so that keys may have any character. Otherwise it keeps its character set.
    pub utf8mb4: bool,
    /// Creates the archive of finished tasks, or its partitions for months to come.
    pub archive: bool,
}

impl Default for Options {
    fn default() -> Self {
        Self {
            lock_wait: Duration::from_secs(30),
            utf8mb4: false,
            archive: false,
        }
    }
}

impl Options {
    /// Sets how long to wait for locks.
    #[must_use]
    pub fn lock_wait(mut self, lock_wait: Duration) -> Self {
        self.lock_wait = lock_wait;
        self
    }

    /// Sets whether to create the archive.
    #[must_use]
    pub fn archive(mut self, archive: bool) -> Self {
        self.archive = archive;
        self
    }

    /// Sets whether to convert the column of keys to `utf8mb4`.
    #[must_use]
    pub fn utf8mb4(mut self, utf8mb4: bool) -> Self {
        self.utf8mb4 = utf8mb4;
        self
    }
}

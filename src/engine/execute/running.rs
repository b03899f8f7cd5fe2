//! The number of handlers that run.

use std::sync::atomic::{AtomicUsize, Ordering};

/// Counts the handlers that run in this process.
///
/// A slot is held by more than a handler: by its claim before, and until the outcome is handed to the settle stage.
#[derive(Debug, Default)]
pub struct RunningHandlers(AtomicUsize);

/// A handler that runs, until it is dropped.
#[derive(Debug)]
pub(super) struct Running<'a>(&'a RunningHandlers);

impl RunningHandlers {
    /// Number of handlers that run now.
    pub fn count(&self) -> usize {
        self.0.load(Ordering::Relaxed)
    }

    pub(super) fn begin(&self) -> Running<'_> {
        self.0.fetch_add(1, Ordering::Relaxed);
        Running(self)
    }
}

impl Drop for Running<'_> {
    fn drop(&mut self) {
        self.0.0.fetch_sub(1, Ordering::Relaxed);
    }
}

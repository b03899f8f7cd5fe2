//! The state behind its lock, as connections share it.

use std::sync::{Mutex, MutexGuard};

use tokio::sync::watch;

use crate::server::State;

pub(crate) struct Shared {
    state: Mutex<State>,
    /// True while the server answers nothing.
    pub(crate) hangs: watch::Sender<bool>,
}

impl Shared {
    pub(crate) fn new(state: State) -> Self {
        Self {
            state: Mutex::new(state),
            hangs: watch::Sender::new(false),
        }
    }

    pub(crate) fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().expect("no command panics")
    }

    /// Waits while the server hangs.
    pub(crate) async fn answers(&self) {
        let mut hangs = self.hangs.subscribe();
        // The sender lives as long as the server.
        let _ = hangs.wait_for(|hangs| !hangs).await;
    }
}

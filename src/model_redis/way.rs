//! The way of bytes between a program and the server.

use std::sync::{Arc, Mutex, MutexGuard};
use std::time::Duration;

use tokio::sync::watch;

/// What the connections of a link share.
#[derive(Debug)]
pub(crate) struct Way {
    pub(crate) name: Arc<str>,
    condition: Mutex<Condition>,
    changed: watch::Sender<u64>,
}

#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct Condition {
    pub(crate) is_refused: bool,
    pub(crate) requests_wait: bool,
    pub(crate) replies_wait: bool,
    pub(crate) latency: Duration,
}

impl Way {
    pub(crate) fn new(name: &str) -> Arc<Self> {
        Arc::new(Self {
            name: Arc::from(name),
            condition: Mutex::default(),
            changed: watch::Sender::new(0),
        })
    }

    pub(crate) fn condition(&self) -> MutexGuard<'_, Condition> {
        self.condition
            .lock()
            .expect("nothing panics while holding it")
    }

    pub(crate) fn change(&self, change: impl FnOnce(&mut Condition)) {
        change(&mut self.condition());
        self.changed.send_modify(|changes| *changes += 1);
    }

    pub(crate) async fn takes_its_time(&self) {
        let latency = self.condition().latency;
        if !latency.is_zero() {
            tokio::time::sleep(latency).await;
        }
    }

    async fn until(&self, is_free: impl Fn(&Condition) -> bool) {
        self.takes_its_time().await;
        let mut changed = self.changed.subscribe();
        // The sender lives as long as the link.
        let free = changed.wait_for(|_| is_free(&self.condition()));
        let _ = free.await;
    }

    pub(crate) async fn requests_pass(&self) {
        self.until(|condition| !condition.requests_wait).await;
    }

    pub(crate) async fn replies_pass(&self) {
        self.until(|condition| !condition.replies_wait).await;
    }
}

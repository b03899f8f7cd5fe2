//! Writes entries of the audit log: collects changes for a moment, and joins those that are alike.

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard};
use std::time::Duration;

use tokio::sync::{Notify, oneshot};
use tokio::time::{Instant, sleep, timeout};

use super::entry::AuditEntry;
use super::pending::Pending;
use lapsed::ledger::{Collection, Ledger, LedgerError};

/// How long changes of single tasks are collected.
const COLLECT_FOR: Duration = Duration::from_millis(100);

/// Number of times that a batch of entries is tried again while the ledger does not answer, and the rest between two of them.
const RETRIES: u32 = 5;
const RETRY_AFTER: Duration = Duration::from_secs(1);

/// How often old entries are deleted, and how many at a time.
const PRUNE_EVERY: Duration = Duration::from_secs(3_600);
const PRUNE_BATCH: u32 = 1_000;

/// Collects entries, and writes them to the ledger. A task of the runtime does so while there are some.
pub(super) struct Writer {
    /// `http` or `resp`.
    server: &'static str,
    ledger: Arc<dyn Ledger>,
    keep: Duration,
    /// Names sort in the order of the entries of this server.
    prefix: String,
    count: AtomicU64,
    state: Mutex<State>,
    /// Ends the collection early.
    urgent: Notify,
}

#[derive(Default)]
struct State {
    pending: Pending,
    /// True while the task runs.
    is_writing: bool,
    pruned: Option<Instant>,
    /// True since the ledger has refused an entry.
    refused: bool,
}

impl Writer {
    pub fn new(server: &'static str, ledger: Arc<dyn Ledger>, keep: Duration) -> Self {
        Self {
            server,
            ledger,
            keep,
            prefix: format!("{:08x}", rand::random::<u32>()),
            count: AtomicU64::new(0),
            state: Mutex::default(),
            urgent: Notify::new(),
        }
    }

    /// `http` or `resp`.
    pub fn server(&self) -> &'static str {
        self.server
    }

    /// True if every entry is written.
    pub fn is_idle(&self) -> bool {
        !self.state().is_writing
    }

    /// Adds entries. They are written soon.
    pub fn add(self: &Arc<Self>, add: impl FnOnce(&mut Pending)) {
        let begins = {
            let mut state = self.state();
            add(&mut state.pending);
            !state.pending.is_empty() && !std::mem::replace(&mut state.is_writing, true)
        };
        if begins {
            tokio::spawn(Arc::clone(self).run());
        }
    }

    /// Adds entries that are written at once. The future ends when they are, with all entries before them.
    pub fn add_urgent(self: &Arc<Self>, add: impl FnOnce(&mut Pending)) -> oneshot::Receiver<()> {
        let (written, answer) = oneshot::channel();
        self.add(|pending| {
            add(pending);
            pending.waiting.push(written);
        });
        self.urgent.notify_one();
        answer
    }

    /// Writes until nothing is left.
    async fn run(self: Arc<Self>) {
        loop {
            let _ = timeout(COLLECT_FOR, self.urgent.notified()).await;
            let pending = {
                let mut state = self.state();
                if state.pending.is_empty() {
                    state.is_writing = false;
                    return;
                }
                std::mem::take(&mut state.pending)
            };
            self.write(pending.entries, pending.lost).await;
            for written in pending.waiting {
                // Its receiver may be gone.
                let _ = written.send(());
            }
            self.prune().await;
        }
    }

    async fn write(&self, entries: Vec<AuditEntry>, mut lost: u64) {
        let mut retries = RETRIES;
        for entry in entries {
            let count = self.count.fetch_add(1, Ordering::Relaxed) + 1;
            let name = format!("{}-{count:012}", self.prefix);
            let body = serde_json::to_string(&entry).expect("texts and numbers are JSON");
            if let Err(error) = self.insert(&name, &body, &mut retries).await {
                lost += 1;
                if !std::mem::replace(&mut self.state().refused, true) {
                    tracing::error!(server = self.server, %error, "changes are missing in the audit log");
                }
            }
        }
        match lost {
            0 => self.state().refused = false,
            lost => tracing::debug!(entries = lost, "entries of the audit log were not written"),
        }
    }

    async fn insert(&self, name: &str, body: &str, retries: &mut u32) -> Result<(), LedgerError> {
        loop {
            let inserted = self
                .ledger
                .insert_document(Collection::Audit, name, body)
                .await;
            match inserted {
                // It is this entry: an earlier attempt was carried out.
                Ok(_) => return Ok(()),
                Err(error) if error.is_transient() && *retries > 0 => {
                    *retries -= 1;
                    sleep(RETRY_AFTER).await;
                }
                Err(error) => return Err(error),
            }
        }
    }

    /// Deletes entries that are too old, once an hour.
    async fn prune(&self) {
        let pruned = self.state().pruned;
        if pruned.is_some_and(|at| at.elapsed() < PRUNE_EVERY) {
            return;
        }
        let before = self.ledger.clock().now().minus(self.keep);
        let deleted = self
            .ledger
            .delete_documents(Collection::Audit, before, PRUNE_BATCH)
            .await;
        match deleted {
            // There may be more; the next batch of entries deletes them.
            Ok(deleted) if deleted == u64::from(PRUNE_BATCH) => {}
            Ok(_) | Err(_) => self.state().pruned = Some(Instant::now()),
        }
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().expect("nothing panics while holding it")
    }
}

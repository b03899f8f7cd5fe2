//! Batches the creation of tasks: calls that are made at the same time share a statement.
//!
//! No call waits for others. If a writer is free, the tasks of a call are written at once. Calls that are made while all
//! writers are busy share their next statement. So the busier a process is, the fewer commits a task costs.

use std::collections::VecDeque;
use std::sync::{Arc, Mutex, MutexGuard};

use tokio::sync::oneshot;

use super::Receipt;
use super::arming::arm;
use crate::clock::LedgerClock;
use crate::ledger::{LedgerError, NewTask, Producer};
use crate::timer::AlarmStore;

/// Maximum number of tasks of one statement, unless a single call has more.
pub(super) const BATCH_MAX: usize = 500;

/// Maximum number of payload bytes of one statement. The default limit of servers is 16 MiB.
const BYTES_MAX: usize = 1 << 20;

/// Number of concurrent statements: while one commits, the server reads another. More of them contend for the same pages.
pub(super) const WRITERS_MAX: usize = 2;

/// Attempts to write the tasks of one call while another session has locked a row.
const LOCK_ATTEMPTS: u32 = 5;

/// Queue of calls, and the writers that work it off.
pub(super) struct Batcher {
    ledger: Arc<dyn Producer>,
    clock: LedgerClock,
    alarms: Arc<dyn AlarmStore>,
    queue: Mutex<Queue>,
}

#[derive(Default)]
struct Queue {
    waiting: VecDeque<Request>,
    writers: usize,
}

/// The tasks of one call. They are written by one statement.
struct Request {
    tasks: Vec<NewTask>,
    answer: oneshot::Sender<Answer>,
}

type Answer = Result<Vec<Receipt>, LedgerError>;

/// One of at most [`WRITERS_MAX`] writers.
struct Writer {
    batcher: Arc<Batcher>,
    /// No longer counted in [`Queue::writers`].
    has_left: bool,
}

impl Batcher {
    pub fn new(ledger: Arc<dyn Producer>, clock: LedgerClock, alarms: Arc<dyn AlarmStore>) -> Self {
        Self {
            ledger,
            clock,
            alarms,
            queue: Mutex::default(),
        }
    }

    /// Creates tasks and arms their keys. Returns receipts in the order of `tasks`.
    ///
    /// # Cancel safety
    /// The tasks are created even if the future is dropped after its first poll.
    pub async fn create(self: &Arc<Self>, tasks: Vec<NewTask>) -> Answer {
        let (answer, answered) = oneshot::channel();
        let writer = {
            let mut queue = self.queue();
            queue.waiting.push_back(Request { tasks, answer });
            let is_free = queue.writers < WRITERS_MAX;
            queue.writers += usize::from(is_free);
            is_free.then(|| Writer {
                batcher: Arc::clone(self),
                has_left: false,
            })
        };
        if let Some(writer) = writer {
            tokio::spawn(writer.run());
        }
        answered.await.unwrap_or_else(|_| {
            Err(LedgerError::Unavailable {
                message: "the runtime that was writing has ended".to_owned(),
                source: None,
            })
        })
    }

    async fn write_batch(self: &Arc<Self>, mut requests: Vec<Request>) {
        let tasks: Vec<NewTask> = match requests.as_mut_slice() {
            [one] => std::mem::take(&mut one.tasks),
            several => several
                .iter()
                .flat_map(|request| request.tasks.clone())
                .collect(),
        };
        let merged = requests.len() > 1;
        match self.write(tasks, merged).await {
            Ok(receipts) => {
                let mut receipts = receipts.into_iter();
                for Request { tasks, answer } in requests {
                    let count = match merged {
                        true => tasks.len(),
                        false => receipts.len(),
                    };
                    // The caller may have gone.
                    let _ = answer.send(Ok(receipts.by_ref().take(count).collect()));
                }
            }
            // One row is invalid or locked: the other calls must not fail, nor wait for it.
            Err(error) if merged && error.is_about_a_row() => {
                for Request { tasks, answer } in requests {
                    let this = Arc::clone(self);
                    tokio::spawn(async move { answer.send(this.write(tasks, false).await) });
                }
            }
            Err(error) => {
                for Request { answer, .. } in requests {
                    let _ = answer.send(Err(error.clone()));
                }
            }
        }
    }

    /// Writes tasks and arms their keys. If a row is locked, tries again, unless the tasks are of several calls.
    async fn write(&self, tasks: Vec<NewTask>, merged: bool) -> Answer {
        let mut attempt = 1;
        let created = loop {
            match self.ledger.create(&tasks).await {
                // For a single task the ledger itself tries again.
                Err(LedgerError::Locked { .. })
                    if !merged && tasks.len() > 1 && attempt < LOCK_ATTEMPTS =>
                {
                    attempt += 1;
                }
                answer => break answer?,
            }
        };
        let keys = tasks.into_iter().map(|task| task.key);
        let created: Vec<_> = keys.zip(created).collect();
        let not_armed = arm(&*self.alarms, &self.clock, &created).await;
        let receipts = created.into_iter().zip(not_armed);
        Ok(receipts
            .map(|((_, created), not_armed)| Receipt::new(created, not_armed))
            .collect())
    }

    fn queue(&self) -> MutexGuard<'_, Queue> {
        self.queue
            .lock()
            .expect("nothing panics while holding the queue")
    }
}

impl Writer {
    /// Writes until the queue is empty.
    async fn run(mut self) {
        while let Some(requests) = self.next_batch() {
            self.batcher.write_batch(requests).await;
        }
    }

    /// Takes calls from the queue, as many as fit into one statement. `None` if the queue is empty: under the same lock
    /// the writer leaves, so that the next call starts another one.
    fn next_batch(&mut self) -> Option<Vec<Request>> {
        let mut queue = self.batcher.queue();
        let mut requests = Vec::new();
        let (mut count, mut bytes) = (0, 0);
        while let Some(request) = queue.waiting.front() {
            count += request.tasks.len();
            bytes += request.tasks.iter().map(payload_bytes).sum::<usize>();
            if (count > BATCH_MAX || bytes > BYTES_MAX) && !requests.is_empty() {
                break;
            }
            requests.extend(queue.waiting.pop_front());
        }
        if requests.is_empty() {
            queue.writers -= 1;
            self.has_left = true;
            return None;
        }
        Some(requests)
    }
}

/// A runtime that ends drops its writers in the middle of their work.
impl Drop for Writer {
    fn drop(&mut self) {
        if !self.has_left {
            let mut queue = self.batcher.queue();
            queue.writers -= 1;
            if queue.writers == 0 {
                // No writer is left to answer these calls; dropping them answers with an error.
                queue.waiting.clear();
            }
        }
    }
}

/// Number of the first tasks that fit into one statement; of one that does not fit, 1.
pub(super) fn first_part(tasks: &[NewTask]) -> usize {
    let mut bytes = 0;
    let fits = |task: &&NewTask| {
        bytes += payload_bytes(task);
        bytes <= BYTES_MAX
    };
    let count = tasks.iter().take(BATCH_MAX).take_while(fits).count();
    count.max(1).min(tasks.len())
}

fn payload_bytes(task: &NewTask) -> usize {
    task.contents.payload.as_ref().map_or(0, String::len)
}

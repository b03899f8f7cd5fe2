//! Batcher that are asked for at the same time share one statement.
//!
//! Nobody waits for company: a creation that finds a free writer is written at once, alone if need be. What comes while
//! all writers are busy goes into their next statement together. So the busier a process is, the fewer commits a task
//! costs.

use std::collections::VecDeque;
use std::sync::{Arc, Mutex, MutexGuard};

use tokio::sync::oneshot;

use super::Receipt;
use super::arming::arm;
use crate::clock::LedgerClock;
use crate::ledger::{LedgerError, NewTask, Producer};
use crate::timer::Timer;

/// Most tasks of one statement, as long as no single caller brings more.
pub(super) const BATCH_MAX: usize = 500;

/// Most bytes of payload in it: servers take 16 MiB a statement by default.
const BYTES_MAX: usize = 1 << 20;

/// Statements on their way at once: while one commits, another is read. More only fight over the same pages.
pub(super) const WRITERS_MAX: usize = 2;

/// How often the tasks of one caller meet another session's lock before it hears of that.
const LOCK_ATTEMPTS: u32 = 5;

/// What callers want to have created, and who is writing it.
pub(super) struct Batcher {
    ledger: Arc<dyn Producer>,
    clock: LedgerClock,
    timer: Arc<dyn Timer>,
    queue: Mutex<Queue>,
}

#[derive(Default)]
struct Queue {
    waiting: VecDeque<Request>,
    writers: usize,
}

/// The tasks of one caller: written by one statement, together.
struct Request {
    tasks: Vec<NewTask>,
    answer: oneshot::Sender<Answer>,
}

type Answer = Result<Vec<Receipt>, LedgerError>;

/// A writer's place among the [`WRITERS_MAX`].
struct Place {
    batcher: Arc<Batcher>,
    left: bool,
}

impl Batcher {
    pub fn new(ledger: Arc<dyn Producer>, clock: LedgerClock, timer: Arc<dyn Timer>) -> Self {
        Self {
            ledger,
            clock,
            timer,
            queue: Mutex::default(),
        }
    }

    /// Creates these, and arms them; answers in their order.
    ///
    /// # Cancel safety
    /// What was asked for is created even if nobody waits for the answer.
    pub async fn make(self: &Arc<Self>, tasks: Vec<NewTask>) -> Answer {
        let (answer, answered) = oneshot::channel();
        let place = {
            let mut queue = self.queue();
            queue.waiting.push_back(Request { tasks, answer });
            let is_free = queue.writers < WRITERS_MAX;
            queue.writers += usize::from(is_free);
            is_free.then(|| Place {
                batcher: Arc::clone(self),
                left: false,
            })
        };
        if let Some(place) = place {
            tokio::spawn(place.write());
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
        match self.create(tasks, merged).await {
            Ok(made) => {
                let mut made = made.into_iter();
                for Request { tasks, answer } in requests {
                    let count = if merged { tasks.len() } else { made.len() };
                    // A caller that has gone needs no answer.
                    let _ = answer.send(Ok(made.by_ref().take(count).collect()));
                }
            }
            // One of them is to blame, or its row is locked: the others must not suffer, nor wait for it.
            Err(error) if merged && error.is_about_a_row() => {
                for Request { tasks, answer } in requests {
                    let this = Arc::clone(self);
                    tokio::spawn(async move { answer.send(this.create(tasks, false).await) });
                }
            }
            Err(error) => {
                for Request { answer, .. } in requests {
                    let _ = answer.send(Err(error.clone()));
                }
            }
        }
    }

    /// Patiently, where a row is locked, unless the tasks are of several callers.
    async fn create(&self, tasks: Vec<NewTask>, merged: bool) -> Answer {
        let mut attempt = 1;
        let created = loop {
            match self.ledger.create(&tasks).await {
                // The ledger itself is patient about a single one.
                Err(LedgerError::Locked { .. })
                    if !merged && tasks.len() > 1 && attempt < LOCK_ATTEMPTS =>
                {
                    attempt += 1;
                }
                answer => break answer?,
            }
        };
        let keys = tasks.into_iter().map(|task| task.key);
        let made: Vec<_> = keys.zip(created).collect();
        let not_armed = arm(&*self.timer, &self.clock, &made).await;
        let made = made.into_iter().zip(not_armed);
        Ok(made
            .map(|((_, created), why)| Receipt::new(created, why))
            .collect())
    }

    fn queue(&self) -> MutexGuard<'_, Queue> {
        self.queue
            .lock()
            .expect("nothing panics while holding the queue")
    }
}

impl Place {
    /// Writes until nothing waits.
    async fn write(mut self) {
        while let Some(requests) = self.next_batch() {
            self.batcher.write_batch(requests).await;
        }
    }

    /// What waits, as much as fits into one statement. `None`: nothing, and the place is left, in one step, so that
    /// whoever comes next sees that it is free.
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
            self.left = true;
            return None;
        }
        Some(requests)
    }
}

/// A runtime that ends takes its writers with it, in the middle of their work.
impl Drop for Place {
    fn drop(&mut self) {
        if !self.left {
            let mut queue = self.batcher.queue();
            queue.writers -= 1;
            if queue.writers == 0 {
                // Nobody else would answer them.
                queue.waiting.clear();
            }
        }
    }
}

fn payload_bytes(task: &NewTask) -> usize {
    task.payload.as_ref().map_or(0, String::len)
}

//! Creations that are asked for at the same time share one statement.
//!
//! Nobody waits for company: a creation that finds a free writer is written at once, alone if need be. What comes while
//! all writers are busy goes into their next statement together. So the busier a process is, the fewer commits a task costs.

use std::collections::VecDeque;
use std::sync::{Arc, Mutex, MutexGuard};

use tokio::sync::oneshot;

use super::{Made, arm};
use crate::ledger::{Ledger, LedgerError, NewTask};
use crate::timer::Timer;

/// Most tasks of one statement, as long as no single caller brings more.
pub(super) const BATCH_MAX: usize = 500;

/// Statements on their way at once: while one commits, another is read. More only fight over the same pages.
pub(super) const WRITERS_MAX: usize = 2;

/// What callers want to have created, and who is writing it.
pub(super) struct Creations {
    ledger: Arc<dyn Ledger>,
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

type Answer = Result<Vec<Made>, LedgerError>;

/// A writer's place among the [`WRITERS_MAX`]; free again when dropped, even if its runtime ends under it.
struct Place<'a>(&'a Creations);

impl Creations {
    pub fn new(ledger: Arc<dyn Ledger>, timer: Arc<dyn Timer>) -> Self {
        Self {
            ledger,
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
        let a_place_is_free = {
            let mut queue = self.queue();
            queue.waiting.push_back(Request { tasks, answer });
            let is_free = queue.writers < WRITERS_MAX;
            queue.writers += usize::from(is_free);
            is_free
        };
        if a_place_is_free {
            tokio::spawn(Arc::clone(self).write());
        }
        answered.await.unwrap_or_else(|_| {
            Err(LedgerError::Unavailable {
                message: "the runtime that was writing has ended".to_owned(),
                source: None,
            })
        })
    }

    /// Writes until nothing waits.
    async fn write(self: Arc<Self>) {
        let place = Place(&self);
        while let Some(requests) = place.next_batch() {
            self.write_batch(requests).await;
        }
        std::mem::forget(place); // `next_batch` has left it
    }

    async fn write_batch(&self, mut requests: Vec<Request>) {
        let tasks: Vec<NewTask> = match requests.as_mut_slice() {
            [one] => std::mem::take(&mut one.tasks),
            several => several
                .iter()
                .flat_map(|request| request.tasks.clone())
                .collect(),
        };
        match self.create(tasks).await {
            Ok(made) => {
                let mut made = made.into_iter();
                let alone = requests.len() == 1;
                for Request { tasks, answer } in requests {
                    let count = if alone { made.len() } else { tasks.len() };
                    // A caller that has gone needs no answer.
                    let _ = answer.send(Ok(made.by_ref().take(count).collect()));
                }
            }
            // One of them may be to blame: the others must not suffer.
            Err(error) if !error.is_transient() && requests.len() > 1 => {
                for Request { tasks, answer } in requests {
                    let _ = answer.send(self.create(tasks).await);
                }
            }
            Err(error) => {
                for Request { answer, .. } in requests {
                    let _ = answer.send(Err(error.clone()));
                }
            }
        }
    }

    async fn create(&self, tasks: Vec<NewTask>) -> Answer {
        let created = self.ledger.create(&tasks).await?;
        let keys = tasks.into_iter().map(|task| task.key);
        let made: Vec<_> = keys.zip(created).collect();
        let armed = arm(&*self.timer, &*self.ledger, &made).await;
        let made = made.into_iter().map(|(_, created)| Made { created, armed });
        Ok(made.collect())
    }

    fn queue(&self) -> MutexGuard<'_, Queue> {
        self.queue
            .lock()
            .expect("nothing panics while holding the queue")
    }
}

impl Place<'_> {
    /// What waits, as much as fits into one statement. `None`: nothing, and the place is left, in one step, so that
    /// whoever comes next sees that it is free.
    fn next_batch(&self) -> Option<Vec<Request>> {
        let mut queue = self.0.queue();
        let mut requests = Vec::new();
        let mut count = 0;
        while let Some(request) = queue.waiting.front() {
            count += request.tasks.len();
            if count > BATCH_MAX && !requests.is_empty() {
                break;
            }
            requests.extend(queue.waiting.pop_front());
        }
        if requests.is_empty() {
            queue.writers -= 1;
            return None;
        }
        Some(requests)
    }
}

impl Drop for Place<'_> {
    fn drop(&mut self) {
        self.0.queue().writers -= 1;
    }
}

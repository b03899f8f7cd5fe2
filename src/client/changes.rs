//! Changes of several tasks in one transaction, decided by what is there.

use std::sync::{Arc, Mutex};

use super::arming::{arm, disarm_cancelled};
use super::{ClientError, TaskClient};
use crate::ledger::{CancelAnswer, Change, Changed, CreateResult, Created, RowSnapshot, Seen};
use crate::task::{State, TaskKey, UnixMs};

impl TaskClient {
    /// Reads tasks, in the order of `keys`. `None` for a key without a row.
    ///
    /// # Errors
    /// [`ClientError`].
    ///
    /// # Cancel safety
    /// Cancel safe.
    pub async fn read_rows(
        &self,
        keys: &[TaskKey],
    ) -> Result<Vec<Option<RowSnapshot>>, ClientError> {
        self.look(keys, |_| true, |_, row| row).await
    }

    /// Reads tasks, in the order of `keys`, and keeps of each what `keep` returns: of many tasks, not all payloads fit
    /// in memory. Only those of the places that `needs_payload` names are read.
    ///
    /// # Errors
    /// [`ClientError`].
    ///
    /// # Cancel safety
    /// Cancel safe.
    pub async fn look<S, N, K>(
        &self,
        keys: &[TaskKey],
        needs_payload: N,
        keep: K,
    ) -> Result<Vec<Option<S>>, ClientError>
    where
        S: Send + 'static,
        N: Fn(usize) -> bool + Send + Sync + 'static,
        K: Fn(usize, RowSnapshot) -> S + Send + Sync + 'static,
    {
        let seen = Seen::of(keys.len());
        let see = seen.see(needs_payload, keep);
        self.ledger.read_rows(keys, see).await?;
        Ok(seen.take())
    }

    /// Reads tasks of different keys and changes them as `decide` says, in one transaction: nothing else changes them in
    /// between. Returns the second value returned by `decide`.
    ///
    /// `decide` gets the ledger's time and the rows in the order of `keys`. It may be called more than once; only its last
    /// result counts. Tasks are not checked: call [`check`](Self::check) before.
    ///
    /// # Errors
    /// [`ClientError`]: nothing is changed, unless the ledger did not answer.
    ///
    /// # Cancel safety
    /// Safe to drop: all changes are made, or none.
    pub async fn change<T, F>(&self, keys: &[TaskKey], decide: F) -> Result<T, ClientError>
    where
        T: Send + 'static,
        F: Fn(UnixMs, &[Option<RowSnapshot>]) -> (Vec<Change>, T) + Send + Sync + 'static,
    {
        let decide = move |now, rows: Vec<Option<RowSnapshot>>| decide(now, &rows);
        self.change_seen(keys, u64::MAX, |_| true, |_, row| row, decide)
            .await
    }

    /// As [`change`](Self::change), with what `keep` returns of each row in place of the rows. Only the payloads of the
    /// places that `needs_payload` names are sure to be read. The rows that are changed have `bytes_max` bytes at most:
    /// see [`See::changed_bytes_max`](crate::ledger::See::changed_bytes_max).
    pub async fn change_seen<T, S, N, K, F>(
        &self,
        keys: &[TaskKey],
        bytes_max: u64,
        needs_payload: N,
        keep: K,
        decide: F,
    ) -> Result<T, ClientError>
    where
        T: Send + 'static,
        S: Send + 'static,
        N: Fn(usize) -> bool + Send + Sync + 'static,
        K: Fn(usize, RowSnapshot) -> S + Send + Sync + 'static,
        F: Fn(UnixMs, Vec<Option<S>>) -> (Vec<Change>, T) + Send + Sync + 'static,
    {
        let seen = Seen::of(keys.len());
        let see = seen.see_within(bytes_max, needs_payload, keep);
        let said = Arc::new(Mutex::new(None));
        let says = Arc::clone(&said);
        let decide = move |now| {
            let (changes, result) = decide(now, seen.take());
            *says.lock().expect("nothing panics while holding it") = Some(result);
            changes
        };
        let changed = self.ledger.change(keys, see, Arc::new(decide)).await?;
        let done = keys.iter().zip(changed);
        let mut armed = Vec::new();
        for (key, changed) in done {
            match changed {
                Changed::Kept => {}
                Changed::Armed(arming) => {
                    let created = Created {
                        arming,
                        state: State::Pending,
                        older_run: false,
                        since: arming.due,
                        result: CreateResult::Written,
                    };
                    armed.push((key.clone(), created));
                }
                Changed::Cancelled => {
                    disarm_cancelled(&*self.alarms, key, CancelAnswer::Cancelled).await;
                }
            }
        }
        arm(&*self.alarms, self.ledger.clock(), &armed).await;
        let said = said.lock().expect("nothing panics while holding it").take();
        Ok(said.expect("the ledger has asked"))
    }

    /// Returns the local estimate of the ledger's time, without a statement.
    pub fn clock_now(&self) -> UnixMs {
        self.ledger.clock().now()
    }
}

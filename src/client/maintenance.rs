//! Looking at tasks, and what people do with many dead ones: bring them back, throw them away.

use std::num::NonZeroU32;
use std::ops::ControlFlow;
use std::time::Duration;

use tokio::time::{Instant, MissedTickBehavior, interval};

use super::pruning::EVENTS_TAKE;
use super::{ClientError, IntoKey, TaskClient};
use crate::ledger::{Admin, ListFilter, ListPage, Picked, RunNowAnswer, TaskRecord};
use crate::task::{State, TaskKey, UnixMs};
use crate::timer::Remaining;

/// Rows that are looked for at a time.
const PICK: u32 = 10_000;

/// Most rows of one statement, and of its transaction.
pub(super) const BATCH_MAX: u32 = 500;

/// Statements in a second, where the rows of one are that few.
const STATEMENTS_PER_SECOND: u32 = 10;

/// How fast many rows are worked through, so that what runs beside it is not late.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Pace(NonZeroU32);

impl Pace {
    /// So many rows in a second.
    pub fn per_second(rows: NonZeroU32) -> Self {
        Self(rows)
    }

    /// Rows of one statement.
    fn batch(self) -> u32 {
        (self.0.get() / STATEMENTS_PER_SECOND).clamp(1, BATCH_MAX)
    }

    /// How far apart statements of so many rows are.
    pub(super) fn apart(self, rows: u32) -> Duration {
        Duration::from_secs(1) * rows / self.0.get()
    }
}

impl Default for Pace {
    /// 1,000 rows in a second.
    fn default() -> Self {
        Self(NonZeroU32::new(1_000).expect("it is not zero"))
    }
}

impl TaskClient {
    /// One task with everything that is known of it: its state, errors, history, result.
    ///
    /// # Errors
    /// [`ClientError`].
    pub async fn find(&self, key: impl IntoKey) -> Result<Option<TaskRecord>, ClientError> {
        let key = key.into_key()?;
        Ok(self.ledger.find(&key).await?)
    }

    /// A page of the tasks that fit.
    ///
    /// # Errors
    /// [`ClientError`].
    pub async fn list(&self, filter: &ListFilter) -> Result<ListPage, ClientError> {
        Ok(self.ledger.list(filter).await?)
    }

    /// Brings a dead task back: pending and due at once under the same id, its counters cleared, its history kept.
    ///
    /// # Errors
    /// [`ClientError`].
    pub async fn redrive(&self, key: impl IntoKey) -> Result<RunNowAnswer, ClientError> {
        let key = &key.into_key()?;
        let answer = self.ledger.redrive(key).await?;
        if let RunNowAnswer::Due(arming) = answer {
            self.arm_again(key, arming).await;
        }
        Ok(answer)
    }

    /// As [`redrive`](Self::redrive), for all dead tasks that fit, at this pace; answers how many. A `limit` of 0 is
    /// none, and the states of the filter are not looked at: it is always the dead.
    ///
    /// Their keys are not armed: they fall due again as of [`REDRIVEN_AGO`](crate::ledger::REDRIVEN_AGO), the sweep finds
    /// them within a second or two, and since they are overdue it runs them in the share of the slots that a backlog has.
    /// What falls due meanwhile stays punctual.
    ///
    /// # Errors
    /// [`ClientError`]; what was redriven before stays so.
    ///
    /// # Cancel safety
    /// Cancel safe: dropping it stops it between two batches.
    ///
    /// ```no_run
    /// # async fn example(tasks: lapsed::TaskClient) -> Result<(), lapsed::ClientError> {
    /// use lapsed::client::Pace;
    /// use lapsed::ledger::ListFilter;
    ///
    /// let mail = ListFilter {
    ///     class: Some("Mail".into()),
    ///     error: Some("connection refused".into()),
    ///     ..ListFilter::default()
    /// };
    /// let count = tasks.redrive_where(&mail, Pace::default()).await?;
    /// println!("{count} redriven");
    /// # Ok(())
    /// # }
    /// ```
    pub async fn redrive_where(&self, filter: &ListFilter, pace: Pace) -> Result<u64, ClientError> {
        self.redrive_each(filter, pace, |_| ControlFlow::Continue(()))
            .await
    }

    /// As [`redrive_where`](Self::redrive_where), and says after each batch how many it has been so far; `progress` may
    /// end it there.
    ///
    /// # Errors
    /// As [`redrive_where`](Self::redrive_where).
    pub async fn redrive_each(
        &self,
        filter: &ListFilter,
        pace: Pace,
        progress: impl FnMut(u64) -> ControlFlow<()>,
    ) -> Result<u64, ClientError> {
        self.over_dead(filter, pace, Verb::Redrive, progress).await
    }

    /// Deletes one dead task, for good, and its key in Redis. Tells whether it was dead, and not locked by another session.
    ///
    /// # Errors
    /// [`ClientError`], also when Redis does not answer.
    pub async fn discard(&self, key: impl IntoKey) -> Result<bool, ClientError> {
        let Some(task) = self.find(key).await? else {
            return Ok(false);
        };
        let row = task.id.split('-').next().and_then(|row| row.parse().ok());
        let Some(row) = row.filter(|_| task.state == State::Dead) else {
            return Ok(false);
        };
        self.delete_keys_of_dead(&[row]).await?;
        Ok(self.ledger.discard_rows(&[row]).await? == 1)
    }

    /// Deletes all dead tasks that fit, for good, and their keys in Redis; answers how many. `limit` and states as for
    /// [`redrive_where`](Self::redrive_where).
    ///
    /// # Errors
    /// [`ClientError`], also when Redis does not answer; what was deleted before is gone.
    ///
    /// # Cancel safety
    /// Cancel safe: dropping it stops it between two batches.
    pub async fn discard_where(&self, filter: &ListFilter) -> Result<u64, ClientError> {
        self.discard_each(filter, |_| ControlFlow::Continue(()))
            .await
    }

    /// As [`discard_where`](Self::discard_where), and says after each batch how many it has been so far; `progress` may
    /// end it there.
    ///
    /// # Errors
    /// As [`discard_where`](Self::discard_where).
    pub async fn discard_each(
        &self,
        filter: &ListFilter,
        progress: impl FnMut(u64) -> ControlFlow<()>,
    ) -> Result<u64, ClientError> {
        let pace = Pace(NonZeroU32::new(5_000).expect("it is not zero"));
        self.over_dead(filter, pace, Verb::Discard, progress).await
    }

    /// How many dead tasks fit. Counting ends after about a second; the answer says so.
    ///
    /// # Errors
    /// [`ClientError`].
    pub async fn count_dead(&self, filter: &ListFilter) -> Result<DeadCount, ClientError> {
        // A page of its own may take as long again.
        const LONGEST: Duration = Duration::from_millis(500);
        let until = Instant::now() + LONGEST;
        let mut is_part = false;
        let progress = |_| {
            is_part = Instant::now() >= until;
            match is_part {
                true => ControlFlow::Break(()),
                false => ControlFlow::Continue(()),
            }
        };
        let count = self
            .over_dead(filter, Pace::default(), Verb::Count, progress)
            .await?;
        Ok(DeadCount { count, is_part })
    }

    async fn over_dead(
        &self,
        filter: &ListFilter,
        pace: Pace,
        verb: Verb,
        mut progress: impl FnMut(u64) -> ControlFlow<()>,
    ) -> Result<u64, ClientError> {
        let ledger: &dyn Admin = &*self.ledger;
        let (mut left, mut count) = (u64::from(filter.limit), 0);
        let unlimited = left == 0;
        let mut filter = filter.clone();
        let batch = pace.batch();
        let mut ticks = interval(pace.apart(batch).max(Duration::from_millis(1)));
        ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
        if verb == Verb::Redrive && filter.created_before.is_none() {
            // What dies again meanwhile is not taken a second time.
            filter.created_before = Some(UnixMs(self.now().await?.0 + 1));
        }
        loop {
            filter.limit = match unlimited {
                true => PICK,
                false => PICK.min(u32::try_from(left).unwrap_or(PICK)),
            };
            let Picked { rows, next } = ledger.pick_dead(&filter).await?;
            filter.cursor = next;
            let is_last = filter.cursor.is_none();
            if verb == Verb::Count {
                count += rows.len() as u64;
                if !is_last && progress(count).is_break() {
                    return Ok(count);
                }
            } else {
                if verb == Verb::Discard {
                    self.delete_keys_of_dead(&rows).await?;
                }
                for rows in rows.chunks(batch as usize) {
                    ticks.tick().await;
                    count += match verb {
                        Verb::Discard => ledger.discard_rows(rows).await?,
                        Verb::Redrive | Verb::Count => ledger.redrive_rows(rows).await?,
                    };
                    if progress(count).is_break() {
                        return Ok(count);
                    }
                }
            }
            left = left.saturating_sub(rows.len() as u64);
            if is_last || (!unlimited && left == 0) {
                return Ok(count);
            }
        }
    }

    /// Deletes the keys of dead tasks that are to be discarded: without its row, a key would be a task of its own. Returns
    /// when the events of keys that Redis has just dropped have found that their tasks are dead.
    async fn delete_keys_of_dead(&self, rows: &[u64]) -> Result<(), ClientError> {
        let keys = self.ledger.dead_keys(rows).await?;
        if keys.is_empty() {
            return Ok(());
        }
        let remaining = self.timer.remaining(&keys).await?;
        let is_there = |remaining: &Remaining| *remaining != Remaining::Missing;
        let there = keys.into_iter().zip(remaining);
        let there: Vec<TaskKey> = there
            .filter(|(_, remaining)| is_there(remaining))
            .map(|(key, _)| key)
            .collect();
        if !there.is_empty() {
            self.timer.disarm(&there).await?;
        }
        tokio::time::sleep(EVENTS_TAKE).await;
        Ok(())
    }
}

/// How many dead tasks fit.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct DeadCount {
    /// So many, at least.
    pub count: u64,
    /// Counting ended before all were looked at.
    pub is_part: bool,
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Verb {
    Redrive,
    Discard,
    Count,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_pace_is_kept_by_few_rows_at_a_time() {
        for rate in [1, 7, 10, 500, 1_000, 5_000, 100_000] {
            let pace = Pace::per_second(NonZeroU32::new(rate).unwrap());
            let per_second = f64::from(pace.batch()) / pace.apart(pace.batch()).as_secs_f64();
            assert!((per_second / f64::from(rate) - 1.0).abs() < 0.01, "{rate}");
            assert!(pace.batch() <= BATCH_MAX);
        }
    }
}

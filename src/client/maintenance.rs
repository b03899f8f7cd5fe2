//! Administration: looks up tasks, redrives and discards dead ones.

use std::num::NonZeroU32;
use std::ops::ControlFlow;
use std::time::Duration;

use tokio::time::{Instant, MissedTickBehavior, interval};

use super::pace::Pace;
use super::{ClientError, IntoKey, TaskClient};
use crate::ledger::pruning::EVENTS_HANDLED_AFTER;
use crate::ledger::{
    Admin, DetailedStats, DetailedStatsLimits, ListFilter, ListPage, Picked, RunNowAnswer, Stats,
    TaskRecord,
};
use crate::task::{Arming, State, TaskKey, UnixMs};
use crate::timer::Remaining;

/// Maximum number of rows that one statement looks for.
const PICK: u32 = 10_000;

impl TaskClient {
    /// Returns a task with its state, errors, history and result; `None` if the key has no row.
    ///
    /// # Errors
    /// [`ClientError`].
    ///
    /// # Cancel safety
    /// Cancel safe.
    pub async fn find(&self, key: impl IntoKey) -> Result<Option<TaskRecord>, ClientError> {
        let key = key.into_key()?;
        Ok(self.ledger.find(&key).await?)
    }

    /// Returns the latest archived task of a key; `None` if there is none. Archived tasks are listed with
    /// [`ListFilter::archived`].
    ///
    /// # Errors
    /// [`ClientError`]; also if there is no archive.
    ///
    /// # Cancel safety
    /// Cancel safe.
    pub async fn find_archived(
        &self,
        key: impl IntoKey,
    ) -> Result<Option<TaskRecord>, ClientError> {
        let key = key.into_key()?;
        Ok(self.ledger.find_archived(&key).await?)
    }

    /// Returns a page of the tasks that match.
    ///
    /// # Errors
    /// [`ClientError`].
    ///
    /// # Cancel safety
    /// Cancel safe.
    pub async fn list(&self, filter: &ListFilter) -> Result<ListPage, ClientError> {
        Ok(self.ledger.list(filter).await?)
    }

    /// True if this arming of a task is dead. False if the ledger fails: a report of a failure stays what it was.
    pub async fn has_died(&self, key: &TaskKey, arming: Arming) -> bool {
        match self.find(key).await {
            Ok(task) => {
                task.is_some_and(|task| task.state == State::Dead && task.id == arming.to_string())
            }
            Err(error) => {
                tracing::debug!(%error, "could not read whether the task of a failure is dead");
                false
            }
        }
    }

    /// Counts tasks by state, as [`Admin::stats`].
    ///
    /// # Errors
    /// [`ClientError`].
    ///
    /// # Cancel safety
    /// Cancel safe.
    pub async fn stats(&self) -> Result<Stats, ClientError> {
        Ok(self.ledger.stats().await?)
    }

    /// Counts tasks by state, class and method, as [`Admin::detailed_stats`].
    ///
    /// # Errors
    /// [`ClientError`].
    ///
    /// # Cancel safety
    /// Cancel safe.
    pub async fn detailed_stats(
        &self,
        limits: DetailedStatsLimits,
    ) -> Result<DetailedStats, ClientError> {
        Ok(self.ledger.detailed_stats(limits).await?)
    }

    /// Makes a pending or waiting task due now.
    ///
    /// # Errors
    /// [`ClientError`].
    ///
    /// # Cancel safety
    /// Safe to drop: the task may or may not be due now.
    pub async fn run_now(&self, key: impl IntoKey) -> Result<RunNowAnswer, ClientError> {
        let key = &key.into_key()?;
        let answer = self.ledger.run_now(key).await?;
        if let RunNowAnswer::Due(arming) = answer {
            self.arm_again(key, arming).await;
        }
        Ok(answer)
    }

    /// Redrives a dead task: it is pending and due at once, under the same id. Its counters are cleared, its history is
    /// kept.
    ///
    /// # Errors
    /// [`ClientError`].
    ///
    /// # Cancel safety
    /// Safe to drop: the task may or may not be redriven.
    pub async fn redrive(&self, key: impl IntoKey) -> Result<RunNowAnswer, ClientError> {
        let key = &key.into_key()?;
        let answer = self.ledger.redrive(key).await?;
        if let RunNowAnswer::Due(arming) = answer {
            self.arm_again(key, arming).await;
        }
        Ok(answer)
    }

    /// Redrives all dead tasks that match, in batches at this pace. Returns their number. A `limit` of 0 means no limit.
    /// The states of the filter are ignored.
    ///
    /// The keys are not armed. The tasks are due since [`REDRIVEN_AGO`](crate::ledger::REDRIVEN_AGO), the sweep finds them
    /// within two seconds, and they run in the slots reserved for a backlog. Tasks that fall due meanwhile are not late.
    ///
    /// # Errors
    /// [`ClientError`]; the batches before are redriven.
    ///
    /// # Cancel safety
    /// Cancel safe: dropping the future stops between two batches.
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

    /// As [`redrive_where`](Self::redrive_where). Calls `progress` after each batch with the number so far, and stops if
    /// it breaks.
    ///
    /// # Errors
    /// As [`redrive_where`](Self::redrive_where).
    ///
    /// # Cancel safety
    /// As [`redrive_where`](Self::redrive_where).
    pub async fn redrive_each(
        &self,
        filter: &ListFilter,
        pace: Pace,
        progress: impl FnMut(u64) -> ControlFlow<()>,
    ) -> Result<u64, ClientError> {
        self.over_dead(filter, pace, Verb::Redrive, progress).await
    }

    /// Deletes a dead task and its key in Redis. Returns false if the task is not dead, or if another session has locked
    /// its row.
    ///
    /// # Errors
    /// [`ClientError`], also if Redis does not answer.
    ///
    /// # Cancel safety
    /// Safe to drop: the task may or may not be deleted.
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

    /// Deletes all dead tasks that match, and their keys in Redis. Returns their number. `limit` and states are as for
    /// [`redrive_where`](Self::redrive_where).
    ///
    /// # Errors
    /// [`ClientError`], also if Redis does not answer; the batches before are deleted.
    ///
    /// # Cancel safety
    /// Cancel safe: dropping the future stops between two batches.
    pub async fn discard_where(&self, filter: &ListFilter) -> Result<u64, ClientError> {
        self.discard_each(filter, |_| ControlFlow::Continue(()))
            .await
    }

    /// As [`discard_where`](Self::discard_where). Calls `progress` after each batch with the number so far, and stops if
    /// it breaks.
    ///
    /// # Errors
    /// As [`discard_where`](Self::discard_where).
    ///
    /// # Cancel safety
    /// As [`discard_where`](Self::discard_where).
    pub async fn discard_each(
        &self,
        filter: &ListFilter,
        progress: impl FnMut(u64) -> ControlFlow<()>,
    ) -> Result<u64, ClientError> {
        let pace = Pace::per_second(NonZeroU32::new(5_000).expect("it is not zero"));
        self.over_dead(filter, pace, Verb::Discard, progress).await
    }

    /// Counts the dead tasks that match, for about a second at most: see [`DeadCount::is_part`].
    ///
    /// # Errors
    /// [`ClientError`].
    ///
    /// # Cancel safety
    /// Cancel safe.
    pub async fn count_dead(&self, filter: &ListFilter) -> Result<DeadCount, ClientError> {
        // The last page may take as long again.
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
        let mut ticks = interval(pace.interval(batch).max(Duration::from_millis(1)));
        ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
        if verb == Verb::Redrive && filter.created_before.is_none() {
            // A task that dies again meanwhile is not redriven a second time.
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

    /// Deletes the keys of dead tasks before their rows: a key without a row would be adopted as a new task. Returns when
    /// daemons have handled the events of keys that Redis has just dropped.
    async fn delete_keys_of_dead(&self, rows: &[u64]) -> Result<(), ClientError> {
        let keys = self.ledger.dead_keys(rows).await?;
        if keys.is_empty() {
            return Ok(());
        }
        let remaining = self.alarms.remaining(&keys).await?;
        let is_there = |remaining: &Remaining| *remaining != Remaining::Missing;
        let there = keys.into_iter().zip(remaining);
        let there: Vec<TaskKey> = there
            .filter(|(_, remaining)| is_there(remaining))
            .map(|(key, _)| key)
            .collect();
        if !there.is_empty() {
            self.alarms.disarm(&there).await?;
        }
        tokio::time::sleep(EVENTS_HANDLED_AFTER).await;
        Ok(())
    }
}

/// The number of dead tasks that match a filter.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct DeadCount {
    /// The number of tasks counted.
    pub count: u64,
    /// True if counting ended early: there may be more.
    pub is_part: bool,
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Verb {
    Redrive,
    Discard,
    Count,
}

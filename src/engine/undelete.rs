//! Undelete for legacy writers: rows that a program marked as deleted and then armed again without clearing the mark.

use std::ops::RangeInclusive;
use std::sync::Arc;
use std::time::Duration;

use tokio::sync::Semaphore;
use tokio::time::Instant;

use super::health::LedgerHealth;
use super::lifecycle::Lifecycle;
use super::queue::SignalQueue;
use super::queue::class::SignalClass;
use super::rearm::Rearmer;
use crate::clock::LedgerClock;
use crate::ledger::{Adoption, DueScan, LedgerError, Scans, Upcoming, Window};
use crate::task::{Arming, TaskKey, UnixMs};
use crate::telemetry::{DropReason, Metrics};
use crate::timer::{Alarm, Remaining, Signal, Source, Timer};

/// Rows of one page, and maximum number of pages of one pass.
const PAGE: u32 = 1_000;
const PAGES_MAX: usize = 32;

/// Maximum difference between a key's remaining time and its row's due time: a second for programs that count in
/// seconds, and some for the transmission.
const FITS: Duration = Duration::from_secs(2);

/// Time for which the evidence of a new creation must last.
const DELETION_TAKES: Duration = Duration::from_millis(100);

/// Maximum number of undeletions under way.
const UNDER_WAY_MAX: usize = 1_024;

/// How long a locked row is tried again, and the pause between two attempts. Programs lock a row while they create it again.
const LOCK_PATIENCE: Duration = Duration::from_secs(60);
const LOCK_PAUSE: Duration = Duration::from_millis(250);

/// Timeout for the evidence from Redis: the look-ahead waits for it.
const EVIDENCE_PATIENCE: Duration = Duration::from_millis(250);

/// Undeletes rows of tasks that a program created again.
///
/// A program that knows only the first six columns deletes with `sts = 1`, and never clears it when it creates the
/// task again. Only Redis can tell which of the two a row means: a key that is armed for this row's due time is
/// evidence of a new creation.
pub struct Undeleter {
    pub scans: Arc<dyn Scans>,
    pub adoption: Arc<dyn Adoption>,
    pub timer: Arc<dyn Timer>,
    /// True if entries stay after a deletion: they are no evidence.
    pub keeps_entries: bool,
    pub clock: LedgerClock,
    pub health: Arc<LedgerHealth>,
    pub rearmer: Arc<Rearmer>,
    pub lifecycle: Lifecycle,
    pub queue: Arc<SignalQueue>,
    pub metrics: Arc<Metrics>,
    pub under_way: UnderWay,
}

/// Bounds the undeletions of rows whose keys have expired. Another session may hold a lock on such a row: other tasks do
/// not wait for that.
pub struct UnderWay(Arc<Semaphore>);

impl Default for UnderWay {
    fn default() -> Self {
        Self(Arc::new(Semaphore::new(UNDER_WAY_MAX)))
    }
}

impl Undeleter {
    /// Undeletes rows whose keys are armed for their due times. Returns their number.
    pub async fn undelete_armed(&self, span: Duration) -> Result<usize, LedgerError> {
        if self.keeps_entries {
            return Ok(0);
        }
        let (mut after, mut revived) = (None, 0);
        for _ in 0..PAGES_MAX {
            let page = self
                .scans
                .scan(DueScan {
                    window: Window::Deleted {
                        back: FITS,
                        ahead: span,
                    },
                    after,
                    limit: PAGE,
                })
                .await?;
            after = page.next;
            revived += self.undelete_page(page.rows).await?;
            if after.is_none() {
                break;
            }
        }
        Ok(revived)
    }

    async fn undelete_page(&self, rows: Vec<Upcoming>) -> Result<usize, LedgerError> {
        if rows.is_empty() {
            return Ok(0);
        }
        let mut armed = self.armed_for_their_rows(rows).await;
        if !armed.is_empty() {
            // A deletion writes the row first and the key after that: a key seen between the two is no evidence.
            tokio::time::sleep(DELETION_TAKES).await;
            armed = self.armed_for_their_rows(armed).await;
        }
        let mut revived = Vec::new();
        for row in armed {
            match self.adoption.undelete(row.arming).await {
                Ok(true) => revived.push(Alarm::from(row)),
                Ok(false) => {}
                // The next pass tries again. The other rows do not wait for it.
                Err(LedgerError::Locked { .. }) => {}
                Err(error) => return Err(error),
            }
        }
        let count = revived.len();
        if count > 0 {
            tracing::info!(
                tasks = count,
                "revived tasks that were deleted and armed again by another program"
            );
            self.rearmer.rearm(revived);
        }
        Ok(count)
    }

    /// Undeletes the row of an expired key in a task of its own, and then signals its task.
    pub fn start(self: &Arc<Self>, key: TaskKey, arming: Arming) {
        let Ok(permit) = Arc::clone(&self.under_way.0).try_acquire_owned() else {
            return self.metrics.dropped(DropReason::Overflow, 1);
        };
        let undeleter = Arc::clone(self);
        self.lifecycle.spawn(async move {
            let _permit = permit;
            if !undeleter.undelete_unlocked(arming).await {
                return undeleter.metrics.dropped(DropReason::Deleted, 1);
            }
            let signal = Signal::new(key, Source::Direct, Some(arming));
            // Without room the signal is dropped; the sweep finds its task.
            let queue = &undeleter.queue;
            queue.push_as(SignalClass::Fresh, signal).unwrap_or(());
        });
    }

    /// Undeletes a row. While another session has locked it, tries again, for up to [`LOCK_PATIENCE`]. Returns false if the
    /// row was changed meanwhile, or could not be written.
    async fn undelete_unlocked(&self, arming: Arming) -> bool {
        let began = Instant::now();
        loop {
            match self.adoption.undelete(arming).await {
                Ok(undeleted) => return undeleted,
                Err(LedgerError::Locked { .. }) if began.elapsed() < LOCK_PATIENCE => {}
                Err(error) => {
                    self.health.log_failure("undelete a task", &error);
                    return false;
                }
            }
            let stopping = &self.lifecycle.stopping;
            let pause = tokio::time::sleep(LOCK_PAUSE);
            if stopping.run_until_cancelled(pause).await.is_none() {
                return false;
            }
        }
    }

    /// Returns the rows whose keys are armed for their due times. Without Redis there is no evidence, and the deletion
    /// counts.
    async fn armed_for_their_rows(&self, rows: Vec<Upcoming>) -> Vec<Upcoming> {
        let keys: Vec<TaskKey> = rows.iter().map(|row| row.key.clone()).collect();
        let asked = tokio::time::timeout(EVIDENCE_PATIENCE, self.timer.remaining(&keys));
        let Ok(Ok(remaining)) = asked.await else {
            return Vec::new();
        };
        let now = self.clock.now();
        let rows = rows.into_iter().zip(remaining);
        rows.filter(|(row, remaining)| fits(row.arming.due, *remaining, now))
            .map(|(row, _)| row)
            .collect()
    }
}

/// True if a deleted row that is due then may have been armed again, although no pass has seen its key: the event of its
/// expiry may have been published at that time. A key that is deleted with its row does not expire.
pub fn may_be_armed_again(due: UnixMs, published: &RangeInclusive<UnixMs>) -> bool {
    due <= published.end().plus(FITS) && *published.start() <= due.plus(FITS)
}

/// True if a key with this remaining time expires when its row is due, also if the row is overdue.
fn fits(due: UnixMs, remaining: Remaining, now: UnixMs) -> bool {
    match remaining {
        Remaining::Ms(remaining_ms) => {
            let expires = now.plus(Duration::from_millis(remaining_ms));
            Duration::from_millis(expires.0.abs_diff(due.0)) <= FITS
        }
        Remaining::Missing | Remaining::Forever => false,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_key_that_expires_at_another_time_than_its_overdue_row_is_no_evidence() {
        let now = UnixMs(1_900_000_000_000);
        let cases = [
            // The row is due in, the key expires in.
            (5_000, 5_000, true),
            (5_000, 6_999, true),
            (5_000, 2_999, false),
            (0, 1_999, true),
            (-1_500, 500, true),
            (-1_500, 501, false),
            (-1_999, 2_000, false),
        ];
        for (due_in_ms, remaining_ms, expected) in cases {
            let due = UnixMs(now.0 + due_in_ms);
            let found = fits(due, Remaining::Ms(remaining_ms), now);
            assert_eq!(found, expected, "{due_in_ms} {remaining_ms}");
        }
        assert!(!fits(now, Remaining::Missing, now));
    }

    #[test]
    fn an_event_is_about_a_row_that_was_due_when_it_may_have_been_published() {
        let due = UnixMs(1_900_000_000_000);
        let cases = [
            // Published this much later than the due time, at the earliest and at the latest.
            (0, 0, true),
            (2_000, 2_000, true),
            (2_001, 2_001, false),
            (-2_000, -2_000, true),
            (-2_001, -2_001, false),
            (1_000, 60_000, true),
            (2_001, 60_000, false),
            (-60_000, -2_001, false),
        ];
        for (earliest, latest, expected) in cases {
            let published = UnixMs(due.0 + earliest)..=UnixMs(due.0 + latest);
            assert_eq!(
                may_be_armed_again(due, &published),
                expected,
                "{published:?}"
            );
        }
    }
}

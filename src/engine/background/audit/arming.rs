//! Arms what the timer has lost. A missing key is armed a little later, if its task is pending still: a program that deletes a
//! key cancels its task, and a daemon needs a moment for that.

use tokio::time::sleep_until;

use super::Audit;
use super::missing::{ARMED_AFTER, Missing};
use super::progress::{Page, Place, Progress, Step};
use crate::ledger::{DuePage, DueScan, LedgerError, Window};
use crate::task::TaskKey;
use crate::timer::{Alarm, ArmMode, Remaining, TimerError};

/// Rows of one step. A step is short, so that a task that falls due meanwhile is hardly delayed.
const PAGE: u32 = 250;

impl Audit {
    /// Checks a page of the tasks of a window: those that the timer has lost are armed, now or a little later.
    pub(super) async fn arm_lost(
        &self,
        window: Window,
        progress: &mut Progress,
    ) -> Result<Page, LedgerError> {
        let scan = DueScan {
            window,
            after: progress.after,
            limit: PAGE,
        };
        let DuePage { rows, next, .. } = self.scans.scan(scan).await?;
        let last = rows.last().map(|row| (row.due_at, row.arming.row));
        let alarms: Vec<Alarm> = rows.into_iter().map(Alarm::from).collect();
        let place = Place {
            step: progress.step,
            after: progress.after,
            pending: progress.report.pending,
        };
        let written = match self.look_for(&alarms, place, &mut progress.missing).await {
            Ok(written) => written,
            Err(error) => return Ok(failed(&error)),
        };
        progress.report.rearmed += written;
        progress.report.pending += alarms.len();
        // Those that ended since they were read have removed their entries before these were written.
        if written > 0 && progress.step == Step::Due {
            self.remove_ended(Vec::new(), alarms).await?;
        }
        progress.after = next.or(last).or(progress.after);
        Ok(match next {
            Some(_) => Page::More,
            None => Page::Last,
        })
    }

    /// Arms the tasks of a page whose entries are missing, and notes missing keys. Returns how many it has armed.
    async fn look_for(
        &self,
        alarms: &[Alarm],
        place: Place,
        missing: &mut Missing<Place>,
    ) -> Result<usize, TimerError> {
        let entries = self.entries.as_ref();
        let has_entry = |alarm: &&Alarm| entries.is_some_and(|it| it.has(Some(&alarm.key)));
        let (of_entries, of_keys): (Vec<&Alarm>, Vec<&Alarm>) = alarms.iter().partition(has_entry);
        let mut written = 0;
        if !of_entries.is_empty() {
            let of_entries: Vec<Alarm> = of_entries.into_iter().cloned().collect();
            written = self
                .timer
                .arm(&of_entries, ArmMode::IfMissing)
                .await?
                .written;
        }
        if !of_keys.is_empty() {
            let keys: Vec<TaskKey> = of_keys.iter().map(|alarm| alarm.key.clone()).collect();
            let held = self.timer.remaining(&keys).await?;
            let absent = of_keys.into_iter().zip(held);
            let absent = absent.filter(|(_, held)| *held == Remaining::Missing);
            let absent: Vec<Alarm> = absent.map(|(alarm, _)| alarm.clone()).collect();
            if !absent.is_empty() {
                missing.add(absent, place);
            }
        }
        Ok(written)
    }

    /// Arms keys that were missing some time ago and whose tasks are pending still. At the end of an audit it waits for all.
    pub(super) async fn arm_missing(&self, progress: &mut Progress) -> Result<Page, LedgerError> {
        let waits = progress.step == Step::End;
        while let Some(page) = progress.missing.next(waits) {
            sleep_until(page.found + ARMED_AFTER).await;
            let keys: Vec<TaskKey> = page.alarms.iter().map(|alarm| alarm.key.clone()).collect();
            let rows = self.claims.look_up(&keys).await?;
            let alarms = page.alarms.iter().zip(rows);
            let pending = alarms.filter(|(alarm, row)| {
                row.as_ref().is_some_and(|row| {
                    let is_pending = !row.state.is_finished();
                    is_pending && !row.deleted && row.due_at == alarm.due
                })
            });
            let pending: Vec<Alarm> = pending.map(|(alarm, _)| alarm.clone()).collect();
            if !pending.is_empty() {
                match self.timer.arm(&pending, ArmMode::IfMissing).await {
                    Ok(armed) => progress.report.rearmed += armed.written,
                    Err(error) => return Ok(failed(&error)),
                }
            }
            progress.missing.armed();
        }
        Ok(Page::Last)
    }
}

/// Logs why an audit stops.
fn failed(error: &TimerError) -> Page {
    tracing::warn!(%error, "audit stopped: the timer does not answer; it continues on the next connection");
    Page::Failed
}

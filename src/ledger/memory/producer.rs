//! Creation of tasks in memory.

use std::sync::Arc;

use async_trait::async_trait;

use super::MemoryLedger;
use crate::ledger::row::{Row, Status};
use crate::ledger::{
    CancelAnswer, CancelCursor, CancelFilter, CancelPage, Changed, Created, Decide, IfPending,
    LedgerError, NewTask, Producer, RescheduleAnswer, See, SeriesRow,
};
use crate::task::{Arming, TaskKey, UnixMs};

#[async_trait]
impl Producer for MemoryLedger {
    async fn create(&self, tasks: &[NewTask]) -> Result<Vec<Created>, LedgerError> {
        let now = self.clock.now();
        let mut table = self.table();
        for policy in IfPending::ALL {
            for task in tasks.iter().filter(|task| task.if_pending == policy) {
                table.create(task, now);
            }
        }
        Ok(tasks
            .iter()
            .map(|task| {
                let row = table.of_key(&task.key).expect("just created");
                row.created(task, now)
            })
            .collect())
    }

    async fn series(&self, key: &TaskKey) -> Result<Option<SeriesRow>, LedgerError> {
        let now = self.clock.now();
        Ok(self.table().of_key(key).map(|row| row.series(now)))
    }

    async fn standing(&self, keys: &[TaskKey], see: Arc<dyn See>) -> Result<(), LedgerError> {
        let now = self.clock.now();
        let mut table = self.table();
        for (place, key) in keys.iter().enumerate() {
            see.see(place, table.of_key(key).map(|row| row.series(now)));
        }
        Ok(())
    }

    async fn change(
        &self,
        keys: &[TaskKey],
        see: Arc<dyn See>,
        decide: Arc<Decide>,
    ) -> Result<Vec<Changed>, LedgerError> {
        let now = self.clock.now();
        let mut table = self.table();
        for (place, key) in keys.iter().enumerate() {
            see.see(place, table.of_key(key).map(|row| row.series(now)));
        }
        Ok(keys
            .iter()
            .zip(decide(now))
            .map(|(key, change)| table.change(key, change, now))
            .collect())
    }

    async fn write_series(
        &self,
        task: &NewTask,
        over: Option<&SeriesRow>,
    ) -> Result<Option<Arming>, LedgerError> {
        let now = self.clock.now();
        let mut table = self.table();
        Ok(match (table.of_key(&task.key), over) {
            (None, None) => Some(table.create(task, now).arming()),
            (Some(row), Some(over)) => row.write_series(task, over, now).then(|| row.arming()),
            _ => None,
        })
    }

    async fn mark_configured(&self, seen: &SeriesRow) -> Result<bool, LedgerError> {
        let mut table = self.table();
        let row = table.rows.get_mut(&seen.lookup.arming.row);
        Ok(row.is_some_and(|row| row.mark_configured(seen)))
    }

    async fn reschedule(
        &self,
        key: &TaskKey,
        due: UnixMs,
    ) -> Result<RescheduleAnswer, LedgerError> {
        let now = self.clock.now();
        let mut table = self.table();
        Ok(match table.of_key(key) {
            Some(row) => row.reschedule(due, now),
            None => RescheduleAnswer::Unknown,
        })
    }

    async fn cancel(&self, keys: &[TaskKey]) -> Result<Vec<CancelAnswer>, LedgerError> {
        let now = self.clock.now();
        let mut table = self.table();
        let mut cancel = |key: &TaskKey| match table.of_key(key) {
            Some(row) => row.cancel(now),
            None => CancelAnswer::Unknown,
        };
        Ok(keys.iter().map(&mut cancel).collect())
    }

    /// Cancels all matching tasks in one page.
    async fn cancel_page(
        &self,
        filter: &CancelFilter,
        _before: Option<CancelCursor>,
        dry_run: bool,
    ) -> Result<CancelPage, LedgerError> {
        filter.check()?;
        let now = self.clock.now();
        let mut page = CancelPage::default();
        let mut table = self.table();
        let fits = |row: &&mut Row| {
            row.status == Status::Unprocessed
                && filter.fits_key(&row.key)
                && (filter.tag.is_none() || row.tag == filter.tag)
        };
        for row in table.rows.values_mut().filter(fits) {
            let answer = match dry_run {
                true if row.leased(now) => CancelAnswer::Running,
                true => CancelAnswer::Cancelled,
                false => row.cancel(now),
            };
            match answer {
                CancelAnswer::Running => page.running.push(row.key.clone()),
                _ => page.cancelled.push(row.key.clone()),
            }
        }
        Ok(page)
    }
}

//! Creation of tasks, and the rows of recurring ones.

use std::collections::HashSet;
use std::sync::Arc;

use async_trait::async_trait;

use super::store::{At, Columns, Parts, RowStore, Store};
use super::{Length, ROWS_MAX, Result, RowLedger, cancel, change, insert, update, update_if};
use crate::ledger::row::Row;
use crate::ledger::{
    CancelAnswer, CancelPage, Changed, Created, Decide, ListFilter, NewTask, Producer,
    RescheduleAnswer, RowSnapshot, See,
};
use crate::task::{Arming, TaskKey, UnixMs};

#[async_trait]
impl<L: RowLedger> Producer for L {
    async fn create(&self, tasks: &[NewTask]) -> Result<Vec<Created>> {
        let tasks = tasks.to_vec();
        self.write(Length::Short, move |store| create(store, &tasks))
            .await
    }

    async fn read_row(&self, key: &TaskKey) -> Result<Option<RowSnapshot>> {
        let key = key.clone();
        self.read(Length::Short, move |store| {
            let found = store.row(At::Key(&key), Parts::Whole)?;
            Ok(found.map(|stored| stored.row.snapshot(store.now())))
        })
        .await
    }

    async fn read_rows(&self, keys: &[TaskKey], see: Arc<dyn See>) -> Result<()> {
        let keys = keys.to_vec();
        self.read(Length::of(keys.len()), move |store| {
            change::read_rows(store, &keys, &*see)
        })
        .await
    }

    async fn change(
        &self,
        keys: &[TaskKey],
        see: Arc<dyn See>,
        decide: Arc<Decide>,
    ) -> Result<Vec<Changed>> {
        let keys = keys.to_vec();
        self.write(Length::of(keys.len()), move |store| {
            change::change(store, &keys, &*see, &*decide)
        })
        .await
    }

    async fn write_series(
        &self,
        task: &NewTask,
        over: Option<&RowSnapshot>,
    ) -> Result<Option<Arming>> {
        let (task, over) = (task.clone(), over.cloned());
        self.write(Length::Short, move |store| {
            write_series(store, &task, over.as_ref())
        })
        .await
    }

    async fn mark_configured(&self, seen: &RowSnapshot) -> Result<bool> {
        let seen = seen.clone();
        self.write(Length::Short, move |store| {
            let at = At::Row(seen.lookup.arming.row);
            update_if(store, at, |row, _| row.mark_configured(&seen))
        })
        .await
    }

    async fn reschedule(&self, key: &TaskKey, due: UnixMs) -> Result<RescheduleAnswer> {
        let key = key.clone();
        self.write(Length::Short, move |store| {
            let answer = update(
                store,
                At::Key(&key),
                Columns::Brief,
                |row, now| row.reschedule(due, now),
                |answer| matches!(answer, RescheduleAnswer::Moved(_)),
            )?;
            Ok(answer.unwrap_or(RescheduleAnswer::Unknown))
        })
        .await
    }

    async fn cancel(&self, keys: &[TaskKey]) -> Result<Vec<CancelAnswer>> {
        let mut answers = Vec::with_capacity(keys.len());
        for part in keys.chunks(ROWS_MAX) {
            let part = part.to_vec();
            let cancel = move |store: &mut dyn Store| cancel::cancel(store, &part);
            answers.extend(self.write(Length::of(keys.len()), cancel).await?);
        }
        Ok(answers)
    }

    async fn cancel_page(&self, filter: &ListFilter, dry_run: bool) -> Result<CancelPage> {
        filter.check_cancel()?;
        let filter = filter.clone();
        let page = move |store: &mut dyn Store| cancel::page(store, &filter, dry_run);
        match dry_run {
            true => self.read(Length::Long, page).await,
            false => self.write(Length::Long, page).await,
        }
    }
}

/// As [`Producer::create`].
pub fn create(store: &mut dyn RowStore, tasks: &[NewTask]) -> Result<Vec<Created>> {
    let now = store.now();
    let mut created: Vec<Option<Created>> = vec![None; tasks.len()];
    for (place, task) in NewTask::by_policy(tasks) {
        let mut row = Row::new(0, task, now);
        created[place] = match insert(store, &mut row)? {
            true => Some(row.created(task, now)),
            false => create_over(store, task)?,
        };
    }
    let mut keys = HashSet::with_capacity(tasks.len());
    if !tasks.iter().all(|task| keys.insert(&task.key)) {
        // A later request for the same key may have changed its row.
        return tasks.iter().map(|task| answer(store, task)).collect();
    }
    let created = created.into_iter();
    Ok(created
        .map(|created| created.expect("each policy is one of all"))
        .collect())
}

/// Applies the request to the existing row. `None` is never returned for a key that has one.
fn create_over(store: &mut dyn RowStore, task: &NewTask) -> Result<Option<Created>> {
    update(
        store,
        At::Key(&task.key),
        Columns::All,
        |row, now| {
            row.create_over(task, now);
            row.created(task, now)
        },
        |_| true,
    )
}

fn answer(store: &mut dyn RowStore, task: &NewTask) -> Result<Created> {
    let found = store.row(At::Key(&task.key), Parts::Brief)?;
    let stored = found.expect("just created");
    Ok(stored.row.created(task, store.now()))
}

fn write_series(
    store: &mut dyn RowStore,
    task: &NewTask,
    over: Option<&RowSnapshot>,
) -> Result<Option<Arming>> {
    let Some(over) = over else {
        let mut row = Row::new(0, task, store.now());
        return Ok(insert(store, &mut row)?.then(|| row.arming()));
    };
    let written = update(
        store,
        At::Key(&task.key),
        Columns::All,
        |row, now| row.write_series(task, over, now).then(|| row.arming()),
        Option::is_some,
    )?;
    Ok(written.flatten())
}

//! Moves between ledgers.

use std::ops::ControlFlow::Continue;

use async_trait::async_trait;

use super::store::{At, Columns, DueRange, Parts, Range, RowStore, START};
use super::{Length, Result, RowLedger, insert, update, update_if};
use crate::ledger::Ledger;
use crate::ledger::row::{Arrival, Row};
use crate::ledger::transfer::{
    GiveUp, HeldTask, MovePage, MovePlace, MovingTask, Rows, Staged, Transfers,
};
use crate::task::UnixMs;

#[async_trait]
impl<L: RowLedger + Ledger> Transfers for L {
    fn identity(&self) -> Option<String> {
        RowLedger::identity(self)
    }

    async fn whole_rows(
        &self,
        which: Rows,
        after: Option<MovePlace>,
        limit: u32,
    ) -> Result<MovePage> {
        self.read(Length::Long, move |store| page(store, which, after, limit))
            .await
    }

    async fn stage(&self, tasks: &[MovingTask]) -> Result<Vec<Staged>> {
        let tasks = tasks.to_vec();
        self.write(Length::Long, move |store| {
            tasks.iter().map(|task| stage(store, task)).collect()
        })
        .await
    }

    async fn freeze(&self, tasks: &[MovingTask]) -> Result<Vec<bool>> {
        let tasks = tasks.to_vec();
        self.write(Length::Long, move |store| {
            let mut freeze = |task: &MovingTask| {
                let at = At::Key(task.key());
                update_if(store, at, |row, now| row.freeze(&task.row, now))
            };
            tasks.iter().map(&mut freeze).collect()
        })
        .await
    }

    async fn admit(&self, tasks: &[HeldTask]) -> Result<()> {
        each(self, tasks, Row::admit).await
    }

    async fn unstage(&self, tasks: &[HeldTask]) -> Result<()> {
        each(self, tasks, Row::unstage).await
    }

    async fn give_up(&self, tasks: &[HeldTask], how: GiveUp, note: &str) -> Result<Vec<HeldTask>> {
        let (tasks, note) = (tasks.to_vec(), note.to_owned());
        self.write(Length::Long, move |store| {
            let mut held = Vec::new();
            for task in &tasks {
                let give_up = |row: &mut Row, now| row.give_up(task.due, how, &note, now);
                let is_held = update(store, At::Key(&task.key), Columns::All, give_up, |_| true)?;
                held.extend((is_held == Some(true)).then(|| task.clone()));
            }
            Ok(held)
        })
        .await
    }

    async fn copy(&self, tasks: &[MovingTask]) -> Result<u64> {
        let tasks = tasks.to_vec();
        self.write(Length::Long, move |store| {
            let mut copied = 0;
            for task in tasks {
                copied += u64::from(write_new(store, task.row)?);
            }
            Ok(copied)
        })
        .await
    }
}

fn page(
    store: &mut dyn RowStore,
    which: Rows,
    after: Option<MovePlace>,
    limit: u32,
) -> Result<MovePage> {
    let statuses = match which {
        Rows::Unfinished => 0..=0,
        Rows::Finished => 1..=3,
    };
    let mut page = MovePage::default();
    let (mut left, mut last) = (limit as usize, None);
    for (status, deleted) in statuses.flat_map(|status| [(status, false), (status, true)]) {
        let from = match after {
            Some(after) if (status, deleted) < (after.status, after.deleted) => continue,
            Some(after) if (status, deleted) == (after.status, after.deleted) => {
                (after.due_at, after.row)
            }
            _ => START,
        };
        let range = Range::Due(DueRange {
            from,
            ..DueRange::all(status, deleted)
        });
        let ended = store.walk(&range, Parts::Whole, left, &mut |stored| {
            left -= 1;
            last = Some(stored.row.place());
            match stored.malformed {
                None => page.tasks.push(MovingTask { row: stored.row }),
                Some(_) => page.foreign += 1,
            }
            Continue(())
        })?;
        if ended.is_break() {
            page.next = last;
            break;
        }
    }
    Ok(page)
}

fn stage(store: &mut dyn RowStore, task: &MovingTask) -> Result<Staged> {
    let over = store.row(At::Key(task.key()), Parts::Brief)?;
    let over = over.map(|stored| stored.row);
    Ok(match task.row.arrive(over.as_ref(), store.now()) {
        Arrival::Known => Staged::Known,
        Arrival::Busy => Staged::Busy,
        Arrival::Write => {
            match &over {
                Some(over) => {
                    let row = task.row.staged(over.id, Some(over));
                    store.save(&row, Columns::All)?;
                }
                None => {
                    write_new(store, task.row.staged(0, None))?;
                }
            }
            Staged::Held
        }
    })
}

/// Writes a whole row, unless its key has one. Returns whether it did.
fn write_new(store: &mut dyn RowStore, mut row: Row) -> Result<bool> {
    let written = insert(store, &mut row)?;
    if written {
        store.save(&row, Columns::All)?;
    }
    Ok(written)
}

/// Changes the rows of these tasks. `act` takes the due time, and now.
async fn each(
    ledger: &impl RowLedger,
    tasks: &[HeldTask],
    act: fn(&mut Row, UnixMs, UnixMs),
) -> Result<()> {
    let tasks = tasks.to_vec();
    ledger
        .write(Length::Long, move |store| {
            for task in &tasks {
                let act = |row: &mut Row, now| act(row, task.due, now);
                update(store, At::Key(&task.key), Columns::Brief, act, |()| true)?;
            }
            Ok(())
        })
        .await
}

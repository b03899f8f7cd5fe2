//! The mover: carries the tasks of one ledger to another, batch by batch.

use std::ops::ControlFlow;

use super::{GiveUp, HeldTask, MovingTask, Rows, Staged, Transfers};
use crate::ledger::LedgerError;
use crate::task::TaskKey;

/// Maximum number of tasks that move together.
pub const BATCH: u32 = 256;

/// Maximum number of tasks that are reported one by one.
const REPORTED_MAX: usize = 100;

/// Moves tasks from one ledger to another. Any number of movers may work at once.
pub struct Mover<'a> {
    from: &'a dyn Transfers,
    to: &'a dyn Transfers,
    /// Result of a moved task in the source, JSON.
    note: String,
    counts: MoveCounts,
    /// Rows that were staged before, and whose tasks were unfinished in the source when last looked at.
    staged_before: Vec<HeldTask>,
}

/// What a mover has done.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct MoveCounts {
    /// Tasks that the destination has instead of the source.
    pub moved: u64,
    /// Of those, tasks that the destination had before: the same arming, or a newer one.
    pub known: u64,
    /// Finished tasks that were copied.
    pub copied: u64,
}

/// What a pass left in the source.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Left {
    /// Running there, changed while they were moved, or running in the destination under an older arming. The next pass
    /// tries them again.
    pub later: u64,
    /// Tasks that the destination cannot hold, with the reason; at most 100 of them.
    pub unfit: Vec<(TaskKey, String)>,
    /// Number of tasks that the destination cannot hold.
    pub unfit_count: u64,
    /// Rows that are no tasks.
    pub foreign: u64,
    /// True if the caller stopped the pass.
    pub stopped: bool,
}

/// What a move would do.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct MovePlan {
    /// Unfinished tasks.
    pub tasks: u64,
    /// Of those, running now.
    pub running: u64,
    /// Of those, half moved by an earlier move.
    pub held: u64,
    /// Rows that are no tasks.
    pub foreign: u64,
}

impl<'a> Mover<'a> {
    /// Creates a mover. `note` is JSON: the result of a moved task in the source.
    pub fn new(from: &'a dyn Transfers, to: &'a dyn Transfers, note: String) -> Self {
        Self {
            from,
            to,
            note,
            counts: MoveCounts::default(),
            staged_before: Vec::new(),
        }
    }

    /// What was done so far.
    pub fn counts(&self) -> &MoveCounts {
        &self.counts
    }

    /// Counts the unfinished tasks of the source.
    ///
    /// # Errors
    /// Those of the ledger.
    pub async fn plan(&self) -> Result<MovePlan, LedgerError> {
        let mut plan = MovePlan::default();
        let mut after = None;
        loop {
            let page = self.from.whole_rows(Rows::Unfinished, after, BATCH).await?;
            let now = self.from.clock().now();
            plan.foreign += page.foreign;
            for task in &page.tasks {
                plan.running += u64::from(task.is_running(now));
                plan.held += u64::from(task.is_held());
                plan.tasks += u64::from(task.is_free(now) || task.row.leased(now));
            }
            after = page.next;
            if after.is_none() {
                return Ok(plan);
            }
        }
    }

    /// Cancels rows that an interrupted move has staged, and whose tasks have ended in the source since. Call it before the
    /// first pass. Reads every unfinished row of the destination.
    ///
    /// # Errors
    /// Those of the ledgers.
    pub async fn tidy(&mut self) -> Result<(), LedgerError> {
        let mut after = None;
        loop {
            let page = self.to.whole_rows(Rows::Unfinished, after, BATCH).await?;
            let held = page.tasks.iter().filter(|task| task.is_held());
            let left = self
                .unstage_ended(held.map(MovingTask::held).collect())
                .await?;
            self.staged_before.extend(left);
            after = page.next;
            if after.is_none() {
                return Ok(());
            }
        }
    }

    /// Moves every unfinished task that is free, soonest due first. `go_on` is called after each batch.
    ///
    /// # Errors
    /// Those of the ledgers. Another pass continues.
    ///
    /// # Cancel safety
    /// Cancel safe: another pass continues.
    pub async fn pass(
        &mut self,
        mut go_on: impl FnMut(&MoveCounts) -> ControlFlow<()>,
    ) -> Result<Left, LedgerError> {
        let mut left = Left::default();
        let mut after = None;
        loop {
            let page = self.from.whole_rows(Rows::Unfinished, after, BATCH).await?;
            let now = self.from.clock().now();
            left.foreign += page.foreign;
            left.later += page
                .tasks
                .iter()
                .filter(|task| task.is_running(now))
                .count() as u64;
            let (held, others): (Vec<MovingTask>, Vec<MovingTask>) =
                page.tasks.into_iter().partition(MovingTask::is_held);
            let held: Vec<HeldTask> = held.iter().map(MovingTask::held).collect();
            self.hand_over(&held).await?;
            let free = others.into_iter().filter(|task| task.is_free(now));
            self.carry(free.collect(), &mut left).await?;
            left.stopped = go_on(&self.counts).is_break();
            after = page.next;
            if after.is_none() || left.stopped {
                break;
            }
        }
        let staged_before = std::mem::take(&mut self.staged_before);
        self.staged_before = self.unstage_ended(staged_before).await?;
        Ok(left)
    }

    /// Copies the finished tasks whose keys the destination does not have. They stay in the source.
    ///
    /// # Errors
    /// Those of the ledgers. It may be called again.
    pub async fn copy_finished(
        &mut self,
        mut go_on: impl FnMut(&MoveCounts) -> ControlFlow<()>,
    ) -> Result<(), LedgerError> {
        let mut after = None;
        loop {
            let page = self.from.whole_rows(Rows::Finished, after, BATCH).await?;
            // A task that was moved is finished here only.
            let tasks: Vec<MovingTask> = page
                .tasks
                .into_iter()
                .filter(|task| !task.row.is_of_move())
                .collect();
            self.counts.copied += self.to.copy(&tasks).await?;
            after = page.next;
            if after.is_none() || go_on(&self.counts).is_break() {
                return Ok(());
            }
        }
    }

    /// Stages, freezes, and hands over.
    async fn carry(&mut self, tasks: Vec<MovingTask>, left: &mut Left) -> Result<(), LedgerError> {
        if tasks.is_empty() {
            return Ok(());
        }
        let staged = self.to.stage(&tasks).await?;
        let mut going = Vec::with_capacity(tasks.len());
        for (task, staged) in tasks.into_iter().zip(staged) {
            match staged {
                Staged::Held => going.push((task, false)),
                Staged::Known => going.push((task, true)),
                Staged::Busy => left.later += 1,
                Staged::Unfit(why) => {
                    left.unfit_count += 1;
                    if left.unfit.len() < REPORTED_MAX {
                        left.unfit.push((task.key().clone(), why));
                    }
                }
            }
        }
        let (tasks, known): (Vec<MovingTask>, Vec<bool>) = going.into_iter().unzip();
        let frozen = self.from.freeze(&tasks).await?;
        let (mut moving, mut back) = (Vec::new(), Vec::new());
        for ((task, known), frozen) in tasks.iter().zip(known).zip(frozen) {
            match (frozen, known) {
                (true, known) => {
                    self.counts.known += u64::from(known);
                    moving.push(task.held());
                }
                (false, true) => left.later += 1,
                (false, false) => {
                    left.later += 1;
                    back.push(task.held());
                }
            }
        }
        if !back.is_empty() {
            self.to.unstage(&back).await?;
        }
        self.hand_over(&moving).await
    }

    /// Admits frozen tasks in the destination, and ends them in the source.
    async fn hand_over(&mut self, tasks: &[HeldTask]) -> Result<(), LedgerError> {
        if tasks.is_empty() {
            return Ok(());
        }
        self.to.admit(tasks).await?;
        let cancelled = self.from.give_up(tasks, GiveUp::Moved, &self.note).await?;
        if !cancelled.is_empty() {
            let keys: Vec<TaskKey> = cancelled.iter().map(|task| task.key.clone()).collect();
            self.to.cancel(&keys).await?;
            self.from
                .give_up(&cancelled, GiveUp::Cancelled, &self.note)
                .await?;
        }
        self.counts.moved += tasks.len() as u64;
        Ok(())
    }

    /// Cancels those of these staged rows whose tasks have ended in the source. Returns the others.
    async fn unstage_ended(&self, tasks: Vec<HeldTask>) -> Result<Vec<HeldTask>, LedgerError> {
        let mut left = Vec::new();
        for tasks in tasks.chunks(BATCH as usize) {
            let keys: Vec<TaskKey> = tasks.iter().map(|task| task.key.clone()).collect();
            let found = self.from.look_up(&keys).await?;
            let open = |found: &Option<crate::ledger::Lookup>| {
                found
                    .as_ref()
                    .is_some_and(|found| !found.state.is_finished())
            };
            let (mut ended, mut others) = (Vec::new(), Vec::new());
            for (task, found) in tasks.iter().zip(&found) {
                match open(found) {
                    true => others.push(task.clone()),
                    false => ended.push(task.clone()),
                }
            }
            if !ended.is_empty() {
                self.to.unstage(&ended).await?;
            }
            left.extend(others);
        }
        Ok(left)
    }
}

//! Creates recurring tasks.

use super::arming::arm;
use super::{ClientError, IntoTask, NotArmed, Receipt, Task, TaskClient};
use crate::ledger::recurring::{DeclaredBy, Established, establish};
use crate::ledger::{CreateResult, Created};
use crate::task::{DELAY_MAX, Recurrence, RecurrenceError, ScheduleError, State, UnixMs};

impl TaskClient {
    /// Creates a recurring task, or replaces the schedule of an existing one.
    ///
    /// To repeat the call changes nothing, so an application may make it at each start. A task of this key that has another
    /// schedule, or none, is changed: its next occurrence is moved if the new schedule does not have it. If the task is
    /// running then, the result of that run is discarded, as by [`create`](Self::create). A finished or cancelled task
    /// starts over.
    ///
    /// ```no_run
    /// # async fn example(tasks: lapsed::TaskClient) -> Result<(), Box<dyn std::error::Error>> {
    /// use lapsed::{Recurrence, Task};
    ///
    /// let weekdays_at_nine = Recurrence::cron("0 9 * * Mon-Fri")?.in_zone("Europe/Berlin")?;
    /// let receipt = tasks.create_recurring(Task::new("Report", "daily", ["sales"])?, weekdays_at_nine).await?;
    /// println!("first report at {}", receipt.due());
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # Errors
    /// [`ClientError`]: an invalid task, a recurrence without a future occurrence, or a failure of the ledger.
    ///
    /// # Cancel safety
    /// Safe to drop: the task may or may not be created.
    pub async fn create_recurring(
        &self,
        task: impl IntoTask,
        recurrence: Recurrence,
    ) -> Result<Receipt, ClientError> {
        let task = task.into_task()?;
        self.check_recurring(&task, &recurrence)?;
        let now = self.now().await?;
        let key = task.key.clone();
        // A task that recurs for years does not belong to the caller's trace, only to one that was set.
        let task = task.recurring(recurrence, now);
        let established = establish(
            &*self.ledger,
            self.ledger.clock(),
            &task,
            DeclaredBy::Producer,
        )
        .await?;
        let (arming, state, older_run, written) = match established {
            Established::Started(arming) => (arming, State::Pending, false, true),
            Established::Changed { arming, older_run } => match older_run {
                true => (arming, State::Running, true, true),
                false => (arming, State::Pending, false, true),
            },
            Established::Unchanged(arming, state) | Established::Ended(arming, state) => {
                (arming, state, false, false)
            }
            Established::Running(arming) => (arming, State::Running, false, false),
        };
        let created = Created {
            arming,
            state,
            older_run,
            since: now,
            result: CreateResult::Written,
        };
        // Its key may belong to a retry, or to another caller that moves the task.
        if !written {
            return Ok(Receipt::new(created, Some(NotArmed::LeftAsItIs)));
        }
        let not_armed = arm(&*self.alarms, self.ledger.clock(), &[(key, created)]).await;
        Ok(Receipt::new(
            created,
            not_armed.into_iter().next().flatten(),
        ))
    }

    /// Checks whether [`create_recurring`](Self::create_recurring) would accept a task, without a statement. The schedule
    /// is checked against the local estimate of the ledger's clock.
    ///
    /// # Errors
    /// [`ClientError`] names the first problem.
    pub fn check_recurring(&self, task: &Task, recurrence: &Recurrence) -> Result<(), ClientError> {
        task.check_recurring()?;
        recurrence.check_room(task.key())?;
        let now: UnixMs = self.ledger.clock().now();
        let behind = recurrence.starts_after(now);
        match recurrence.clone().anchored(now).next(behind) {
            Some(due) if due.since(now) > DELAY_MAX => Err(ScheduleError::TooFar.into()),
            Some(_) => Ok(()),
            None => Err(RecurrenceError::Over.into()),
        }
    }
}

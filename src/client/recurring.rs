//! Tasks that come again.

use super::arming::arm;
use super::{ClientError, IntoTask, NotArmed, Receipt, Task, TaskClient};
use crate::ledger::recurring::{Established, Insistence, establish};
use crate::ledger::{Created, IfPending, NewTask, Stands};
use crate::task::{DELAY_MAX, Recurrence, RecurrenceError, ScheduleError, State, UnixMs};

impl TaskClient {
    /// Creates a task that comes again, or makes the one of this key come like this from now on.
    ///
    /// The same once more changes nothing, its key neither: an application may say it at each start. What was another
    /// series, or a task that runs once, is changed; its next occurrence stays where it is if it is right, and is moved
    /// if not. One that is being run is moved too, and that run's result is discarded, as by [`create`](Self::create).
    /// One that was finished or called off begins anew.
    ///
    /// ```no_run
    /// # async fn example(tasks: lapsed::TaskClient) -> Result<(), Box<dyn std::error::Error>> {
    /// use lapsed::{Recurrence, Task};
    ///
    /// let weekdays_at_nine = Recurrence::cron("0 9 * * Mon-Fri")?.in_zone("Europe/Berlin")?;
    /// let made = tasks.create_recurring(Task::new("Report", "daily", ["sales"])?, weekdays_at_nine).await?;
    /// println!("first report at {}", made.due());
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # Errors
    /// [`ClientError`]: something that is refused, a recurrence without any occurrence ahead, or the ledger.
    ///
    /// # Cancel safety
    /// Safe to drop; the series may or may not be there then.
    pub async fn create_recurring(
        &self,
        task: impl IntoTask,
        recurrence: Recurrence,
    ) -> Result<Receipt, ClientError> {
        let task = task.into_task()?;
        self.check_recurring(&task, &recurrence)?;
        let now = self.now().await?;
        let Task {
            key,
            payload,
            tag,
            max_attempts,
            travels,
            if_pending: _,
        } = task;
        // The caller's trace is no part of what comes again for years: only one that was said.
        let payload = travels.seal(&key, payload);
        let task = NewTask {
            payload,
            tag,
            max_attempts,
            recurrence: Some(recurrence),
            ..NewTask::new(key.clone(), now)
        };
        let established = establish(&*self.ledger, &task, Insistence::Now).await?;
        let (arming, state, older_run, written) = match established {
            Established::Begun(arming) => (arming, State::Pending, false, true),
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
            stands: Stands::Asked,
        };
        // Its key may be of a retry, or somebody's who moves it.
        if !written {
            return Ok(Receipt::new(created, Some(NotArmed::LeftAsItIs)));
        }
        let not_armed = arm(&*self.timer, self.ledger.clock(), &[(key, created)]).await;
        Ok(Receipt::new(
            created,
            not_armed.into_iter().next().flatten(),
        ))
    }

    /// Whether a task that comes again could be created as it is, seen from the ledger's clock as it is known here.
    ///
    /// # Errors
    /// [`ClientError`] says what is refused.
    pub fn check_recurring(&self, task: &Task, recurrence: &Recurrence) -> Result<(), ClientError> {
        task.check()?;
        if task.if_pending != IfPending::Move {
            return Err(ClientError::Invalid(format!(
                "`if_pending` is `{}`, expected none for a task that comes again: it is changed if it differs, and left as it is if not",
                task.if_pending.as_str()
            )));
        }
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

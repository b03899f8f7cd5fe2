//! The row of a recurring task.

use super::{Row, Status, StoredRecurrence};
use crate::ledger::{NewTask, RowSnapshot};
use crate::task::{Origin, Recurrence, UnixMs};

impl Row {
    /// Writes the series over the row. Returns false if the row has changed since `seen`.
    pub fn write_series(&mut self, task: &NewTask, seen: &RowSnapshot, now: UnixMs) -> bool {
        let recurrence = self.recurrence.as_ref().map(ToString::to_string);
        if !self.is_unchanged_since(&seen.lookup, now) || recurrence != seen.recurrence {
            return false;
        }
        let open = self.status == Status::Unprocessed && !self.deleted;
        if open && self.end_time == task.due {
            self.contents.clone_from(&task.contents);
            self.recurrence = task.recurrence.clone().map(StoredRecurrence::Known);
            self.origin = Origin::Row;
            self.changed_at = now;
        } else {
            self.begin_anew(task, now);
        }
        true
    }

    /// Marks the recurrence as configured. Returns false if the recurrence has changed since `seen`.
    pub fn mark_configured(&mut self, seen: &RowSnapshot) -> bool {
        let stored = self.recurrence.as_ref().map(ToString::to_string);
        let is_seen = stored.is_some() && stored == seen.recurrence;
        if is_seen {
            self.recurrence = self
                .recurrence
                .take()
                .map(|stored| stored.changed(Recurrence::configured));
        }
        is_seen
    }
}

//! Adoption of a row: on behalf of a key that another program arms or deletes.

use std::time::Duration;

use super::{Row, Status};
use crate::ledger::{AdoptionRequest, CancelByKey, CancelByKeyAnswer, Lookup, NewTask};
use crate::task::{Arming, Origin, State, UnixMs};

impl Row {
    /// Creates the row of a key without one.
    pub fn adopted(id: u64, found: &AdoptionRequest) -> Self {
        let mut task = NewTask::new(found.key.clone(), found.due);
        task.contents.payload.clone_from(&found.payload);
        Self {
            origin: found.origin().unwrap_or(Origin::Key),
            ..Self::armed(id, &task, found)
        }
    }

    /// A new row, created when the key was armed.
    fn armed(id: u64, task: &NewTask, found: &AdoptionRequest) -> Self {
        let at = found.heard.min(found.due);
        Self {
            start_time: at,
            changed_at: at,
            ..Self::new(id, task, at)
        }
    }

    /// True if the row has not changed since `seen`. A retry may have become due since.
    pub fn is_unchanged_since(&self, seen: &Lookup, now: UnixMs) -> bool {
        let pending = |state| match state {
            State::Waiting => State::Pending,
            state => state,
        };
        let present = self.lookup(now);
        present.arming == seen.arming
            && pending(present.state) == pending(seen.state)
            && present.deleted == seen.deleted
            && present.cancelling == seen.cancelling
            && present.stamp.changed == seen.stamp.changed
            && present.stamp.created == seen.stamp.created
    }

    /// Turns the row into another arming, on behalf of a key. A task that has not finished keeps payload, tag, limit and
    /// recurrence.
    pub fn adopt(&mut self, found: &AdoptionRequest) {
        let (due, payload) = (found.due, found.payload.clone());
        let keeps = self.status == Status::Unprocessed;
        let before = self.clone();
        *self = Self {
            owner: before.owner,
            lease_until: before.lease_until,
            daemon: before.daemon,
            origin: found.origin().unwrap_or(before.origin),
            ..Self::armed(self.id, &NewTask::new(before.key, due), found)
        };
        if keeps {
            self.contents = before.contents;
            self.recurrence = before.recurrence;
            self.moved_from(before.end_time);
        }
        if payload.is_some() {
            self.contents.payload = payload;
        }
    }

    /// Cancels the task because its key was deleted.
    pub fn cancel_by_key(
        &mut self,
        withdrawal: &CancelByKey,
        ahead: Duration,
        now: UnixMs,
    ) -> CancelByKeyAnswer {
        let CancelByKey { over: seen, heard } = withdrawal;
        let applies = self.is_unchanged_since(seen, now)
            && matches!(self.origin, Origin::Key | Origin::Entry)
            && self.recurrence.is_none()
            && self.status == Status::Unprocessed
            && !self.deleted
            && (ahead.is_zero() || self.due_at() > now.plus(ahead));
        if applies {
            self.cancel(now);
            self.changed_at = seen.stamp.changed.max(*heard);
            self.finished_at = Some(self.changed_at);
            self.origin = Origin::DeletedKey;
        }
        match applies {
            true => CancelByKeyAnswer::Cancelled,
            false => CancelByKeyAnswer::Left,
        }
    }

    /// Reverts a deletion by a legacy program. Returns false if there is none.
    pub fn undelete(&mut self, arming: Arming) -> bool {
        let applies = self.arming() == arming
            && self.status == Status::Unprocessed
            && self.deleted
            && !self.deleted_by_lapsed();
        if applies {
            self.deleted = false;
        }
        applies
    }
}

//! Views of a row: record, lookup, series.

use super::{Row, Status, StoredReason};

use crate::ledger::{ListFilter, Lookup, Progress, RowSnapshot, Stamp, StateFilter, TaskRecord};
use crate::task::{Origin, State, UnixMs, error_kind};

impl Row {
    pub fn record(&self, now: UnixMs) -> TaskRecord {
        let state = self.state(now);
        let record = TaskRecord {
            id: self.arming().to_string(),
            state,
            due: self.end_time,
            due_at: self.due_at(),
            created: self.start_time,
            attempt: if self.has_run() { self.attempt } else { 0 },
            crashes: if self.has_run() { self.crashes } else { 0 },
            daemon: self.daemon.clone(),
            lease_until: (state == State::Running).then_some(self.lease_until),
            progress: self.progress(state),
            cancel_requested: state == State::Running && self.deleted,
            recurrence: self.recurrence.as_ref().map(ToString::to_string),
            last_error: self.last_error.clone(),
            reason: self.reason.and_then(StoredReason::death),
            history: self.history.clone(),
            result: self.result.clone(),
            finished: self.finished_at.filter(|_| state.is_finished()),
            adopted: self.origin != Origin::Row,
            ..TaskRecord::of(self.key.clone(), self.contents.clone())
        };
        let latest = self.reason.and_then(StoredReason::latest);
        TaskRecord {
            started: record.started(self.claimed_at),
            latest_occurrence: latest.and_then(|ended| record.latest_occurrence(ended)),
            ..record
        }
    }

    /// The progress of the run; `None` of a task that does not run.
    fn progress(&self, state: State) -> Option<Progress> {
        let line = self.progress.as_deref();
        let line = line.filter(|_| state == State::Running)?;
        Progress::of_line(line, self.owner)
    }

    pub fn fits(&self, filter: &ListFilter, now: UnixMs) -> bool {
        let ListFilter {
            states,
            class,
            method,
            tag,
            prefix,
            archived: _,
            recurring,
            due_after,
            due_before,
            reason,
            error,
            error_kind: kind,
            finished_after,
            finished_before,
            created_before,
            only: _,
            except: _,
            cursor: _,
            limit: _,
            brief: _,
            hides_keys: _,
            newest: _,
        } = filter;
        let says = |text: &String| {
            let latest = self.last_error.as_deref().unwrap_or_default();
            latest.to_lowercase().contains(&text.to_lowercase())
        };
        let is_of_kind = |kind: &String| {
            let latest = self.last_error.as_deref().unwrap_or_default();
            error_kind(latest) == *kind
        };
        let finished = (self.status != Status::Unprocessed).then(|| self.finished());
        let in_state = |wanted: &StateFilter| match wanted {
            StateFilter::Is(state) => self.state(now) == *state,
            StateFilter::Overdue => self.free_and_due(now),
        };
        (states.is_empty() || states.iter().any(in_state))
            && class.as_ref().is_none_or(|class| self.key.class() == class)
            && method
                .as_ref()
                .is_none_or(|method| self.key.method() == method)
            && tag
                .as_ref()
                .is_none_or(|tag| self.contents.tag.as_ref() == Some(tag))
            && prefix
                .as_ref()
                .is_none_or(|prefix| self.key.as_str().starts_with(prefix.as_str()))
            && (!recurring || self.recurrence.is_some())
            && due_after.is_none_or(|due| self.due_at() >= due)
            && due_before.is_none_or(|due| self.due_at() < due)
            && reason.is_none_or(|reason| self.reason == Some(StoredReason::Death(reason)))
            && error.as_ref().is_none_or(says)
            && kind.as_ref().is_none_or(is_of_kind)
            && finished_after.is_none_or(|from| finished.is_some_and(|at| at >= from))
            && finished_before.is_none_or(|to| finished.is_some_and(|at| at < to))
            && created_before.is_none_or(|to| self.start_time < to)
            && filter.allows(&self.key)
    }

    pub fn snapshot(&self, now: UnixMs) -> RowSnapshot {
        RowSnapshot {
            lookup: self.lookup(now),
            recurrence: self.recurrence.as_ref().map(ToString::to_string),
            contents: self.contents.clone(),
        }
    }

    pub fn lookup(&self, now: UnixMs) -> Lookup {
        let is_deleted = self.status == Status::Unprocessed && self.deleted;
        Lookup {
            arming: self.arming(),
            state: self.state(now),
            due_at: self.due_at(),
            deleted: is_deleted && !self.leased(now),
            cancelling: is_deleted && self.leased(now),
            older_run: self.waits_for_run(now),
            interrupted: self.run_end == self.end_time
                && self.lease_until > UnixMs(0)
                && !self.leased(now),
            origin: self.origin,
            stamp: self.stamp(),
        }
    }

    fn stamp(&self) -> Stamp {
        Stamp {
            changed: self.changed_at,
            created: self.start_time,
            finished: self.finished_at,
        }
    }
}

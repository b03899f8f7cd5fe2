//! The rows with their index by key, the pauses and the documents.

use std::collections::BTreeMap;

use crate::ledger::pauses::check_room;
use crate::ledger::row::Row;
use crate::ledger::{
    AdoptionRequest, Change, Changed, Collection, Document, LedgerError, NewTask, PauseAnswer,
};
use crate::task::{Pause, PauseKind, Scope, TaskKey, UnixMs};

#[derive(Debug, Default)]
pub(super) struct Table {
    pub(super) rows: BTreeMap<u64, Row>,
    by_key: BTreeMap<TaskKey, u64>,
    /// The id of the latest row. The id of a deleted row is not given again.
    latest: u64,
    /// Oldest first.
    pub(super) pauses: Vec<Pause>,
    pub(super) documents: BTreeMap<(Collection, String), Document>,
}

impl Table {
    pub(super) fn of_key(&mut self, key: &TaskKey) -> Option<&mut Row> {
        let id = self.by_key.get(key)?;
        self.rows.get_mut(id)
    }

    pub(super) fn create(&mut self, task: &NewTask, now: UnixMs) -> &Row {
        let next = self.latest + 1;
        let id = *self.by_key.entry(task.key.clone()).or_insert(next);
        self.latest = self.latest.max(id);
        let row = self
            .rows
            .entry(id)
            .and_modify(|row| row.create_over(task, now));
        row.or_insert_with(|| Row::new(id, task, now))
    }

    /// Makes a change of [`Producer::change`](crate::ledger::Producer::change).
    pub(super) fn change(&mut self, key: &TaskKey, change: Change, now: UnixMs) -> Changed {
        match (self.of_key(key), change) {
            (Some(row), change) => row.change(change, now),
            (None, Change::Write(task)) => Changed::Armed(self.create(&task, now).arming()),
            (None, Change::Keep | Change::Move(_) | Change::Cancel) => Changed::Kept,
        }
    }

    /// Writes the row of an armed key that has none.
    pub(super) fn adopt(&mut self, found: &AdoptionRequest) -> &Row {
        self.latest += 1;
        self.by_key.insert(found.key.clone(), self.latest);
        let row = self.rows.entry(self.latest);
        row.or_insert(Row::adopted(self.latest, found))
    }

    /// Writes a whole row over that of its key, or as a new one. `row` gets the id.
    pub(super) fn put(&mut self, row: impl FnOnce(u64) -> Row, key: &TaskKey) {
        let next = self.latest + 1;
        let id = *self.by_key.entry(key.clone()).or_insert(next);
        self.latest = self.latest.max(id);
        self.rows.insert(id, row(id));
    }

    /// Deletes a row. Returns false if there is none.
    pub(super) fn remove(&mut self, id: u64) -> bool {
        let row = self.rows.remove(&id);
        row.is_some_and(|row| self.by_key.remove(&row.key).is_some())
    }

    pub(super) fn pause_of(&self, kind: PauseKind, scope: &Scope) -> Option<Pause> {
        let mut pauses = self.pauses.iter();
        pauses
            .find(|pause| pause.kind == kind && pause.scope == *scope)
            .cloned()
    }

    pub(super) fn check_room_for(&self, pause: &Pause) -> Result<(), LedgerError> {
        match self.pause_of(pause.kind, &pause.scope) {
            Some(_) => Ok(()),
            None => check_room(self.pauses.len()),
        }
    }

    pub(super) fn stand(&mut self, pause: Pause) -> PauseAnswer {
        match self.pause_of(pause.kind, &pause.scope) {
            Some(pause) => PauseAnswer {
                pause,
                already: true,
            },
            None => {
                self.pauses.push(pause.clone());
                PauseAnswer {
                    pause,
                    already: false,
                }
            }
        }
    }
}

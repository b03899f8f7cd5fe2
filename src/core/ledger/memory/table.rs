//! The rows with their indexes, the pauses and the documents.

use std::borrow::Cow;
use std::collections::{BTreeMap, BTreeSet};
use std::iter;
use std::ops::ControlFlow;
use std::ops::{Bound, DerefMut};

use crate::ledger::row::{Row, Status};
use crate::ledger::rows::store::{
    ArchiveStore, At, Columns, Count, Direction, DueRange, END, InArchive, Parts, Range, Result,
    ReverseRange, RowStore, ScanRange, Scanned, Stored,
};
use crate::ledger::transfer::MovePlace;
use crate::ledger::{Collection, Document, DuePlace, ListCursor, MethodTag};
use crate::task::{Pause, TaskKey, UnixMs};

#[derive(Debug, Clone, Default)]
pub(super) struct Table {
    rows: BTreeMap<u64, Row>,
    by_key: BTreeSet<(String, u64)>,
    by_due: BTreeSet<MovePlace>,
    /// The id of the latest row. The id of a deleted row is not given again.
    latest: u64,
    /// Oldest first.
    pub(super) pauses: Vec<Pause>,
    pub(super) documents: BTreeMap<(Collection, String), Document>,
    /// Archived rows. It has no archive of its own.
    archive: Option<Box<Table>>,
}

impl Table {
    /// Returns the places of a range by due time, in its direction.
    fn places(&self, range: DueRange) -> Box<dyn Iterator<Item = &MovePlace> + '_> {
        let DueRange {
            status,
            deleted,
            direction,
            from: (due_at, row),
            to,
        } = range;
        let place = |due_at, row| MovePlace {
            status,
            deleted,
            due_at,
            row,
        };
        let (from, to) = (place(due_at, row), place(to, u64::MAX));
        match direction {
            Direction::Up if from < to => {
                let range = (Bound::Excluded(from), Bound::Included(to));
                Box::new(self.by_due.range(range))
            }
            Direction::Down if to < from => {
                let range = (Bound::Excluded(to), Bound::Excluded(from));
                Box::new(self.by_due.range(range).rev())
            }
            Direction::Up | Direction::Down => Box::new(iter::empty()),
        }
    }

    /// Returns the rows of a range by due time, in its direction.
    fn due(&self, range: DueRange) -> impl Iterator<Item = &Row> {
        self.places(range).map(|place| &self.rows[&place.row])
    }

    /// Returns the rows of a range, in its order.
    fn range(&self, range: &Range) -> Box<dyn Iterator<Item = &Row> + '_> {
        let after = |id: u64| self.rows.range((Bound::Excluded(id), Bound::Unbounded));
        let after = move |id| after(id).map(|(_, row)| row);
        match range.clone() {
            Range::All { after: id } => Box::new(after(id)),
            Range::Tagged { tag, after: id } => {
                Box::new(after(id).filter(move |row| row.contents.tag.as_ref() == Some(&tag)))
            }
            Range::Recurring { after: id } => {
                Box::new(after(id).filter(|row| row.recurrence.is_some()))
            }
            Range::Keys {
                from,
                before,
                after,
            } => {
                let keys = self.by_key.range((from, 0)..);
                let keys = keys.take_while(move |(key, _)| *key < before);
                let keys = keys.filter(move |place| **place > after);
                Box::new(keys.map(|(_, id)| &self.rows[id]))
            }
            Range::Due(range) => Box::new(self.due(range)),
        }
    }

    fn find(&self, at: At<'_>) -> Option<&Row> {
        match at {
            At::Row(id) => self.rows.get(&id),
            At::Key(key) => self.rows.get(&self.latest_of(key)?),
        }
    }

    /// Returns the id of the latest row of a key.
    fn latest_of(&self, key: &TaskKey) -> Option<u64> {
        let key = |id| (key.to_string(), id);
        let latest = self.by_key.range(key(0)..=key(u64::MAX)).next_back()?;
        Some(latest.1)
    }

    fn put(&mut self, row: Row) {
        self.by_due.insert(row.place());
        self.by_key.insert((row.key.to_string(), row.id));
        self.rows.insert(row.id, row);
    }

    fn delete(&mut self, id: u64) {
        if let Some(row) = self.rows.remove(&id) {
            self.by_due.remove(&row.place());
            self.by_key.remove(&(row.key.to_string(), id));
        }
    }
}

/// A table while a verb has it for itself.
pub(super) struct MemoryStore<T> {
    pub table: T,
    /// The ledger's time, for all that the verb decides.
    pub now: UnixMs,
}

impl<T: DerefMut<Target = Table>> RowStore for MemoryStore<T> {
    fn now(&self) -> UnixMs {
        self.now
    }

    fn row(&mut self, at: At<'_>, parts: Parts) -> Result<Option<Stored>> {
        Ok(self.table.find(at).map(|row| stored(row, parts)))
    }

    fn insert(&mut self, row: &Row) -> Result<Option<u64>> {
        if self.table.latest_of(&row.key).is_some() {
            return Ok(None);
        }
        self.table.latest += 1;
        let id = self.table.latest;
        self.table.put(Row { id, ..row.clone() });
        Ok(Some(id))
    }

    fn save(&mut self, row: &Row, columns: Columns) -> Result<()> {
        let Table { rows, by_due, .. } = &mut *self.table;
        let Some(stored) = rows.get_mut(&row.id) else {
            return Ok(());
        };
        let before = stored.place();
        match columns {
            Columns::Run => {
                stored.owner = row.owner;
                stored.daemon.clone_from(&row.daemon);
                stored.lease_until = row.lease_until;
                stored.run_end = row.run_end;
                stored.retry_at = row.retry_at;
                stored.attempt = row.attempt;
                stored.crashes = row.crashes;
                stored.progress.clone_from(&row.progress);
                stored.claimed_at = row.claimed_at;
            }
            Columns::End => {
                stored.status = row.status;
                stored.lease_until = row.lease_until;
                stored.finished_at = row.finished_at;
                stored.last_error.clone_from(&row.last_error);
                stored.result.clone_from(&row.result);
            }
            Columns::Brief => {
                let (payload, result) = (stored.contents.payload.take(), stored.result.take());
                *stored = Row {
                    result,
                    progress: stored.progress.take(),
                    ..row.clone()
                };
                stored.contents.payload = payload;
            }
            Columns::All => {
                *stored = Row {
                    progress: stored.progress.take(),
                    ..row.clone()
                };
            }
        }
        let after = stored.place();
        if after != before {
            by_due.remove(&before);
            by_due.insert(after);
        }
        Ok(())
    }

    fn delete(&mut self, id: u64) -> Result<()> {
        self.table.delete(id);
        Ok(())
    }

    fn walk(
        &mut self,
        range: &Range,
        parts: Parts,
        limit: usize,
        visit: &mut dyn FnMut(Stored) -> ControlFlow<()>,
    ) -> Result<ControlFlow<()>> {
        let rows = self.table.range(range);
        Ok(each(rows, limit, |row| visit(stored(row, parts))))
    }

    fn scan(
        &mut self,
        range: &ScanRange,
        limit: usize,
        visit: &mut dyn FnMut(&Scanned<'_>) -> ControlFlow<()>,
    ) -> Result<ControlFlow<()>> {
        let table = &*self.table;
        let visit = |row: &Row| visit(&scanned(row));
        Ok(match range {
            ScanRange::Due(range) => each(table.due(*range), limit, visit),
            ScanRange::Method { method, from, to } => {
                let pending = table.due(DueRange {
                    from: *from,
                    to: *to,
                    ..pending()
                });
                let rows = pending.filter(|row| row.key.class_method() == method.0);
                each(rows, limit, visit)
            }
            ScanRange::Rows(ids) => {
                let rows = ids.iter().filter_map(|id| table.rows.get(id));
                each(rows, limit, visit)
            }
        })
    }

    fn places(
        &mut self,
        range: DueRange,
        limit: usize,
        visit: &mut dyn FnMut(DuePlace) -> ControlFlow<()>,
    ) -> Result<ControlFlow<()>> {
        let places = self.table.places(range);
        Ok(each(places, limit, |place| {
            visit((place.due_at, place.row))
        }))
    }

    fn ids_before(&mut self, range: &ReverseRange, limit: usize) -> Result<Vec<(u64, ListCursor)>> {
        let table = &*self.table;
        Ok(match range {
            ReverseRange::Tagged { tag, before } => {
                let rows = table.rows.range(..*before).rev();
                let rows = rows.filter(|(_, row)| row.contents.tag.as_ref() == Some(tag));
                let ids = rows.map(|(id, _)| (*id, ListCursor::Row(*id)));
                ids.take(limit).collect()
            }
            ReverseRange::Keys { from, before } => {
                let keys = table.by_key.range(..(before.clone(), 0)).rev();
                let keys = keys.take_while(|(key, _)| key >= from);
                let ids = keys.map(|(key, id)| (*id, ListCursor::Key(key.clone())));
                ids.take(limit).collect()
            }
        })
    }

    fn count(&mut self, count: Count) -> Result<u64> {
        let Count {
            status,
            deleted,
            before,
            limit,
        } = count;
        let deleted = deleted.map_or(vec![false, true], |deleted| vec![deleted]);
        let places = deleted.into_iter().flat_map(|deleted| {
            self.table.places(DueRange {
                to: UnixMs(before.0.saturating_sub(1)),
                ..DueRange::all(status, deleted)
            })
        });
        Ok(places
            .take(usize::try_from(limit).unwrap_or(usize::MAX))
            .count() as u64)
    }

    fn last_due(&mut self, status: u8, deleted: bool, behind: u64) -> Result<Option<DuePlace>> {
        let mut places = self.table.places(DueRange {
            direction: Direction::Down,
            from: END,
            to: UnixMs(i64::MIN),
            ..DueRange::all(status, deleted)
        });
        let place = places.nth(usize::try_from(behind).unwrap_or(usize::MAX));
        Ok(place.map(|place| (place.due_at, place.row)))
    }

    fn has_method_index(&mut self) -> bool {
        true
    }

    fn next_method(&mut self, after: &str) -> Result<Option<MethodTag>> {
        let methods = self.table.due(pending()).map(|row| row.key.class_method());
        let next = methods.filter(|method| *method > after).min();
        Ok(next.map(|method| MethodTag(method.to_owned())))
    }
}

impl<T: DerefMut<Target = Table>> ArchiveStore for MemoryStore<T> {
    fn archive(&mut self, id: u64) -> Result<()> {
        let table = &mut *self.table;
        if let Some(row) = table.rows.get(&id).cloned() {
            table.delete(id);
            let archive = table.archive.get_or_insert_default();
            archive.delete(id);
            archive.put(row);
        }
        Ok(())
    }

    fn in_archive(&mut self, act: InArchive<'_>) -> Result<()> {
        act(&mut MemoryStore {
            table: &mut **self.table.archive.get_or_insert_default(),
            now: self.now,
        })
    }
}

/// Visits what an iterator returns, `limit` times at most.
fn each<T>(
    mut items: impl Iterator<Item = T>,
    limit: usize,
    mut visit: impl FnMut(T) -> ControlFlow<()>,
) -> ControlFlow<()> {
    for _ in 0..limit {
        match items.next() {
            Some(item) => visit(item)?,
            None => return ControlFlow::Continue(()),
        }
    }
    ControlFlow::Break(())
}

/// All pending rows, earliest first.
fn pending() -> DueRange {
    DueRange::all(Status::Unprocessed.number(), false)
}

fn stored(row: &Row, parts: Parts) -> Stored {
    let bytes = |text: &Option<String>| text.as_ref().map_or(0, |text| text.len() as u64);
    let size = bytes(&row.contents.payload) + bytes(&row.result);
    let mut row = row.clone();
    if parts == Parts::Brief {
        (row.contents.payload, row.result) = (None, None);
    }
    Stored {
        row,
        malformed: None,
        bytes: size,
    }
}

fn scanned(row: &Row) -> Scanned<'_> {
    Scanned {
        id: row.id,
        due_at: row.due_at(),
        key: Cow::Borrowed(row.key.as_str()),
        task_key: Some(&row.key),
        end_time: row.end_time,
        lease_until: row.lease_until,
        owner: row.owner,
        daemon: Cow::Borrowed(&row.daemon),
        status: row.status.number(),
        deleted: row.deleted,
        run_end: row.run_end,
        retry_at: row.retry_at,
    }
}

//! The seam to a store of rows: what a verb needs inside one transaction.

use std::borrow::Cow;
use std::ops::ControlFlow;

use crate::ledger::row::{NEVER, Row};
use crate::ledger::{
    Collection, Document, DocumentRange, DuePlace, FoundLease, LedgerError, ListCursor,
    MalformedRow, MethodTag, Owner, Upcoming,
};
use crate::task::{Arming, Pause, PauseKind, Scope, TaskKey, UnixMs};

pub type Result<T> = std::result::Result<T, LedgerError>;

/// Before every row.
pub const START: DuePlace = (UnixMs(0), 0);

/// After every row.
pub const END: DuePlace = (UnixMs(i64::MAX), u64::MAX);

/// Everything that a ledger stores, in one transaction.
pub trait Store: RowStore + ArchiveStore + PauseStore + DocumentStore {}

impl<S: RowStore + ArchiveStore + PauseStore + DocumentStore> Store for S {}

/// Rows of tasks, in one transaction.
///
/// A walk follows one index, in its order. It visits `limit` rows at most and ends where its visitor breaks, so that it
/// reads no more than its caller needs. It returns `Continue` if it has reached the end of its range before. Nothing can be
/// written during a walk.
pub trait RowStore {
    /// The ledger's time, for all that the verb decides.
    fn now(&self) -> UnixMs;

    /// Reads a row.
    fn row(&mut self, at: At<'_>, parts: Parts) -> Result<Option<Stored>>;

    /// Inserts the row of a new task, and returns its id; `None` if the key has a row.
    ///
    /// Columns that a new task leaves empty need not be written. [`save`](Self::save) writes them.
    fn insert(&mut self, row: &Row) -> Result<Option<u64>>;

    /// Writes these columns of a row.
    fn save(&mut self, row: &Row, columns: Columns) -> Result<()>;

    /// Deletes a row. Its id is not given to another one.
    fn delete(&mut self, id: u64) -> Result<()>;

    /// Visits rows.
    fn walk(
        &mut self,
        range: &Range,
        parts: Parts,
        limit: usize,
        visit: &mut dyn FnMut(Stored) -> ControlFlow<()>,
    ) -> Result<ControlFlow<()>>;

    /// Visits what scans need of rows.
    fn scan(
        &mut self,
        range: &ScanRange,
        limit: usize,
        visit: &mut dyn FnMut(&Scanned<'_>) -> ControlFlow<()>,
    ) -> Result<ControlFlow<()>>;

    /// Visits the places of rows, which are in the index: no row is read.
    fn places(
        &mut self,
        range: DueRange,
        limit: usize,
        visit: &mut dyn FnMut(DuePlace) -> ControlFlow<()>,
    ) -> Result<ControlFlow<()>>;

    /// Returns ids with their places, latest first and at most `limit`, from the index: no row is read.
    fn ids_before(&mut self, range: &ReverseRange, limit: usize) -> Result<Vec<(u64, ListCursor)>>;

    /// Counts rows of a status that are due before a time, up to `limit`.
    ///
    /// A verb of the store, since a database counts entries of its index several times faster than it returns them.
    fn count(&mut self, count: Count) -> Result<u64>;

    /// Returns the place of the row that has `behind` rows of its `status` and `sts` behind it, by due time.
    ///
    /// A verb of the store, as [`count`](Self::count) is.
    fn last_due(&mut self, status: u8, deleted: bool, behind: u64) -> Result<Option<DuePlace>>;

    /// True if there is an index by class and method. A file has none until `lapsed migrate` adds it.
    fn has_method_index(&mut self) -> bool;

    /// Returns the first class and method of pending rows after `after`.
    ///
    /// A verb of the store, since it skips the rows in between: it seeks one entry of the index.
    fn next_method(&mut self, after: &str) -> Result<Option<MethodTag>>;
}

/// What [`ArchiveStore::in_archive`] runs on the rows of the archive.
pub type InArchive<'a> = &'a mut dyn FnMut(&mut dyn RowStore) -> Result<()>;

/// The archive of finished rows, in one transaction.
pub trait ArchiveStore {
    /// Moves a row to the archive, where it replaces a row with its id.
    fn archive(&mut self, id: u64) -> Result<()>;

    /// Runs `act` on the rows of the archive, of which a key may have several. Then `At::Key` finds the latest.
    fn in_archive(&mut self, act: InArchive<'_>) -> Result<()>;
}

/// Pauses and holds, in one transaction.
pub trait PauseStore {
    /// Returns all pauses, oldest first, without those of a kind or scope that this version does not know.
    fn pauses(&mut self) -> Result<Vec<Pause>>;

    /// Inserts a pause. There is none of its kind and scope.
    fn insert_pause(&mut self, pause: &Pause) -> Result<()>;

    /// Deletes a pause, if there is one.
    fn delete_pause(&mut self, kind: PauseKind, scope: &Scope) -> Result<()>;

    /// Deletes everything but pauses: holds and releases.
    fn delete_holds(&mut self) -> Result<()>;
}

/// Documents, in one transaction.
pub trait DocumentStore {
    /// Reads a document.
    fn document(&mut self, collection: Collection, name: &str) -> Result<Option<Document>>;

    /// Inserts a document. There is none of its name.
    fn insert_document(&mut self, collection: Collection, document: &Document) -> Result<()>;

    /// Replaces the body of a document. Returns false if there is none.
    fn replace_document(&mut self, collection: Collection, name: &str, body: &str) -> Result<bool>;

    /// Deletes a document. Returns false if there is none.
    fn delete_document(&mut self, collection: Collection, name: &str) -> Result<bool>;

    /// Reads a page of documents, newest first.
    fn documents(&mut self, collection: Collection, range: &DocumentRange)
    -> Result<Vec<Document>>;

    /// Deletes up to `limit` documents that were inserted before a time, oldest first. Returns how many.
    fn delete_documents(
        &mut self,
        collection: Collection,
        before: UnixMs,
        limit: u32,
    ) -> Result<u64>;
}

/// How a row is found.
#[derive(Debug, Clone, Copy)]
pub enum At<'a> {
    /// By its id.
    Row(u64),
    /// By its key.
    Key(&'a TaskKey),
}

/// What is read of a row.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Parts {
    /// Every column.
    Whole,
    /// Neither payload nor result, which may be large.
    Brief,
}

impl Parts {
    pub fn of(is_brief: bool) -> Self {
        match is_brief {
            true => Self::Brief,
            false => Self::Whole,
        }
    }
}

/// What is written of a row.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Columns {
    /// What a claim, a renewal or the end of a lease changes.
    Run,
    /// What a completion changes: `status`, `lease_until`, `finished_at`, `last_error`, `result`.
    End,
    /// Everything but id, key, progress, payload and result.
    Brief,
    /// Everything but id, key and progress, which is of a run.
    All,
}

impl Columns {
    /// Returns what has to be read so that these columns can be written.
    pub fn parts(self) -> Parts {
        match self {
            Self::Run | Self::Brief => Parts::Brief,
            Self::End | Self::All => Parts::Whole,
        }
    }
}

/// A row as it was read.
#[derive(Debug)]
pub struct Stored {
    pub row: Row,
    /// The key, if it is not a task key. Nothing can run such a row.
    pub malformed: Option<String>,
    /// Bytes of its payload and result. Known of a row that was found by id or key.
    pub bytes: u64,
}

impl Stored {
    /// Returns the key; `None` if it is not a task key.
    pub fn key(&self) -> Option<TaskKey> {
        match self.malformed {
            None => Some(self.row.key.clone()),
            Some(_) => None,
        }
    }

    /// Returns the key as it is stored.
    pub fn key_text(&self) -> &str {
        match &self.malformed {
            None => self.row.key.as_str(),
            Some(key) => key,
        }
    }

    /// Returns the row for a list, if its key is not a task key.
    pub fn as_malformed(&self, now: UnixMs) -> Option<MalformedRow> {
        Some(MalformedRow {
            id: self.row.arming().to_string(),
            key: self.malformed.clone()?,
            state: self.row.state(now),
            due_at: self.row.due_at(),
        })
    }
}

/// What scans need of a row.
#[derive(Debug)]
pub struct Scanned<'a> {
    pub id: u64,
    pub due_at: UnixMs,
    /// As it is stored: it may be no task key.
    pub key: Cow<'a, str>,
    /// The same, if the store has it without parsing it.
    pub task_key: Option<&'a TaskKey>,
    pub end_time: UnixMs,
    pub lease_until: UnixMs,
    pub owner: Option<Owner>,
    pub daemon: Cow<'a, str>,
    pub status: u8,
    pub deleted: bool,
    pub run_end: UnixMs,
    pub retry_at: UnixMs,
}

impl Scanned<'_> {
    pub fn is_leased(&self, now: UnixMs) -> bool {
        self.lease_until >= now
    }

    pub fn waits_for_retry(&self, now: UnixMs) -> bool {
        self.run_end == self.end_time && self.retry_at > now
    }

    pub fn place(&self) -> DuePlace {
        (self.due_at, self.id)
    }

    pub fn task_key(&self) -> Option<TaskKey> {
        match self.task_key {
            Some(key) => Some(key.clone()),
            None => TaskKey::parse(&self.key).ok(),
        }
    }

    /// Returns the row as scans return it; `None` if its key is not a task key.
    pub fn upcoming(&self) -> Option<Upcoming> {
        Some(Upcoming {
            key: self.task_key()?,
            arming: Arming {
                row: self.id,
                due: self.end_time,
            },
            due_at: self.due_at,
        })
    }

    /// Returns the lease of the row. It may have expired.
    pub fn lease(&self) -> Option<FoundLease> {
        let owner = self.owner.filter(|_| self.lease_until > NEVER)?;
        Some(FoundLease {
            row: self.id,
            owner,
            daemon: self.daemon.clone().into_owned(),
            until: self.lease_until,
        })
    }
}

/// A range of rows, in the order of an index.
#[derive(Debug, Clone)]
pub enum Range {
    /// All rows after an id, by id.
    All { after: u64 },
    /// Those with a tag after an id, by id.
    Tagged { tag: String, after: u64 },
    /// Those with a recurrence after an id, by id. Without an index for it, all rows after the id.
    Recurring { after: u64 },
    /// By key, and by id where a key has several rows: keys from one on, before another, after a row of a third.
    Keys {
        from: String,
        before: String,
        after: (String, u64),
    },
    /// By due time.
    Due(DueRange),
}

/// A range of rows to scan.
#[derive(Debug, Clone)]
pub enum ScanRange {
    /// By due time.
    Due(DueRange),
    /// Pending rows of one class and method by due time: after a place, up to a due time.
    Method {
        method: MethodTag,
        from: DuePlace,
        to: UnixMs,
    },
    /// These rows, in this order.
    Rows(Vec<u64>),
}

/// A range of the rows of one `status` and `sts`, by due time and id.
#[derive(Debug, Clone, Copy)]
pub struct DueRange {
    pub status: u8,
    pub deleted: bool,
    pub direction: Direction,
    /// Where to begin. This place is not in the range.
    pub from: DuePlace,
    /// Where to end: up to and with this due time, or down to the one after it.
    pub to: UnixMs,
}

impl DueRange {
    /// All rows of one `status` and `sts`, earliest first.
    pub fn all(status: u8, deleted: bool) -> Self {
        Self {
            status,
            deleted,
            direction: Direction::Up,
            from: START,
            to: END.0,
        }
    }
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Direction {
    Up,
    Down,
}

/// A range of an index that is read backwards, from its end.
#[derive(Debug, Clone)]
pub enum ReverseRange {
    /// Rows with a tag, before an id.
    Tagged { tag: String, before: u64 },
    /// Keys from one on, before another.
    Keys { from: String, before: String },
}

/// Which rows are counted.
#[derive(Debug, Clone, Copy)]
pub struct Count {
    pub status: u8,
    /// `None`: deleted or not.
    pub deleted: Option<bool>,
    /// Due before this time.
    pub before: UnixMs,
    /// The count stops here.
    pub limit: u64,
}

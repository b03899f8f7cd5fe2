//! The rows of a file, in one transaction of a connection.

use std::ops::ControlFlow::{self, Break, Continue};

use rusqlite::{CachedStatement, Connection, OptionalExtension as _, Row as Found};

use super::file::DatabaseFile;
use super::queries::Queries;
use super::rows::{self, id, ms, row_id};
use lapsed_core::ledger::row::Row;
use lapsed_core::ledger::rows::store::{
    ArchiveStore, At, Columns, Count, Direction, DueRange, InArchive, Parts, Range, ReverseRange,
    RowStore, ScanRange, Scanned, Stored,
};
use lapsed_core::ledger::{DuePlace, LedgerError, ListCursor, MethodTag};
use lapsed_core::task::UnixMs;

/// A connection inside a transaction, with the statements of its table.
pub(super) struct SqliteStore<'a> {
    file: &'a DatabaseFile,
    session: Session<'a>,
}

impl<'a> SqliteStore<'a> {
    /// `now` is the ledger's time, for all that a verb decides.
    pub fn new(
        file: &'a DatabaseFile,
        connection: &'a Connection,
        queries: &'a Queries,
        now: UnixMs,
    ) -> Self {
        Self {
            file,
            session: Session {
                connection,
                queries,
                now,
                kept: Default::default(),
            },
        }
    }

    /// Runs statements.
    pub fn run<T>(
        &mut self,
        statements: impl FnOnce(&mut Session<'a>) -> rusqlite::Result<T>,
    ) -> Result<T, LedgerError> {
        statements(&mut self.session).map_err(|source| self.file.error(source))
    }
}

pub(super) struct Session<'a> {
    pub connection: &'a Connection,
    pub queries: &'a Queries,
    now: UnixMs,
    kept: [Option<CachedStatement<'a>>; Kept::COUNT],
}

/// Statements about one row, which a verb runs for each of its rows: they stay prepared until its end.
#[derive(Debug, Clone, Copy)]
enum Kept {
    RowById,
    RowByKey,
    Insert,
    SaveRun,
    SaveEnd,
    SaveBrief,
    SaveAll,
    Delete,
    Archive,
    ScanRow,
}

impl Kept {
    const COUNT: usize = Self::ScanRow as usize + 1;
}

impl<'a> Session<'a> {
    /// Returns a prepared statement.
    pub fn prepare(&self, text: &str) -> rusqlite::Result<CachedStatement<'a>> {
        self.connection.prepare_cached(text)
    }

    fn kept(&mut self, which: Kept) -> rusqlite::Result<&mut CachedStatement<'a>> {
        let kept = &mut self.kept[which as usize];
        let statement = match kept.take() {
            Some(statement) => statement,
            None => self.connection.prepare_cached(match which {
                Kept::RowById => &self.queries.row_by_id,
                Kept::RowByKey => &self.queries.row_by_key,
                Kept::Insert => &self.queries.insert,
                Kept::SaveRun => &self.queries.save_run,
                Kept::SaveEnd => &self.queries.save_end,
                Kept::SaveBrief => &self.queries.save_brief,
                Kept::SaveAll => &self.queries.save,
                Kept::Delete => &self.queries.delete,
                Kept::Archive => &self.queries.archive,
                Kept::ScanRow => &self.queries.scan_row,
            })?,
        };
        Ok(kept.insert(statement))
    }
}

impl RowStore for SqliteStore<'_> {
    fn now(&self) -> UnixMs {
        self.session.now
    }

    fn row(&mut self, at: At<'_>, parts: Parts) -> Result<Option<Stored>, LedgerError> {
        self.run(|session| match at {
            At::Row(row) => rows::find(session.kept(Kept::RowById)?, [id(row)], parts),
            At::Key(key) => rows::find(session.kept(Kept::RowByKey)?, [key.as_str()], parts),
        })
    }

    fn insert(&mut self, row: &Row) -> Result<Option<u64>, LedgerError> {
        self.run(|session| {
            let inserted = rows::insert(session.kept(Kept::Insert)?, row)?;
            let id = session.connection.last_insert_rowid();
            Ok(inserted.then(|| u64::try_from(id).unwrap_or_default()))
        })
    }

    fn save(&mut self, row: &Row, columns: Columns) -> Result<(), LedgerError> {
        self.run(|session| match columns {
            Columns::Run => rows::save_run(session.kept(Kept::SaveRun)?, row),
            Columns::End => rows::save_end(session.kept(Kept::SaveEnd)?, row),
            Columns::Brief => rows::save_brief(session.kept(Kept::SaveBrief)?, row),
            Columns::All => rows::save(session.kept(Kept::SaveAll)?, row),
        })
    }

    fn delete(&mut self, row: u64) -> Result<(), LedgerError> {
        self.run(|session| session.kept(Kept::Delete)?.execute([id(row)]).map(|_| ()))
    }

    fn walk(
        &mut self,
        range: &Range,
        parts: Parts,
        limit: usize,
        visit: &mut dyn FnMut(Stored) -> ControlFlow<()>,
    ) -> Result<ControlFlow<()>, LedgerError> {
        self.run(|session| {
            let queries = session.queries;
            let mut statement = match range {
                Range::All { .. } => session.prepare(&queries.list_by_id),
                Range::Tagged { .. } => session.prepare(&queries.list_by_tag),
                Range::Recurring { .. } => {
                    // Until `lapsed migrate` has added the index.
                    let by_index = session.prepare(&queries.list_recurring);
                    by_index.or_else(|_| session.prepare(&queries.list_by_id))
                }
                Range::Keys { .. } => session.prepare(&queries.list_by_key),
                Range::Due(due) => session.prepare(match due.direction {
                    Direction::Up => &queries.list_by_due,
                    Direction::Down => &queries.list_by_due_down,
                }),
            }?;
            let found = match range {
                Range::All { after } | Range::Recurring { after } => statement.query([id(*after)]),
                Range::Tagged { tag, after } => statement.query((tag, id(*after))),
                Range::Keys {
                    from,
                    before,
                    after,
                } => statement.query((from, before, &after.0, id(after.1))),
                Range::Due(due) => statement.query(values(*due)),
            };
            each(found?, limit, |row| Ok(visit(rows::read(row, parts)?)))
        })
    }

    fn scan(
        &mut self,
        range: &ScanRange,
        limit: usize,
        visit: &mut dyn FnMut(&Scanned<'_>) -> ControlFlow<()>,
    ) -> Result<ControlFlow<()>, LedgerError> {
        self.run(|session| {
            let queries = session.queries;
            let mut visit = |row: &Found<'_>| Ok(visit(&rows::scanned(row)?));
            match range {
                ScanRange::Due(range) => {
                    let mut statement = session.prepare(match range.direction {
                        Direction::Up => &queries.scan_up,
                        Direction::Down => &queries.scan_down,
                    })?;
                    each(statement.query(values(*range))?, limit, visit)
                }
                ScanRange::Method {
                    method: MethodTag(method),
                    from: (due, row),
                    to,
                } => {
                    let mut statement = session.prepare(&queries.scan_method)?;
                    let found = statement.query((method, due.0, id(*row), to.0))?;
                    each(found, limit, visit)
                }
                ScanRange::Rows(rows) => {
                    let statement = session.kept(Kept::ScanRow)?;
                    for row in rows.iter().take(limit) {
                        if let Some(row) = statement.query([id(*row)])?.next()?
                            && visit(row)?.is_break()
                        {
                            return Ok(Break(()));
                        }
                    }
                    Ok(Continue(()))
                }
            }
        })
    }

    fn places(
        &mut self,
        range: DueRange,
        limit: usize,
        visit: &mut dyn FnMut(DuePlace) -> ControlFlow<()>,
    ) -> Result<ControlFlow<()>, LedgerError> {
        self.run(|session| {
            let mut statement = session.prepare(match range.direction {
                Direction::Up => &session.queries.places_up,
                Direction::Down => &session.queries.places_down,
            })?;
            let found = statement.query(values(range))?;
            each(found, limit, |row| Ok(visit(place(row)?)))
        })
    }

    fn ids_before(
        &mut self,
        range: &ReverseRange,
        limit: usize,
    ) -> Result<Vec<(u64, ListCursor)>, LedgerError> {
        self.run(|session| {
            let queries = session.queries;
            let limit = i64::try_from(limit).unwrap_or(i64::MAX);
            let mut ids = Vec::new();
            match range {
                ReverseRange::Tagged { tag, before } => {
                    let mut walk = session.prepare(&queries.ids_of_tag)?;
                    let mut found = walk.query((tag, id(*before), limit))?;
                    while let Some(row) = found.next()? {
                        let row = row_id(row, 0)?;
                        ids.push((row, ListCursor::Row(row)));
                    }
                }
                ReverseRange::Keys { from, before } => {
                    let mut walk = session.prepare(&queries.ids_of_keys)?;
                    let mut found = walk.query((from, before, limit))?;
                    while let Some(row) = found.next()? {
                        let key = rows::text(row, 1)?.unwrap_or_default().into_owned();
                        ids.push((row_id(row, 0)?, ListCursor::Key(key)));
                    }
                }
            }
            Ok(ids)
        })
    }

    fn count(&mut self, count: Count) -> Result<u64, LedgerError> {
        let Count {
            status,
            deleted,
            before,
            limit,
        } = count;
        self.run(|session| {
            let count = |found: &Found<'_>| row_id(found, 0);
            match deleted {
                None => session
                    .prepare(&session.queries.count_status)?
                    .query_row((status, id(limit)), count),
                Some(deleted) => session
                    .prepare(&session.queries.count_due)?
                    .query_row((status, deleted, before.0, id(limit)), count),
            }
        })
    }

    fn last_due(
        &mut self,
        status: u8,
        deleted: bool,
        behind: u64,
    ) -> Result<Option<DuePlace>, LedgerError> {
        self.run(|session| {
            let mut find = session.prepare(&session.queries.last_due)?;
            find.query_row((status, deleted, id(behind)), place)
                .optional()
        })
    }

    fn has_method_index(&mut self) -> bool {
        let session = &self.session;
        session.prepare(&session.queries.next_method).is_ok()
    }

    fn next_method(&mut self, after: &str) -> Result<Option<MethodTag>, LedgerError> {
        self.run(|session| {
            let mut next = session.prepare(&session.queries.next_method)?;
            let method = next.query_row([after], |row| row.get(0)).optional()?;
            Ok(method.map(MethodTag))
        })
    }
}

impl ArchiveStore for SqliteStore<'_> {
    fn archive(&mut self, row: u64) -> Result<(), LedgerError> {
        self.run(|session| {
            session.kept(Kept::Archive)?.execute([id(row)])?;
            session.kept(Kept::Delete)?.execute([id(row)]).map(|_| ())
        })
    }

    fn in_archive(&mut self, act: InArchive<'_>) -> Result<(), LedgerError> {
        let Session {
            connection,
            queries,
            now,
            kept: _,
        } = &self.session;
        let queries = queries.of_archive.as_deref();
        let queries = queries.expect("an archive has no archive, and nothing asks it for one");
        let mut archive = SqliteStore::new(self.file, connection, queries, *now);
        archive.run(|session| session.prepare(&queries.row_by_id).map(|_| ()))?;
        act(&mut archive)
    }
}

/// Visits the rows that a statement finds, `limit` of them at most.
fn each(
    mut found: rusqlite::Rows<'_>,
    limit: usize,
    mut visit: impl FnMut(&Found<'_>) -> rusqlite::Result<ControlFlow<()>>,
) -> rusqlite::Result<ControlFlow<()>> {
    for _ in 0..limit {
        let Some(row) = found.next()? else {
            return Ok(Continue(()));
        };
        if visit(row)?.is_break() {
            break;
        }
    }
    Ok(Break(()))
}

fn place(found: &Found<'_>) -> rusqlite::Result<DuePlace> {
    Ok((ms(found, 1)?, row_id(found, 0)?))
}

/// Returns the values of a statement about a range of due times.
fn values(range: DueRange) -> (u8, bool, i64, i64, i64) {
    let (due, row) = range.from;
    (range.status, range.deleted, due.0, id(row), range.to.0)
}

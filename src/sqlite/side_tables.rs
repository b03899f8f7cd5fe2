//! The tables beside that of the rows: pauses and documents.

use rusqlite::{OptionalExtension as _, Result, Row as Found};

use super::rows::{ms, optional, text};
use super::store::SqliteStore;
use lapsed_core::ledger::pauses::kind_and_scope;
use lapsed_core::ledger::rows::store::{DocumentStore, PauseStore};
use lapsed_core::ledger::{Collection, Document, DocumentRange, LedgerError};
use lapsed_core::task::{Pause, PauseKind, Scope, UnixMs};

impl PauseStore for SqliteStore<'_> {
    fn pauses(&mut self) -> Result<Vec<Pause>, LedgerError> {
        self.run(|session| {
            let mut statement = session.prepare(&session.queries.pauses)?;
            let mut found = statement.query([])?;
            let mut pauses = Vec::new();
            while let Some(row) = found.next()? {
                pauses.extend(pause(row)?);
            }
            Ok(pauses)
        })
    }

    fn insert_pause(&mut self, pause: &Pause) -> Result<(), LedgerError> {
        self.run(|session| {
            let (class, method) = names(&pause.scope);
            session.prepare(&session.queries.insert_pause)?.execute((
                pause.kind.as_str(),
                class,
                method,
                pause.since.0,
                pause.due_before.map(|before| before.0),
                pause.until.map(|until| until.0),
                &pause.by,
                &pause.reason,
            ))?;
            Ok(())
        })
    }

    fn delete_pause(&mut self, kind: PauseKind, scope: &Scope) -> Result<(), LedgerError> {
        self.run(|session| {
            let (class, method) = names(scope);
            let mut delete = session.prepare(&session.queries.delete_pause)?;
            delete.execute((kind.as_str(), class, method))?;
            Ok(())
        })
    }

    fn delete_holds(&mut self) -> Result<(), LedgerError> {
        self.run(|session| {
            let mut delete = session.prepare(&session.queries.delete_holds)?;
            delete.execute([])?;
            Ok(())
        })
    }
}

impl DocumentStore for SqliteStore<'_> {
    fn document(
        &mut self,
        collection: Collection,
        name: &str,
    ) -> Result<Option<Document>, LedgerError> {
        self.run(|session| {
            let mut find = session.prepare(&session.queries.document)?;
            find.query_row((collection.as_str(), name), document)
                .optional()
        })
    }

    fn insert_document(
        &mut self,
        collection: Collection,
        document: &Document,
    ) -> Result<(), LedgerError> {
        let Document { name, at, body } = document;
        self.run(|session| {
            let mut insert = session.prepare(&session.queries.insert_document)?;
            insert.execute((collection.as_str(), name, at.0, body))?;
            Ok(())
        })
    }

    fn replace_document(
        &mut self,
        collection: Collection,
        name: &str,
        body: &str,
    ) -> Result<bool, LedgerError> {
        self.run(|session| {
            let mut replace = session.prepare(&session.queries.replace_document)?;
            Ok(replace.execute((collection.as_str(), name, body))? > 0)
        })
    }

    fn delete_document(&mut self, collection: Collection, name: &str) -> Result<bool, LedgerError> {
        self.run(|session| {
            let mut delete = session.prepare(&session.queries.delete_document)?;
            Ok(delete.execute((collection.as_str(), name))? > 0)
        })
    }

    fn documents(
        &mut self,
        collection: Collection,
        range: &DocumentRange,
    ) -> Result<Vec<Document>, LedgerError> {
        let DocumentRange {
            since,
            before,
            limit,
        } = range;
        self.run(|session| {
            let mut list = session.prepare(&session.queries.documents)?;
            let before = (before.at.0, &before.name);
            let values = (collection.as_str(), since.0, before.0, before.1, limit);
            list.query_map(values, document)?.collect()
        })
    }

    fn delete_documents(
        &mut self,
        collection: Collection,
        before: UnixMs,
        limit: u32,
    ) -> Result<u64, LedgerError> {
        self.run(|session| {
            let mut delete = session.prepare(&session.queries.delete_documents)?;
            let deleted = delete.execute((collection.as_str(), before.0, limit))?;
            Ok(deleted as u64)
        })
    }
}

/// Reads a pause; `None` for a kind or scope that this version does not know.
fn pause(found: &Found<'_>) -> Result<Option<Pause>> {
    let column = |at| Ok::<_, rusqlite::Error>(text(found, at)?.unwrap_or_default());
    let known = kind_and_scope(&column(0)?, &column(1)?, &column(2)?);
    let Some((kind, scope)) = known else {
        return Ok(None);
    };
    Ok(Some(Pause {
        kind,
        scope,
        since: ms(found, 3)?,
        due_before: optional(found, 4)?.map(UnixMs),
        until: optional(found, 5)?.map(UnixMs),
        by: column(6)?.into_owned(),
        reason: column(7)?.into_owned(),
    }))
}

/// Returns class and method of a scope as they are stored. Empty: all of them.
fn names(scope: &Scope) -> (&str, &str) {
    (
        scope.class_name().unwrap_or_default(),
        scope.method_name().unwrap_or_default(),
    )
}

fn document(found: &Found<'_>) -> Result<Document> {
    Ok(Document {
        name: found.get(0)?,
        at: ms(found, 1)?,
        body: found.get(2)?,
    })
}

//! Documents, in a table of their own.

use async_trait::async_trait;
use rusqlite::{OptionalExtension as _, Result, Row as Found};

use super::SqliteLedger;
use super::rows::ms;
use super::session::Session;
use crate::ledger::documents::{check_document, check_name};
use crate::ledger::{Collection, Document, DocumentRange, Documents, LedgerError};
use crate::task::UnixMs;

#[async_trait]
impl Documents for SqliteLedger {
    async fn insert_document(
        &self,
        collection: Collection,
        name: &str,
        body: &str,
    ) -> std::result::Result<Option<Document>, LedgerError> {
        check_document(name, body)?;
        let (name, body) = (name.to_owned(), body.to_owned());
        self.write(move |session| {
            let existing = find(session, collection, &name)?;
            if existing.is_none() {
                let mut insert = session.prepare(&session.queries.insert_document)?;
                insert.execute((collection.as_str(), &name, session.now.0, &body))?;
            }
            Ok(existing)
        })
        .await
    }

    async fn replace_document(
        &self,
        collection: Collection,
        name: &str,
        body: &str,
    ) -> std::result::Result<bool, LedgerError> {
        check_document(name, body)?;
        let (name, body) = (name.to_owned(), body.to_owned());
        self.write(move |session| {
            let mut replace = session.prepare(&session.queries.replace_document)?;
            Ok(replace.execute((collection.as_str(), name, body))? > 0)
        })
        .await
    }

    async fn delete_document(
        &self,
        collection: Collection,
        name: &str,
    ) -> std::result::Result<bool, LedgerError> {
        check_name(name)?;
        let name = name.to_owned();
        self.write(move |session| {
            let mut delete = session.prepare(&session.queries.delete_document)?;
            Ok(delete.execute((collection.as_str(), name))? > 0)
        })
        .await
    }

    async fn find_document(
        &self,
        collection: Collection,
        name: &str,
    ) -> std::result::Result<Option<Document>, LedgerError> {
        check_name(name)?;
        let name = name.to_owned();
        self.read(move |session| find(session, collection, &name))
            .await
    }

    async fn documents(
        &self,
        collection: Collection,
        range: &DocumentRange,
    ) -> std::result::Result<Vec<Document>, LedgerError> {
        let range = range.clone();
        self.read(move |session| {
            let mut list = session.prepare(&session.queries.documents)?;
            let before = (range.before.at.0, range.before.name);
            let values = (
                collection.as_str(),
                range.since.0,
                before.0,
                before.1,
                range.limit,
            );
            let found = list.query_map(values, read)?;
            found.collect()
        })
        .await
    }

    async fn delete_documents(
        &self,
        collection: Collection,
        before: UnixMs,
        limit: u32,
    ) -> std::result::Result<u64, LedgerError> {
        self.write(move |session| {
            let mut delete = session.prepare(&session.queries.delete_documents)?;
            let deleted = delete.execute((collection.as_str(), before.0, limit))?;
            Ok(deleted as u64)
        })
        .await
    }
}

fn find(session: &Session<'_>, collection: Collection, name: &str) -> Result<Option<Document>> {
    let mut find = session.prepare(&session.queries.document)?;
    find.query_row((collection.as_str(), name), read).optional()
}

fn read(found: &Found<'_>) -> Result<Document> {
    Ok(Document {
        name: found.get(0)?,
        at: ms(found, 1)?,
        body: found.get(2)?,
    })
}

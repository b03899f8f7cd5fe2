//! Documents in memory.

use async_trait::async_trait;

use super::MemoryLedger;
use crate::ledger::documents::{check_document, check_name};
use crate::ledger::{Collection, Document, DocumentRange, Documents, LedgerError};
use crate::task::UnixMs;

#[async_trait]
impl Documents for MemoryLedger {
    async fn insert_document(
        &self,
        collection: Collection,
        name: &str,
        body: &str,
    ) -> Result<Option<Document>, LedgerError> {
        check_document(name, body)?;
        let document = Document {
            name: name.to_owned(),
            at: self.clock.now(),
            body: body.to_owned(),
        };
        let mut table = self.table();
        let place = (collection, name.to_owned());
        let existing = table.documents.get(&place).cloned();
        if existing.is_none() {
            table.documents.insert(place, document);
        }
        Ok(existing)
    }

    async fn replace_document(
        &self,
        collection: Collection,
        name: &str,
        body: &str,
    ) -> Result<bool, LedgerError> {
        check_document(name, body)?;
        let mut table = self.table();
        let found = table.documents.get_mut(&(collection, name.to_owned()));
        Ok(found
            .map(|document| document.body = body.to_owned())
            .is_some())
    }

    async fn delete_document(
        &self,
        collection: Collection,
        name: &str,
    ) -> Result<bool, LedgerError> {
        check_name(name)?;
        let deleted = self
            .table()
            .documents
            .remove(&(collection, name.to_owned()));
        Ok(deleted.is_some())
    }

    async fn find_document(
        &self,
        collection: Collection,
        name: &str,
    ) -> Result<Option<Document>, LedgerError> {
        check_name(name)?;
        let table = self.table();
        let found = table.documents.get(&(collection, name.to_owned()));
        Ok(found.cloned())
    }

    async fn documents(
        &self,
        collection: Collection,
        range: &DocumentRange,
    ) -> Result<Vec<Document>, LedgerError> {
        let table = self.table();
        let of_collection = table
            .documents
            .iter()
            .filter(|((of, _), _)| *of == collection);
        let mut found: Vec<&Document> = of_collection
            .map(|(_, document)| document)
            .filter(|document| document.at >= range.since && document.place() < range.before)
            .collect();
        found.sort_by_key(|document| std::cmp::Reverse(document.place()));
        found.truncate(range.limit as usize);
        Ok(found.into_iter().cloned().collect())
    }

    async fn delete_documents(
        &self,
        collection: Collection,
        before: UnixMs,
        limit: u32,
    ) -> Result<u64, LedgerError> {
        let mut table = self.table();
        let mut old: Vec<(UnixMs, String)> = table
            .documents
            .iter()
            .filter(|((of, _), document)| *of == collection && document.at < before)
            .map(|(_, document)| (document.at, document.name.clone()))
            .collect();
        old.sort();
        old.truncate(limit as usize);
        for (_, name) in &old {
            table.documents.remove(&(collection, name.clone()));
        }
        Ok(old.len() as u64)
    }
}

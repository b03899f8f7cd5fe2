//! Documents of the ledger with faults: those of the ledger in it.

use async_trait::async_trait;
use lapsed::ledger::{Collection, Document, DocumentRange, Documents, LedgerError};
use lapsed::task::UnixMs;

use super::faulty::Faulty;

#[async_trait]
impl Documents for Faulty {
    async fn insert_document(
        &self,
        collection: Collection,
        name: &str,
        body: &str,
    ) -> Result<Option<Document>, LedgerError> {
        self.inner.insert_document(collection, name, body).await
    }

    async fn replace_document(
        &self,
        collection: Collection,
        name: &str,
        body: &str,
    ) -> Result<bool, LedgerError> {
        self.inner.replace_document(collection, name, body).await
    }

    async fn delete_document(
        &self,
        collection: Collection,
        name: &str,
    ) -> Result<bool, LedgerError> {
        self.inner.delete_document(collection, name).await
    }

    async fn find_document(
        &self,
        collection: Collection,
        name: &str,
    ) -> Result<Option<Document>, LedgerError> {
        self.inner.find_document(collection, name).await
    }

    async fn documents(
        &self,
        collection: Collection,
        range: &DocumentRange,
    ) -> Result<Vec<Document>, LedgerError> {
        self.inner.documents(collection, range).await
    }

    async fn delete_documents(
        &self,
        collection: Collection,
        before: UnixMs,
        limit: u32,
    ) -> Result<u64, LedgerError> {
        self.inner.delete_documents(collection, before, limit).await
    }
}

//! Documents: checked, and stored beside the rows.

use async_trait::async_trait;

use super::{Length, Result, RowLedger};
use crate::ledger::documents::{check_document, check_name};
use crate::ledger::{Collection, Document, DocumentRange, Documents};
use crate::task::UnixMs;

#[async_trait]
impl<L: RowLedger> Documents for L {
    async fn insert_document(
        &self,
        collection: Collection,
        name: &str,
        body: &str,
    ) -> Result<Option<Document>> {
        check_document(name, body)?;
        let (name, body) = (name.to_owned(), body.to_owned());
        self.write(Length::Short, move |store| {
            let existing = store.document(collection, &name)?;
            if existing.is_none() {
                let at = store.now();
                store.insert_document(collection, &Document { name, at, body })?;
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
    ) -> Result<bool> {
        check_document(name, body)?;
        let (name, body) = (name.to_owned(), body.to_owned());
        self.write(Length::Short, move |store| {
            store.replace_document(collection, &name, &body)
        })
        .await
    }

    async fn delete_document(&self, collection: Collection, name: &str) -> Result<bool> {
        check_name(name)?;
        let name = name.to_owned();
        self.write(Length::Short, move |store| {
            store.delete_document(collection, &name)
        })
        .await
    }

    async fn find_document(&self, collection: Collection, name: &str) -> Result<Option<Document>> {
        check_name(name)?;
        let name = name.to_owned();
        self.read(Length::Short, move |store| {
            store.document(collection, &name)
        })
        .await
    }

    async fn documents(
        &self,
        collection: Collection,
        range: &DocumentRange,
    ) -> Result<Vec<Document>> {
        let range = range.clone();
        self.read(Length::Short, move |store| {
            store.documents(collection, &range)
        })
        .await
    }

    async fn delete_documents(
        &self,
        collection: Collection,
        before: UnixMs,
        limit: u32,
    ) -> Result<u64> {
        self.write(Length::Short, move |store| {
            store.delete_documents(collection, before, limit)
        })
        .await
    }
}

//! Documents, in a small table beside the tasks.

use async_trait::async_trait;
use sqlx::Row as _;
use sqlx::mysql::MySqlRow;

use super::connection::{Conn, statement};
use super::error::error;
use super::error_numbers::is_duplicate;
use super::{BATCH_MAX, MysqlLedger, queries};
use lapsed_core::ledger::documents::{check_document, check_name};
use lapsed_core::ledger::{Collection, Document, DocumentRange, Documents, LedgerError};
use lapsed_core::task::UnixMs;

/// Number of attempts to read a document that others delete at the same time.
const READ_BACKS: usize = 5;

#[async_trait]
impl Documents for MysqlLedger {
    async fn insert_document(
        &self,
        collection: Collection,
        name: &str,
        body: &str,
    ) -> Result<Option<Document>, LedgerError> {
        check_document(name, body)?;
        let mut conn = self.pools.acquire().await?;
        let what = format!("document `{name}`");
        conn.packet_max().check(&what, name.len() + body.len())?;
        for _ in 0..READ_BACKS {
            let insert = statement(self.queries.plain(queries::INSERT_DOCUMENT))
                .bind(collection.as_str())
                .bind(name.to_owned())
                .bind(body.to_owned());
            match conn.execute(insert).await {
                Ok(_) => return Ok(None),
                Err(duplicate) if is_duplicate(&duplicate) => {}
                Err(failure) => return Err(error(failure)),
            }
            let found = self.document(&mut conn, collection, name).await;
            if let Some(existing) = found.map_err(error)? {
                return Ok(Some(existing));
            }
        }
        Err(LedgerError::Locked {
            message: format!("others write and delete the document `{name}` at the same time"),
            source: None,
        })
    }

    async fn replace_document(
        &self,
        collection: Collection,
        name: &str,
        body: &str,
    ) -> Result<bool, LedgerError> {
        check_document(name, body)?;
        let mut conn = self.pools.acquire().await?;
        let what = format!("document `{name}`");
        conn.packet_max().check(&what, name.len() + body.len())?;
        let replace = statement(self.queries.plain(queries::REPLACE_DOCUMENT))
            .bind(body.to_owned())
            .bind(collection.as_str())
            .bind(name.to_owned());
        Ok(conn.execute(replace).await.map_err(error)? > 0)
    }

    async fn delete_document(
        &self,
        collection: Collection,
        name: &str,
    ) -> Result<bool, LedgerError> {
        check_name(name)?;
        let mut conn = self.pools.acquire().await?;
        let delete = statement(self.queries.plain(queries::DELETE_DOCUMENT))
            .bind(collection.as_str())
            .bind(name.to_owned());
        Ok(conn.execute(delete).await.map_err(error)? > 0)
    }

    async fn find_document(
        &self,
        collection: Collection,
        name: &str,
    ) -> Result<Option<Document>, LedgerError> {
        check_name(name)?;
        let mut conn = self.pools.acquire().await?;
        let found = self.document(&mut conn, collection, name).await;
        found.map_err(error)
    }

    async fn documents(
        &self,
        collection: Collection,
        range: &DocumentRange,
    ) -> Result<Vec<Document>, LedgerError> {
        let mut conn = self.pools.acquire().await?;
        let before = &range.before;
        let list = statement(self.queries.plain(queries::DOCUMENTS))
            .bind(collection.as_str())
            .bind(range.since.0)
            .bind(before.at.0)
            .bind(before.at.0)
            .bind(before.name.clone())
            .bind(range.limit);
        let found = conn.fetch(list).await.map_err(error)?;
        let found: sqlx::Result<_> = found.iter().map(read).collect();
        found.map_err(error)
    }

    async fn delete_documents(
        &self,
        collection: Collection,
        before: UnixMs,
        limit: u32,
    ) -> Result<u64, LedgerError> {
        let mut conn = self.pools.acquire().await?;
        let (mut left, mut deleted) = (limit as usize, 0);
        while left > 0 {
            let most = left.min(BATCH_MAX);
            let find = statement(self.queries.plain(queries::EXPIRED_DOCUMENTS))
                .bind(collection.as_str())
                .bind(before.0)
                .bind(u32::try_from(most).unwrap_or(u32::MAX));
            let found = conn.fetch(find).await.map_err(error)?;
            let names = found.iter().map(|row| row.try_get::<&str, _>("name"));
            let names: Vec<&str> = names.collect::<sqlx::Result<_>>().map_err(error)?;
            if names.is_empty() {
                break;
            }
            let bound = queries::padded(&names);
            let text = self
                .queries
                .with_keys(queries::DELETE_DOCUMENTS, bound.len());
            let delete = statement(text).bind(collection.as_str());
            let delete = bound
                .into_iter()
                .fold(delete, |delete, name| delete.bind(name.to_owned()));
            deleted += conn.execute(delete.bind(before.0)).await.map_err(error)?;
            if names.len() < most {
                break;
            }
            left -= most;
        }
        Ok(deleted)
    }
}

impl MysqlLedger {
    async fn document(
        &self,
        conn: &mut Conn,
        collection: Collection,
        name: &str,
    ) -> sqlx::Result<Option<Document>> {
        let find = statement(self.queries.plain(queries::DOCUMENT))
            .bind(collection.as_str())
            .bind(name.to_owned());
        let found = conn.fetch(find).await?;
        found.first().map(read).transpose()
    }
}

fn read(row: &MySqlRow) -> sqlx::Result<Document> {
    Ok(Document {
        name: row.try_get("name")?,
        at: UnixMs(row.try_get("written_ms")?),
        body: row.try_get("body")?,
    })
}

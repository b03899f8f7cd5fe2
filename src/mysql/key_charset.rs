//! Facts about the server and the table, read when needed, and which keys the table can hold.

use std::sync::Arc;

use sqlx::Row as _;

use super::charset::KeyCharset;
use super::connection::{Conn, statement};
use super::error::error;
use super::facts::Facts;
use super::{MysqlLedger, queries};
use lapsed_core::ledger::LedgerError;
use lapsed_core::task::TaskKey;

impl MysqlLedger {
    /// Returns the facts, read again if they are older than [`AGE_MAX`](super::facts).
    pub(super) async fn facts(&self) -> Result<Arc<Facts>, LedgerError> {
        if let Some(facts) = self.facts.get() {
            return Ok(facts);
        }
        let mut conn = self.pools.acquire().await?;
        self.facts_on(&mut conn).await.map_err(error)
    }

    /// Returns the facts as [`facts`](Self::facts) does, read over this connection.
    pub(super) async fn facts_on(&self, conn: &mut Conn) -> sqlx::Result<Arc<Facts>> {
        if let Some(facts) = self.facts.get() {
            return Ok(facts);
        }
        let question = statement(queries::KEY_CHARSET.to_owned()).bind(self.table.to_string());
        let found = conn.fetch(question).await?;
        let name = match found.first() {
            Some(row) => row.try_get_unchecked::<Option<String>, _>(0)?,
            None => None,
        };
        let name = name.unwrap_or_default();
        let question = statement(queries::SNAPSHOT_ISOLATION.to_owned());
        let facts = Arc::new(Facts {
            key_charset: KeyCharset::named(&name),
            key_charset_name: name,
            snapshot_isolation: !conn.fetch(question).await?.is_empty(),
        });
        self.facts.set(&facts);
        Ok(facts)
    }

    /// Returns which keys the column can hold. Every character set holds keys of ASCII, so those cost no query.
    pub(super) async fn charset_for(
        &self,
        conn: &mut Conn,
        keys: &[&str],
    ) -> sqlx::Result<KeyCharset> {
        if keys.iter().all(|key| key.is_ascii()) {
            return Ok(KeyCharset::Unicode);
        }
        Ok(self.facts_on(conn).await?.key_charset)
    }

    /// True if the table can have a row of this key.
    pub(super) async fn can_hold(&self, conn: &mut Conn, key: &TaskKey) -> sqlx::Result<bool> {
        let charset = self.charset_for(conn, &[key.as_str()]).await?;
        Ok(charset.holds(key.as_str()))
    }

    /// Refuses keys that the table cannot hold. The error names the first of them.
    pub(super) async fn refuse_unfit(&self, keys: &[&TaskKey]) -> Result<(), LedgerError> {
        if keys.iter().all(|key| key.as_str().is_ascii()) {
            return Ok(());
        }
        let facts = self.facts().await?;
        let mut keys = keys.iter();
        match keys.find(|key| !facts.key_charset.holds(key.as_str())) {
            None => Ok(()),
            Some(key) => Err(LedgerError::Invalid(format!(
                "key `{key}` {}",
                self.why_unfit(&facts)
            ))),
        }
    }

    /// Why the table cannot hold a key, and what to do about it. Does not name the key.
    pub(super) fn why_unfit(&self, facts: &Facts) -> String {
        format!(
            "has characters that column `key` of table `{}` cannot hold (character set {}): run `lapsed migrate --utf8mb4`",
            self.table, facts.key_charset_name
        )
    }
}

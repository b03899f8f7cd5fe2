//! What the adapter has to know of the server and the table: read when needed, and again now and then, since a migration
//! or a failover may change it.

use std::sync::{Arc, Mutex};
use std::time::Duration;

use sqlx::Row as _;
use tokio::time::Instant;

use super::charset::KeyCharset;
use super::connection::{Conn, error, statement};
use super::{MysqlLedger, queries};
use crate::ledger::LedgerError;
use crate::task::TaskKey;

/// How long they are believed.
const AGE_MAX: Duration = Duration::from_secs(10);

/// What was read.
#[derive(Debug)]
pub(super) struct Facts {
    /// The character set of the column of keys.
    pub key_charset: KeyCharset,
    /// The server's name for it.
    pub key_charset_name: String,
    /// Whether the server has `innodb_snapshot_isolation`: MariaDB of the middle of 2024 and newer.
    pub snapshot_isolation: bool,
}

/// The latest reading.
#[derive(Debug, Default)]
pub(super) struct KnownFacts(Mutex<Option<(Instant, Arc<Facts>)>>);

impl KnownFacts {
    /// They are read again when needed next: the server said something else.
    pub fn forget(&self) {
        *self.0.lock().expect("nothing panics while holding it") = None;
    }

    fn get(&self) -> Option<Arc<Facts>> {
        let known = self.0.lock().expect("nothing panics while holding it");
        let (read, facts) = known.as_ref()?;
        (read.elapsed() < AGE_MAX).then(|| Arc::clone(facts))
    }

    fn set(&self, facts: &Arc<Facts>) {
        let mut known = self.0.lock().expect("nothing panics while holding it");
        *known = Some((Instant::now(), Arc::clone(facts)));
    }
}

impl MysqlLedger {
    /// What is known, asked for if that is old.
    pub(super) async fn facts(&self) -> Result<Arc<Facts>, LedgerError> {
        if let Some(facts) = self.facts.get() {
            return Ok(facts);
        }
        let mut conn = self.pools.acquire().await?;
        self.facts_on(&mut conn).await.map_err(error)
    }

    /// The same, of a connection that is at hand.
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

    /// Which keys the column can hold; any, if they are plain ASCII.
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

    /// Whether the table can have a row of this key.
    pub(super) async fn can_hold(&self, conn: &mut Conn, key: &TaskKey) -> sqlx::Result<bool> {
        let charset = self.charset_for(conn, &[key.as_str()]).await?;
        Ok(charset.holds(key.as_str()))
    }

    /// Refuses keys that the table cannot hold, by name.
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

    /// A text of a statement for a transaction of somebody else's session. Under `innodb_snapshot_isolation` a row that
    /// changed since the transaction first read anything cannot be locked (error 1020, all is rolled back), and the daemon
    /// itself changes the row of a run when it renews its lease. These statements are guarded by what they name, so they
    /// ask for the row as it is; for the transaction's own statements nothing changes. Nor does the number of decimals of
    /// a division (`div_precision_increment`) cut milliseconds there.
    pub(super) async fn in_others_session(&self, sql: String) -> Result<String, LedgerError> {
        let sql = sql.replace("AS SIGNED) / 1000", "AS SIGNED) * 0.001");
        Ok(match self.facts().await?.snapshot_isolation {
            true => format!("SET STATEMENT innodb_snapshot_isolation = OFF FOR {sql}"),
            false => sql,
        })
    }

    /// Why a key is refused, and what to do about it; without the key.
    pub(super) fn why_unfit(&self, facts: &Facts) -> String {
        format!(
            "has characters that column `key` of table `{}` cannot hold (character set {}): run `lapsed migrate --utf8mb4`",
            self.table, facts.key_charset_name
        )
    }
}

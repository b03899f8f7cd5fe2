//! Connections that were given up within a statement.
//!
//! The server may still execute that statement: a claim that nothing knows of, or one for a task that was cancelled
//! meanwhile. So the next connection tells the server to end the lost ones before it is used.

use std::sync::{Mutex, MutexGuard};

use sqlx::{AssertSqlSafe, MySqlConnection, Row as _};
use tokio::time::Instant;

/// The id of this connection, and a unique name of the server.
const IDENTITY: &str = "SELECT CAST(CONNECTION_ID() AS SIGNED), CAST(CONCAT_WS('/', @@hostname, @@port, @@server_id) AS CHAR)";

/// Seconds since the server started.
const UPTIME: &str = "SHOW GLOBAL STATUS LIKE 'Uptime'";

/// Maximum number of lost connections to remember: more than a pool has.
const LOST_MAX: usize = 64;

/// A connection, as the server identifies it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Peer {
    id: i64,
    server: String,
    opened_at: Instant,
}

impl Peer {
    /// Identifies a connection. `None` if the server refuses to tell.
    pub async fn of(connection: &mut MySqlConnection) -> sqlx::Result<Option<Self>> {
        let opened_at = Instant::now();
        match sqlx::raw_sql(IDENTITY).fetch_one(connection).await {
            Ok(row) => Ok(Some(Self {
                id: row.try_get_unchecked(0)?,
                server: row.try_get_unchecked(1)?,
                opened_at,
            })),
            Err(error) if error.as_database_error().is_some() => Ok(None),
            Err(error) => Err(error),
        }
    }

    /// The name of its server.
    pub fn server(&self) -> &str {
        &self.server
    }
}

/// Lost connections that the server has not been told to end yet.
#[derive(Debug, Default)]
pub(super) struct Lost(Mutex<Vec<Peer>>);

impl Lost {
    /// Adds a connection that was given up.
    pub fn add(&self, peer: Option<Peer>) {
        let mut lost = self.lost();
        lost.extend(peer);
        let surplus = lost.len().saturating_sub(LOST_MAX);
        lost.drain(..surplus);
    }

    /// Has the server end them. Skips one that is gone already, or that this user may not end.
    ///
    /// # Errors
    /// The connection broke.
    ///
    /// # Cancel safety
    /// What was not ended stays in the list; the connection must be closed.
    pub async fn end(
        &self,
        connection: &mut MySqlConnection,
        here: Option<&Peer>,
    ) -> sqlx::Result<()> {
        loop {
            let Some(peer) = self.lost().first().cloned() else {
                return Ok(());
            };
            // Another server may have given the same id to another connection.
            if here.is_some_and(|here| here.server == peer.server) {
                kill(connection, &peer).await?;
            }
            self.lost().retain(|lost| *lost != peer);
        }
    }

    fn lost(&self) -> MutexGuard<'_, Vec<Peer>> {
        self.0.lock().expect("nothing panics while holding it")
    }
}

/// Ends a connection, unless the server has restarted since: it may have given the id to another connection.
async fn kill(connection: &mut MySqlConnection, peer: &Peer) -> sqlx::Result<()> {
    let uptime = sqlx::raw_sql(UPTIME).fetch_optional(&mut *connection).await;
    let uptime = match answered(uptime)?.flatten() {
        Some(row) => row.try_get_unchecked::<String, _>(1)?,
        None => return Ok(()),
    };
    let since_start = uptime.parse::<u64>().unwrap_or(0);
    if since_start < peer.opened_at.elapsed().as_secs() {
        return Ok(());
    }
    let kill = sqlx::raw_sql(AssertSqlSafe(format!("KILL {}", peer.id)));
    answered(kill.execute(connection).await)?;
    Ok(())
}

/// Turns a refusal by the server into `None`.
fn answered<T>(result: sqlx::Result<T>) -> sqlx::Result<Option<T>> {
    match result {
        Ok(answer) => Ok(Some(answer)),
        Err(error) if error.as_database_error().is_some() => Ok(None),
        Err(error) => Err(error),
    }
}

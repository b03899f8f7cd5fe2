//! Connections that were given up in the middle of a statement.
//!
//! The server may execute that statement later, when it thaws or when the bytes arrive at last: a claim nobody knows of, or
//! a task that was cancelled meanwhile. So the next connection tells the server to end the lost one before it is used.

use std::sync::{Mutex, MutexGuard};

use sqlx::{AssertSqlSafe, MySqlConnection, Row as _};
use tokio::time::Instant;

/// This connection's number, and a name for the server that no other has.
const IDENTITY: &str = "SELECT CAST(CONNECTION_ID() AS SIGNED), CAST(CONCAT_WS('/', @@hostname, @@port, @@server_id) AS CHAR)";

/// For how many seconds the server has been up.
const UPTIME: &str = "SHOW GLOBAL STATUS LIKE 'Uptime'";

/// Most that are remembered: more than a pool has connections.
const LOST_MAX: usize = 64;

/// A connection, as the server knows it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Peer {
    id: i64,
    server: String,
    born: Instant,
}

impl Peer {
    /// `None` if the server does not tell.
    pub async fn of(connection: &mut MySqlConnection) -> sqlx::Result<Option<Self>> {
        let born = Instant::now();
        match sqlx::raw_sql(IDENTITY).fetch_one(connection).await {
            Ok(row) => Ok(Some(Self {
                id: row.try_get_unchecked(0)?,
                server: row.try_get_unchecked(1)?,
                born,
            })),
            Err(error) if error.as_database_error().is_some() => Ok(None),
            Err(error) => Err(error),
        }
    }

    /// Its server.
    pub fn server(&self) -> &str {
        &self.server
    }
}

/// Those whose server was not told yet.
#[derive(Debug, Default)]
pub(super) struct Lost(Mutex<Vec<Peer>>);

impl Lost {
    /// This one was given up.
    pub fn add(&self, peer: Option<Peer>) {
        let mut lost = self.lost();
        lost.extend(peer);
        let surplus = lost.len().saturating_sub(LOST_MAX);
        lost.drain(..surplus);
    }

    /// Has the server end them. One that is gone, or that this user may not end, is left alone.
    ///
    /// # Errors
    /// The connection broke.
    ///
    /// # Cancel safety
    /// What was not ended stays here; the connection must be closed.
    pub async fn end(
        &self,
        connection: &mut MySqlConnection,
        here: Option<&Peer>,
    ) -> sqlx::Result<()> {
        loop {
            let Some(peer) = self.lost().first().cloned() else {
                return Ok(());
            };
            // Another server may have given its number to somebody else.
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

/// A server that was started since has given the number to somebody else, too.
async fn kill(connection: &mut MySqlConnection, peer: &Peer) -> sqlx::Result<()> {
    let uptime = sqlx::raw_sql(UPTIME).fetch_optional(&mut *connection).await;
    let uptime = match answered(uptime)?.flatten() {
        Some(row) => row.try_get_unchecked::<String, _>(1)?,
        None => return Ok(()),
    };
    let since_start = uptime.parse::<u64>().unwrap_or(0);
    if since_start < peer.born.elapsed().as_secs() {
        return Ok(());
    }
    let kill = sqlx::raw_sql(AssertSqlSafe(format!("KILL {}", peer.id)));
    answered(kill.execute(connection).await)?;
    Ok(())
}

/// What the server refuses is an answer.
fn answered<T>(result: sqlx::Result<T>) -> sqlx::Result<Option<T>> {
    match result {
        Ok(answer) => Ok(Some(answer)),
        Err(error) if error.as_database_error().is_some() => Ok(None),
        Err(error) => Err(error),
    }
}

//! Bounded pool of the connections of the engine and of producers.
//!
//! The driver's pool pings each connection before and after every use, which doubles the round trips of a claim, and loses
//! a permit for good when a connection whose peer fell silent is given back. This pool uses a connection that was used a
//! moment ago as it is, asks one that was idle for longer, and closes one in doubt.

use std::collections::VecDeque;
use std::fmt;
use std::io::ErrorKind;
use std::sync::{Arc, Mutex, MutexGuard};
use std::time::Duration;

use sqlx::mysql::MySqlConnectOptions;
use sqlx::{AssertSqlSafe, ConnectOptions, Connection, Executor, MySqlConnection, Row as _};
use tokio::sync::{OwnedSemaphorePermit, Semaphore};
use tokio::time::{Instant, sleep, timeout, timeout_at};

use super::error_numbers::is_transient;
use super::lost::{Lost, Peer};
use super::queries::PACKET_MAX;
use super::sizes::PacketMax;

/// How long a caller waits for a connection.
pub(super) const ACQUIRE_TIMEOUT: Duration = Duration::from_secs(5);

/// Settings of a session of the engine: waits for a row for one second, reads only committed rows, and commits each statement
/// even if the server's default is to wait for `COMMIT`. Thousandths are not rounded away. Of the server's `sql_mode`, only the
/// order of assignments is kept.
pub const ENGINE_SESSION: &str = "SET SESSION TRANSACTION ISOLATION LEVEL READ COMMITTED; \
     SET SESSION autocommit = 1, innodb_lock_wait_timeout = 1, div_precision_increment = 4, \
     sql_mode = CONCAT('STRICT_TRANS_TABLES,NO_ENGINE_SUBSTITUTION', IF(@@GLOBAL.sql_mode LIKE '%SIMULTANEOUS_ASSIGNMENT%', ',SIMULTANEOUS_ASSIGNMENT', ''))";

/// Returns settings that make the server end a statement that takes longer than `limit`: its caller has given up, and a
/// closed connection does not stop a server that reads. Keeps a shorter limit of the server. `None` restores the server's
/// own. MariaDB applies it to every statement, MySQL to those that read; each reads only its own comment.
pub(super) fn statement_limit(limit: Option<Duration>) -> String {
    let value =
        |name: &str, limit: String| format!("IF(@@{name} > 0, LEAST(@@{name}, {limit}), {limit})");
    let (maria, mysql) = match limit {
        Some(limit) => {
            let ms = limit.as_millis();
            let seconds = format!("{}.{:03}", ms / 1_000, ms % 1_000);
            (
                format!(
                    "max_statement_time = {}",
                    value("max_statement_time", seconds)
                ),
                // MySQL accepts only a signed integer, and `LEAST` of a signed and an unsigned one is neither.
                format!(
                    "max_execution_time = CAST({} AS SIGNED)",
                    value("max_execution_time", ms.to_string())
                ),
            )
        }
        None => {
            let global = |name: &str| format!("{name} = @@GLOBAL.{name}");
            (global("max_statement_time"), global("max_execution_time"))
        }
    };
    format!("SET SESSION autocommit = 1 /*M!100101 , {maria} */ /*!50708 , {mysql} */")
}

/// A question instead of a ping. The primary of a group that becomes a secondary goes on answering, and refuses each write.
const IS_WRITABLE: &str = "SELECT CAST(@@GLOBAL.read_only AS CHAR) IN ('0', 'OFF')";

/// True if an idle connection is alive, and leads to a server that may be written to. An error after [`PING_TIMEOUT`]: its
/// link may be gone, which no server tells.
pub(super) async fn is_writable(connection: &mut MySqlConnection) -> sqlx::Result<bool> {
    let answer = timeout(
        PING_TIMEOUT,
        sqlx::raw_sql(IS_WRITABLE).fetch_one(connection),
    );
    let silent = |_| sqlx::Error::Io(ErrorKind::TimedOut.into());
    let writable = answer.await.map_err(silent)??;
    writable.try_get_unchecked(0)
}

/// A connection that was used more recently than this is taken to be alive.
const FRESH: Duration = Duration::from_secs(1);

/// How long an idle connection may take to answer.
const PING_TIMEOUT: Duration = Duration::from_secs(1);

/// A connection that is idle for this long is closed.
const IDLE_TIMEOUT: Duration = Duration::from_secs(300);

/// A connection of this age is replaced, so that a host name that points to another server is followed.
const LIFETIME: Duration = Duration::from_secs(30 * 60);

/// Pause between attempts to connect, doubled each time.
const CONNECT_PAUSE: Duration = Duration::from_millis(50);
const CONNECT_PAUSE_MAX: Duration = Duration::from_millis(400);

/// A bounded pool of connections. Connects when first used; clones share the connections.
#[derive(Debug, Clone)]
pub(super) struct Pool(Arc<Inner>);

#[derive(Debug)]
struct Inner {
    options: MySqlConnectOptions,
    statement_timeout: Duration,
    limit: Arc<Semaphore>,
    /// The connection used last is at the back and is taken first, since its statements are prepared.
    idle: Mutex<VecDeque<Idle>>,
    lost: Lost,
}

/// A connection that waits for its next use.
struct Idle {
    session: Session,
    since: Instant,
    /// Another connection broke meanwhile: ask this one before use, however fresh it is.
    recheck: bool,
}

/// A connection, and when it was opened.
pub(super) struct Session {
    connection: MySqlConnection,
    opened_at: Instant,
    /// `None`: the server refuses to tell.
    peer: Option<Peer>,
    packet_max: PacketMax,
}

/// A connection in use. Returned by [`give_back`](Self::give_back), closed when dropped.
pub(super) struct PooledConnection {
    session: Session,
    pool: Pool,
    _permit: OwnedSemaphorePermit,
}

impl Pool {
    /// Creates a pool without connecting.
    pub fn new(
        options: MySqlConnectOptions,
        connections_max: u32,
        statement_timeout: Duration,
    ) -> Self {
        Self(Arc::new(Inner {
            options,
            statement_timeout,
            limit: Arc::new(Semaphore::new(connections_max as usize)),
            idle: Mutex::default(),
            lost: Lost::default(),
        }))
    }

    /// Returns a connection that seems to be alive.
    ///
    /// # Errors
    /// The driver's error if no connection can be opened; `PoolTimedOut` if all stay in use.
    ///
    /// # Cancel safety
    /// Cancel safe.
    pub async fn acquire(&self) -> sqlx::Result<PooledConnection> {
        let deadline = Instant::now() + ACQUIRE_TIMEOUT;
        let permit = timeout_at(deadline, Arc::clone(&self.0.limit).acquire_owned()).await;
        let _permit = match permit {
            Ok(Ok(permit)) => permit,
            Ok(Err(_)) => return Err(sqlx::Error::PoolClosed),
            Err(_) => return Err(sqlx::Error::PoolTimedOut),
        };
        let mut session = match self.rested(deadline).await {
            Some(session) => session,
            None => self.connect(deadline).await?,
        };
        let Session {
            connection, peer, ..
        } = &mut session;
        let ended = timeout_at(deadline, self.0.lost.end(connection, peer.as_ref())).await;
        ended.unwrap_or(Err(sqlx::Error::PoolTimedOut))?;
        Ok(PooledConnection {
            session,
            pool: self.clone(),
            _permit,
        })
    }

    /// Returns an idle connection that is alive and leads to a server that may be written to. Closes idle ones that are not.
    async fn rested(&self, deadline: Instant) -> Option<Session> {
        loop {
            let Idle {
                mut session,
                since,
                recheck,
            } = self.idle().pop_back()?;
            if !recheck && since.elapsed() < FRESH {
                return Some(session);
            }
            let writable = timeout_at(deadline, is_writable(&mut session.connection)).await;
            match writable {
                Ok(Ok(true)) => return Some(session),
                Ok(Err(sqlx::Error::Io(error))) if error.kind() == ErrorKind::TimedOut => {
                    self.retire_idle();
                    return None;
                }
                _ => {}
            }
        }
    }

    /// Closes all idle connections: their links may be gone with that of one, and each would be waited for.
    fn retire_idle(&self) {
        let idle = std::mem::take(&mut *self.idle());
        for Idle { session, .. } in idle {
            retire_soon(session);
        }
    }

    /// Opens a connection. Waits for a server that is restarting.
    async fn connect(&self, deadline: Instant) -> sqlx::Result<Session> {
        let mut pause = CONNECT_PAUSE;
        loop {
            let opened_at = Instant::now();
            let opened = timeout_at(deadline, self.open()).await;
            match opened {
                Ok(Ok((connection, peer, packet_max))) => {
                    return Ok(Session {
                        connection,
                        opened_at,
                        peer,
                        packet_max,
                    });
                }
                Ok(Err(error)) if may_pass(&error) && Instant::now() + pause < deadline => {
                    sleep(pause).await;
                    pause = (pause * 2).min(CONNECT_PAUSE_MAX);
                }
                Ok(Err(error)) => return Err(error),
                Err(_) => return Err(sqlx::Error::PoolTimedOut),
            }
        }
    }

    async fn open(&self) -> sqlx::Result<(MySqlConnection, Option<Peer>, PacketMax)> {
        let mut connection = self.0.options.connect().await?;
        connection.execute(ENGINE_SESSION).await?;
        let limit = statement_limit(Some(self.0.statement_timeout));
        connection.execute(AssertSqlSafe(limit)).await?;
        let peer = Peer::of(&mut connection).await?;
        let packet_max: i64 = sqlx::query_scalar(PACKET_MAX)
            .fetch_one(&mut connection)
            .await?;
        let packet_max = PacketMax(usize::try_from(packet_max).unwrap_or(usize::MAX));
        Ok((connection, peer, packet_max))
    }

    /// True after [`close`](Self::close).
    pub fn is_closed(&self) -> bool {
        self.0.limit.is_closed()
    }

    /// Closes every idle connection. Those in use are closed when they are given back.
    pub async fn close(&self) {
        self.0.limit.close();
        let idle = std::mem::take(&mut *self.idle());
        for Idle { session, .. } in idle {
            retire(session).await;
        }
    }

    fn take_back(&self, session: Session) {
        let now = Instant::now();
        if self.0.limit.is_closed() || now - session.opened_at > LIFETIME {
            return retire_soon(session);
        }
        let mut idle = self.idle();
        idle.push_back(Idle {
            session,
            since: now,
            recheck: false,
        });
        let forgotten = idle
            .front()
            .is_some_and(|idle| now - idle.since > IDLE_TIMEOUT);
        let forgotten = forgotten.then(|| idle.pop_front()).flatten();
        drop(idle);
        if let Some(Idle { session, .. }) = forgotten {
            retire_soon(session);
        }
    }

    /// Marks all idle connections as in doubt, since one broke.
    fn recheck_idle(&self) {
        self.idle().iter_mut().for_each(|idle| idle.recheck = true);
    }

    fn idle(&self) -> MutexGuard<'_, VecDeque<Idle>> {
        self.0.idle.lock().expect("nothing panics while holding it")
    }
}

impl PooledConnection {
    /// The connection.
    pub fn connection(&mut self) -> &mut MySqlConnection {
        &mut self.session.connection
    }

    /// Returns a connection that has answered completely to the pool.
    pub fn give_back(self) {
        let Self {
            session,
            pool,
            _permit,
        } = self;
        pool.take_back(session);
    }

    /// Closes a connection that broke, or was left within an answer.
    pub fn close(self) {
        self.pool.recheck_idle();
        self.pool.0.lost.add(self.session.peer);
    }

    /// The longest packet that the server takes.
    pub fn packet_max(&self) -> PacketMax {
        self.session.packet_max
    }

    /// Returns the name of the server, if the server tells it.
    pub fn server(&self) -> Option<&str> {
        Some(self.session.peer.as_ref()?.server())
    }

    /// Takes the connection out of the pool.
    pub fn detach(self) -> MySqlConnection {
        self.session.connection
    }
}

impl fmt::Debug for Idle {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Idle")
            .field("since", &self.since)
            .finish_non_exhaustive()
    }
}

/// True if a later attempt to connect may succeed: the server is starting, or has no connection left.
fn may_pass(error: &sqlx::Error) -> bool {
    match error {
        sqlx::Error::Io(error) => {
            matches!(
                error.kind(),
                ErrorKind::ConnectionRefused | ErrorKind::NotFound
            )
        }
        sqlx::Error::Database(_) => is_transient(error),
        _ => false,
    }
}

/// Closes a connection in the background, if the runtime still exists.
fn retire_soon(session: Session) {
    if let Ok(runtime) = tokio::runtime::Handle::try_current() {
        runtime.spawn(retire(session));
    }
}

/// Closes a connection properly, so that the server does not log an aborted one.
async fn retire(session: Session) {
    let _ = timeout(PING_TIMEOUT, session.connection.close()).await;
}

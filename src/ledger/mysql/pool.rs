//! The connections of the engine and of producers, bounded in number.
//!
//! They are pooled here and not by the driver, whose pool asks each connection for a sign of life before every use
//! and after it (which doubles the round trips of a claim), and loses a permit for ever when a connection whose peer fell
//! silent comes back. Here one that was used a moment ago is used as it is, one that has rested is asked first, and one
//! that is in doubt does not come back.

use std::collections::VecDeque;
use std::fmt;
use std::io::ErrorKind;
use std::sync::{Arc, Mutex, MutexGuard};
use std::time::Duration;

use sqlx::mysql::MySqlConnectOptions;
use sqlx::{AssertSqlSafe, ConnectOptions, Connection, Executor, MySqlConnection};
use tokio::sync::{OwnedSemaphorePermit, Semaphore};
use tokio::time::{Instant, sleep, timeout, timeout_at};

use super::error_numbers::is_transient;
use super::lost::{Lost, Peer};

/// How long a caller waits for a connection.
pub(super) const ACQUIRE_TIMEOUT: Duration = Duration::from_secs(5);

/// A session of the engine: rows are waited for one second at most, nothing is read that is not committed, and each
/// statement commits, also where the server's default is to wait for a `COMMIT`. A thousandth is not rounded away.
pub(crate) const ENGINE_SESSION: &str = "SET SESSION TRANSACTION ISOLATION LEVEL READ COMMITTED; \
     SET SESSION autocommit = 1, innodb_lock_wait_timeout = 1, div_precision_increment = 4, sql_mode = 'STRICT_TRANS_TABLES,NO_ENGINE_SUBSTITUTION'";

/// Has the server itself end a statement that takes longer than `limit`, because its caller has given up: closing its
/// connection does not stop a server that reads. A shorter limit that the server has stays. `None`: as the server has
/// it. MariaDB does so with every statement, MySQL with those that read; each takes the comment that is its own.
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
                // MySQL takes nothing but an integer, and the lesser of two kinds of integers is none to it.
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

/// A connection that was used less than this ago is taken to be alive.
const FRESH: Duration = Duration::from_secs(1);

/// How long one that has rested may take to show that it is alive.
const PING_TIMEOUT: Duration = Duration::from_secs(1);

/// A connection that is idle for this long is closed.
const IDLE_TIMEOUT: Duration = Duration::from_secs(300);

/// One of this age is replaced, so that a name that points to another server is followed.
const LIFETIME: Duration = Duration::from_secs(30 * 60);

/// Between attempts to connect, doubled each time.
const CONNECT_PAUSE: Duration = Duration::from_millis(50);
const CONNECT_PAUSE_MAX: Duration = Duration::from_millis(400);

/// A bounded set of connections. Connects when first used; clones share it.
#[derive(Debug, Clone)]
pub(super) struct Pool(Arc<Inner>);

#[derive(Debug)]
struct Inner {
    options: MySqlConnectOptions,
    statement_timeout: Duration,
    limit: Arc<Semaphore>,
    /// The one used last is at the back, and is taken first: its statements are prepared.
    idle: Mutex<VecDeque<Idle>>,
    lost: Lost,
}

/// A connection that waits for its next use.
struct Idle {
    session: Session,
    since: Instant,
    /// Another one broke meanwhile: ask before use, however fresh.
    doubted: bool,
}

/// A connection and when it was made.
pub(super) struct Session {
    connection: MySqlConnection,
    born: Instant,
    /// `None`: the server does not tell.
    peer: Option<Peer>,
}

/// A connection in use; given back with [`give_back`](Self::give_back), closed when dropped.
pub(super) struct Lent {
    session: Session,
    pool: Pool,
    _permit: OwnedSemaphorePermit,
}

impl Pool {
    /// Does no I/O.
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

    /// A connection that is alive, as far as anybody can know.
    ///
    /// # Errors
    /// The driver's, when none can be made; `PoolTimedOut` when all stay in use.
    ///
    /// # Cancel safety
    /// Cancel safe.
    pub async fn acquire(&self) -> sqlx::Result<Lent> {
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
        Ok(Lent {
            session,
            pool: self.clone(),
            _permit,
        })
    }

    /// One that is idle and alive. A server that has fallen silent may have left many that are not.
    async fn rested(&self, deadline: Instant) -> Option<Session> {
        loop {
            let Idle {
                mut session,
                since,
                doubted,
            } = self.idle().pop_back()?;
            if !doubted && since.elapsed() < FRESH {
                return Some(session);
            }
            let patience = deadline.min(Instant::now() + PING_TIMEOUT);
            let alive = timeout_at(patience, session.connection.ping()).await;
            if matches!(alive, Ok(Ok(()))) {
                return Some(session);
            }
        }
    }

    /// A new one; waits for a server that is being restarted.
    async fn connect(&self, deadline: Instant) -> sqlx::Result<Session> {
        let mut pause = CONNECT_PAUSE;
        loop {
            let born = Instant::now();
            let opened = timeout_at(deadline, self.open()).await;
            match opened {
                Ok(Ok((connection, peer))) => {
                    return Ok(Session {
                        connection,
                        born,
                        peer,
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

    async fn open(&self) -> sqlx::Result<(MySqlConnection, Option<Peer>)> {
        let mut connection = self.0.options.connect().await?;
        connection.execute(ENGINE_SESSION).await?;
        let limit = statement_limit(Some(self.0.statement_timeout));
        connection.execute(AssertSqlSafe(limit)).await?;
        let peer = Peer::of(&mut connection).await?;
        Ok((connection, peer))
    }

    /// Whether [`close`](Self::close) was called.
    pub fn is_closed(&self) -> bool {
        self.0.limit.is_closed()
    }

    /// Says goodbye to the server on every idle connection; those in use are closed when they come back.
    pub async fn close(&self) {
        self.0.limit.close();
        let idle = std::mem::take(&mut *self.idle());
        for Idle { session, .. } in idle {
            retire(session).await;
        }
    }

    fn take_back(&self, session: Session) {
        let now = Instant::now();
        if self.0.limit.is_closed() || now - session.born > LIFETIME {
            return retire_soon(session);
        }
        let mut idle = self.idle();
        idle.push_back(Idle {
            session,
            since: now,
            doubted: false,
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

    /// One broke: the others may have, too.
    fn doubt(&self) {
        self.idle().iter_mut().for_each(|idle| idle.doubted = true);
    }

    fn idle(&self) -> MutexGuard<'_, VecDeque<Idle>> {
        self.0.idle.lock().expect("nothing panics while holding it")
    }
}

impl Lent {
    /// The connection.
    pub fn connection(&mut self) -> &mut MySqlConnection {
        &mut self.session.connection
    }

    /// Returns a connection that answered completely, for the next caller.
    pub fn give_back(self) {
        let Self {
            session,
            pool,
            _permit,
        } = self;
        pool.take_back(session);
    }

    /// It broke, or was left in the middle of an answer.
    pub fn close(self) {
        self.pool.doubt();
        self.pool.0.lost.add(self.session.peer);
    }

    /// Which server it leads to, if that tells.
    pub fn server(&self) -> Option<&str> {
        Some(self.session.peer.as_ref()?.server())
    }

    /// Out of the pool for good.
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

/// Whether the failure may pass: the server is starting, or has no connection left.
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

/// Says goodbye, if there is still somebody to do it.
fn retire_soon(session: Session) {
    if let Ok(runtime) = tokio::runtime::Handle::try_current() {
        runtime.spawn(retire(session));
    }
}

/// A server that is told goodbye does not log an aborted connection.
async fn retire(session: Session) {
    let _ = timeout(PING_TIMEOUT, session.connection.close()).await;
}

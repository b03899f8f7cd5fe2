//! The connection to one server for commands.

use std::sync::{Arc, Mutex, MutexGuard};
use std::time::Duration;

use redis::aio::MultiplexedConnection;
use redis::{FromRedisValue, Pipeline};
use tokio::sync::watch;
use tokio::time::Instant;

use super::master::Mastership;
use super::{Endpoint, RedisError};
use lapsed_core::task::RetryPolicy;

/// Backoff after a failed attempt: 50 ms to about one second.
const RECONNECT: RetryPolicy =
    RetryPolicy::endless(Duration::from_millis(50), Duration::from_millis(800));

/// The connection that all commands share. It is opened on first use, and again on the first use after a loss. Clones
/// share it.
///
/// A caller waits at most the connect timeout plus the response timeout. After a failed attempt, callers get its error
/// at once until the next attempt.
#[derive(Debug, Clone)]
pub struct Link(Arc<Shared>);

#[derive(Debug)]
struct Shared {
    endpoint: Endpoint,
    link: Mutex<State>,
}

/// The result of an attempt to connect, once it has ended.
type Attempt = watch::Receiver<Option<Result<Live, RedisError>>>;

#[derive(Debug)]
enum State {
    Idle,
    Connecting(Attempt),
    Up(Live),
    Down {
        error: RedisError,
        failures: u16,
        until: Instant,
    },
}

/// A connection and its identity, so that a late failure of an old connection does not close a new one.
#[derive(Debug, Clone)]
struct Live {
    connection: MultiplexedConnection,
    mastership: Mastership,
    id: Arc<()>,
}

impl Link {
    /// Does no I/O.
    pub fn new(endpoint: Endpoint) -> Self {
        let link = Mutex::new(State::Idle);
        Self(Arc::new(Shared { endpoint, link }))
    }

    /// Returns the server's endpoint.
    pub fn endpoint(&self) -> &Endpoint {
        &self.0.endpoint
    }

    /// Sends a pipeline. `command` names it in errors.
    ///
    /// # Cancel safety
    /// A pipeline that was handed to the connection is sent even if the caller is cancelled.
    pub(super) async fn send<T: FromRedisValue>(
        &self,
        command: &'static str,
        pipeline: &Pipeline,
    ) -> Result<T, RedisError> {
        let live = self.live().await?;
        let mut connection = live.connection.clone();
        pipeline
            .query_async(&mut connection)
            .await
            .map_err(|error| {
                // A silent connection may be half open. A new one is cheaper than to wait.
                if error.is_io_error() || error.is_unrecoverable_error() {
                    self.0.lose(&live);
                }
                RedisError::of(command, error)
            })
    }

    /// Lets the next command connect at once. Call it when the server is known to be up.
    pub fn forget_failures(&self) {
        let mut link = self.0.link();
        if let State::Down { .. } = *link {
            *link = State::Idle;
        }
    }

    async fn live(&self) -> Result<Live, RedisError> {
        let mut attempt = {
            let mut link = self.0.link();
            let failures = match &*link {
                State::Up(live) if !live.mastership.is_over() => return Ok(live.clone()),
                State::Down { error, until, .. } if Instant::now() < *until => {
                    return Err(error.clone());
                }
                State::Down { failures, .. } => *failures,
                State::Idle | State::Connecting(_) | State::Up(_) => 0,
            };
            match &*link {
                State::Connecting(attempt) => attempt.clone(),
                _ => {
                    let attempt = self.attempt(failures);
                    *link = State::Connecting(attempt.clone());
                    attempt
                }
            }
        };
        match attempt.wait_for(Option::is_some).await {
            Ok(answer) => answer.clone().expect("the wait ends at `Some`"),
            Err(_) => {
                // The runtime of the attempt has ended; the next call connects again.
                *self.0.link() = State::Idle;
                Err(RedisError::silence())
            }
        }
    }

    /// Connects in a separate task, because the first caller may give up before the others.
    fn attempt(&self, failures: u16) -> Attempt {
        let (answer, attempt) = watch::channel(None);
        let shared = Arc::clone(&self.0);
        tokio::spawn(async move {
            let connected = shared.endpoint.connect().await;
            let connected = connected.map(|(connection, mastership)| Live {
                connection,
                mastership,
                id: Arc::default(),
            });
            let failures = failures.saturating_add(1);
            *shared.link() = match &connected {
                Ok(live) => State::Up(live.clone()),
                Err(error) => State::Down {
                    error: error.clone(),
                    failures,
                    until: Instant::now() + shared.endpoint.pause_after(failures, &RECONNECT),
                },
            };
            // All callers may have given up.
            let _ = answer.send(Some(connected));
        });
        attempt
    }
}

impl Shared {
    fn lose(&self, lost: &Live) {
        let mut link = self.link();
        if matches!(&*link, State::Up(live) if Arc::ptr_eq(&live.id, &lost.id)) {
            *link = State::Idle;
        }
    }

    fn link(&self) -> MutexGuard<'_, State> {
        self.link
            .lock()
            .expect("nothing panics while holding the link")
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use lapsed_core::config::{Config, RedisConfig};

    #[tokio::test]
    async fn connection_attempts_to_a_missing_server_are_limited() {
        let closed = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
        let address = closed.local_addr().unwrap();
        drop(closed);
        let endpoint = Endpoint::new(&RedisConfig {
            url: format!("redis://{address}/0").into(),
            ..Config::default().redis
        })
        .unwrap();
        let commands = Link::new(endpoint);
        for _ in 0..100 {
            let answer: Result<(), _> = commands.send("PING", redis::pipe().ping()).await;
            assert_eq!(answer.unwrap_err().reason(), "unreachable");
        }
        let State::Down { failures, .. } = *commands.0.link() else {
            panic!("expected the link to be down")
        };
        assert!(failures < 5, "{failures} attempts");
    }
}

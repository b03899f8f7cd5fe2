//! The server, as programs in this process see it.

mod faults;

use std::io;
use std::sync::{Arc, MutexGuard, Weak};

use lapsed_core::task::UnixMs;
use tokio::io::{AsyncRead, AsyncWrite, DuplexStream};
use tokio::sync::watch;
use tokio::task::AbortHandle;

pub use self::faults::Keep;
use crate::commands;
use crate::connection::serve;
use crate::history::Change;
use crate::keyspace::{Db, Value};
use crate::options::Options;
use crate::reply::Reply;
use crate::server::State;
use crate::shared::Shared;
use crate::way::Way;

/// Bytes that a stream in memory holds in each direction.
const STREAM_BYTES: usize = 256 * 1024;

/// A server.
pub struct ModelRedis {
    shared: Arc<Shared>,
    refuses: watch::Sender<bool>,
    cycles: AbortHandle,
}

impl ModelRedis {
    /// Starts a server without data.
    ///
    /// # Panics
    /// If called outside of a runtime.
    pub fn new(options: Options) -> Arc<Self> {
        let shared = Arc::new(Shared::new(State::new(options)));
        let cycles = tokio::spawn(expire_actively(Arc::downgrade(&shared)));
        Arc::new(Self {
            shared,
            refuses: watch::Sender::new(false),
            cycles: cycles.abort_handle(),
        })
    }

    /// Opens a connection, as a program without a link of its own.
    ///
    /// # Errors
    /// If the server refuses connections.
    pub fn connect(&self) -> io::Result<DuplexStream> {
        self.connect_by(Way::new(""))
    }

    pub(crate) fn connect_by(&self, way: Arc<Way>) -> io::Result<DuplexStream> {
        if *self.refuses.borrow() {
            return Err(io::ErrorKind::ConnectionRefused.into());
        }
        let (near, far) = tokio::io::duplex(STREAM_BYTES);
        tokio::spawn(serve(Arc::clone(&self.shared), far, way));
        Ok(near)
    }

    /// Serves a stream until it ends.
    pub async fn serve<S: AsyncRead + AsyncWrite + Send>(&self, stream: S) {
        serve(Arc::clone(&self.shared), stream, Way::new("")).await;
    }

    /// Waits while the server hangs.
    pub async fn answers(&self) {
        self.shared.answers().await;
    }

    /// Runs a command at once, without a connection, even while the server hangs.
    pub fn execute<W: AsRef<[u8]>>(&self, db: u32, words: &[W]) -> Reply {
        let words = words.iter().map(|word| word.as_ref().to_vec()).collect();
        commands::run_in(&mut self.state(), db, &Arc::new(words))
    }

    /// Returns the server's clock.
    pub fn now(&self) -> UnixMs {
        UnixMs(self.state().now())
    }

    /// Returns what has changed since the last call, and forgets it.
    pub fn take_history(&self) -> Vec<Change> {
        std::mem::take(&mut self.state().history)
    }

    /// Returns the text of a key, and when it expires. Unlike a command, this deletes no key that is due.
    pub fn peek(&self, db: u32, key: &str) -> Option<(Vec<u8>, Option<UnixMs>)> {
        let state = self.state();
        let entry = state.data.get(&db)?.get(key.as_bytes())?;
        match &entry.value {
            Value::String(text) => Some((text.clone(), entry.due.map(UnixMs))),
            _ => None,
        }
    }

    /// Returns the number of keys, due ones included.
    pub fn len(&self) -> usize {
        self.state().data.values().map(Db::len).sum()
    }

    /// True if there is no key.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.shared.state()
    }
}

impl Drop for ModelRedis {
    fn drop(&mut self) {
        self.cycles.abort();
    }
}

impl std::fmt::Debug for ModelRedis {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("ModelRedis").finish_non_exhaustive()
    }
}

/// Runs the expiry cycles that find a key; the others change nothing.
async fn expire_actively(redis: Weak<Shared>) {
    loop {
        let Some(server) = redis.upgrade() else {
            return;
        };
        let (next, changed) = {
            let state = server.state();
            (state.next_cycle(), Arc::clone(&state.expiries))
        };
        let mut hangs = server.hangs.subscribe();
        drop(server);
        let cycle = async {
            match next {
                Some(next) => tokio::time::sleep_until(next).await,
                None => std::future::pending().await,
            }
            // A server that hangs deletes nothing. An error means that it is gone.
            let _ = hangs.wait_for(|hangs| !hangs).await;
        };
        tokio::select! {
            () = changed.notified() => {}
            () = cycle => {
                if let Some(server) = redis.upgrade() {
                    server.state().cycle();
                }
            }
        }
    }
}

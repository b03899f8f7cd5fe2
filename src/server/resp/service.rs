//! The RESP server without its listener: serves connections, however they come.

use std::io;
use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use tokio::io::{AsyncRead, AsyncWrite};
use tokio_util::sync::CancellationToken;

use super::commands::REGISTRY;
use super::connection;
use super::counters::Counters;
use super::dispatch::Dispatch;
use super::guests::Guest;
use super::server_state::{ServerState, SetForward};
use super::session::Session;
use crate::net::audit_log::AuditLog;
use crate::net::login_log::LoginLog;
use lapsed::client::TaskClient;
use lapsed::config::RespConfig;
use lapsed::engine::PullQueues;
use lapsed_core::telemetry::Metrics;

/// Answers the commands of Redis clients on streams. [`Listener`](super::Listener) accepts them from the network.
pub struct Service {
    pub(super) server: Arc<ServerState>,
    counters: Arc<Counters>,
}

/// The two ends of a connection.
#[derive(Debug, Clone, Copy)]
pub struct Ends {
    /// Address of the client.
    pub client: SocketAddr,
    /// Address of the server.
    pub server: SocketAddr,
}

impl Service {
    /// Creates the service of a server at `address`. Users and masks are those of the configuration.
    pub fn new(
        config: &RespConfig,
        tasks: TaskClient,
        metrics: Arc<Metrics>,
        address: SocketAddr,
    ) -> Self {
        let server = ServerState::new(tasks, Arc::clone(&metrics), config.clone(), address);
        Self {
            server: Arc::new(server),
            counters: Arc::new(Counters::new(metrics, &REGISTRY)),
        }
    }

    /// Lets workers take tasks from the pull queues of an engine in this process.
    #[must_use]
    pub fn with_workers(mut self, queues: PullQueues) -> Self {
        self.unshared().workers = Some(queues);
        self
    }

    /// Lets clients set this clock forward.
    #[must_use]
    pub fn with_clock(mut self, clock: Arc<dyn SetForward>) -> Self {
        self.unshared().clock = Some(clock);
        self
    }

    /// Writes the changes of users with a password, and failed logins, into the audit log of the ledger, whose entries are kept
    /// for this long.
    #[must_use]
    pub fn with_audit_log(mut self, keep: Duration) -> Self {
        let server = self.unshared();
        let ledger = server.tasks.ledger();
        let logins = LoginLog::new("resp", Arc::clone(&ledger), keep);
        server.users.log_failures(logins);
        server.audit_log = Some(AuditLog::new("resp", ledger, keep));
        self
    }

    fn unshared(&mut self) -> &mut ServerState {
        Arc::get_mut(&mut self.server).expect("no connection shares it yet")
    }

    /// Serves a connection until the client closes it, breaks the protocol, is too slow, takes memory that others need, or
    /// `stop` is cancelled. Commands that have begun are answered then.
    ///
    /// # Errors
    /// If the connection is lost.
    pub async fn serve<S>(&self, stream: S, ends: Ends, stop: CancellationToken) -> io::Result<()>
    where
        S: AsyncRead + AsyncWrite + Unpin,
    {
        self.serve_guest(stream, ends, None, stop).await
    }

    /// As [`serve`](Self::serve), for a client that gives way to others until it has authenticated.
    pub(super) async fn serve_guest<S>(
        &self,
        stream: S,
        ends: Ends,
        guest: Option<Guest>,
        stop: CancellationToken,
    ) -> io::Result<()>
    where
        S: AsyncRead + AsyncWrite + Unpin,
    {
        let server = &self.server;
        let id = server.accepted.fetch_add(1, Ordering::Relaxed) + 1;
        let user = server.users.without_auth();
        let mut session = Session::new(id, ends.client, ends.server, user);
        session.guest = guest;
        let share = server.room.share();
        let counters = Arc::clone(&self.counters);
        let dispatch = Dispatch::new(session, Arc::clone(server), &REGISTRY, counters);
        connection::serve(stream, dispatch, share, stop).await
    }
}

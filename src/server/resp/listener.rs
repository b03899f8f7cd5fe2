//! Accepts connections.

use std::collections::HashMap;
use std::future::Future;
use std::io;
use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::path::{Path, PathBuf};
use std::sync::atomic::Ordering;
use std::sync::{Arc, Mutex, MutexGuard};
use std::time::Duration;

use tokio::io::{AsyncWrite, AsyncWriteExt};
use tokio::net::{TcpListener, TcpSocket, TcpStream, UnixStream};
use tokio::sync::Semaphore;
use tokio::time::timeout;
use tokio_rustls::TlsAcceptor;
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;

use super::guests::{Guest, Guests};
use super::server_state::SetForward;
use super::service::{Ends, Service};
use super::socket::Socket;
use super::tls;
use crate::net::sockets::cut_silent;
use lapsed::client::TaskClient;
use lapsed::config::RespConfig;
use lapsed::engine::PullQueues;
use lapsed_core::telemetry::Metrics;

/// Connections that the kernel keeps until they are accepted.
const BACKLOG: u32 = 1024;

/// Time for the handshake of TLS.
const TLS_TIME: Duration = Duration::from_secs(10);

/// Pause after an error of `accept`, such as too many open files.
const ACCEPT_PAUSE: Duration = Duration::from_millis(100);

/// Time after which a client is taken for dead that takes nothing of what it is sent, or does not answer its kernel's
/// keep-alive.
const SILENT_TIME: Duration = Duration::from_secs(15);

/// Time for a connection that has not authenticated to give way to a new one.
const GIVE_WAY_TIME: Duration = Duration::from_secs(2);

/// Of all connections, one in this number is kept for other addresses than the one with the most.
const KEPT_FOR_OTHERS: usize = 16;

/// The address of clients of the Unix socket, and of the server for them: they are of this machine.
const OF_SOCKET: SocketAddr = SocketAddr::new(IpAddr::V4(Ipv4Addr::LOCALHOST), 0);

const FULL: &[u8] = b"-ERR max number of clients reached\r\n";

const WITHOUT_TLS: &[u8] =
    b"-ERR this address is not served without TLS: see `resp.plaintext` and `resp.tls_cert`\r\n";

/// Time for connections to end after a stop.
const END_TIME: Duration = Duration::from_secs(2);

/// Why the RESP server cannot be opened.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum OpenError {
    /// The address cannot be used.
    #[error(
        "cannot listen on `{address}` (`resp.listen`; \"\" switches the RESP server off): {source}"
    )]
    Listen {
        /// The address.
        address: SocketAddr,
        /// Why.
        source: io::Error,
    },
    /// The Unix socket cannot be used.
    #[error("cannot listen on `{}` (`resp.socket`): {source}", path.display())]
    Socket {
        /// The file.
        path: PathBuf,
        /// Why.
        source: io::Error,
    },
    /// Certificate or key cannot be used.
    #[error("{0}")]
    Tls(String),
    /// A password hash cannot be used.
    #[error(
        "hash of the password of `{user}` is invalid, expected one that `lapsed hash-password` prints"
    )]
    Password {
        /// The user.
        user: String,
    },
}

/// The RESP server, open.
pub struct Listener {
    listeners: Listeners,
    tls: Option<TlsAcceptor>,
    service: Service,
    address: Option<SocketAddr>,
}

/// Where clients come in.
struct Listeners {
    tcp: Option<TcpListener>,
    socket: Option<Socket>,
}

/// The stream of a client.
enum Stream {
    Tcp(TcpStream),
    Unix(UnixStream),
}

impl Listener {
    /// Opens the RESP server of a configuration. `None` if that has neither an address nor a socket for it.
    ///
    /// # Errors
    /// [`OpenError`].
    pub fn open(
        config: &RespConfig,
        tasks: TaskClient,
        metrics: Arc<Metrics>,
    ) -> Result<Option<Self>, OpenError> {
        if config.listen.is_none() && config.socket.is_none() {
            return Ok(None);
        }
        for user in &config.users {
            if !user.password_hash().is_some_and(super::auth::is_hash) {
                let user = user.name.clone();
                return Err(OpenError::Password { user });
            }
        }
        let tls = config.tls.as_ref().map(tls::acceptor).transpose();
        let tls = tls.map_err(OpenError::Tls)?;
        let tcp = config.listen.map(|address| {
            listen(address)
                .and_then(|listener| Ok((listener.local_addr()?, listener)))
                .map_err(|source| OpenError::Listen { address, source })
        });
        let (address, tcp) = tcp.transpose()?.unzip();
        let socket = config.socket.as_ref().map(|socket| {
            Socket::open(socket, BACKLOG).map_err(|source| OpenError::Socket {
                path: socket.path.clone(),
                source,
            })
        });
        let listeners = Listeners {
            tcp,
            socket: socket.transpose()?,
        };
        Ok(Some(Self {
            listeners,
            tls,
            service: Service::new(config, tasks, metrics, address.unwrap_or(OF_SOCKET)),
            address,
        }))
    }

    /// As [`Service::with_workers`].
    #[must_use]
    pub fn with_workers(mut self, queues: PullQueues) -> Self {
        self.service = self.service.with_workers(queues);
        self
    }

    /// As [`Service::with_clock`].
    #[must_use]
    pub fn with_clock(mut self, clock: Arc<dyn SetForward>) -> Self {
        self.service = self.service.with_clock(clock);
        self
    }

    /// As [`Service::with_audit_log`].
    #[must_use]
    pub fn with_audit_log(mut self, keep: Duration) -> Self {
        self.service = self.service.with_audit_log(keep);
        self
    }

    /// The address, with the port that was chosen if the configuration has 0. `None` if there is a Unix socket only.
    pub fn address(&self) -> Option<SocketAddr> {
        self.address
    }

    /// The file of the Unix socket.
    pub fn socket(&self) -> Option<&Path> {
        self.listeners.socket.as_ref().map(Socket::path)
    }

    /// Serves until `stop` resolves. Then commands that have begun are answered, and connections are closed.
    pub async fn serve(self, stop: impl Future<Output = ()>) {
        let closing = CancellationToken::new();
        let connections = TaskTracker::new();
        let service = Arc::new(self.service);
        let most = service.server.config.max_connections;
        let room = Arc::new(Semaphore::new(most));
        let addresses = Arc::<Addresses>::default();
        let of_one_address = most - most / KEPT_FOR_OTHERS;
        let guests = Arc::<Guests>::default();
        tokio::pin!(stop);
        loop {
            let accepted = tokio::select! {
                () = &mut stop => break,
                accepted = self.listeners.accept() => accepted,
            };
            let (stream, address) = match accepted {
                Ok(accepted) => accepted,
                Err(error) => {
                    tracing::warn!(%error, "could not accept a connection to the RESP server");
                    tokio::time::sleep(ACCEPT_PAUSE).await;
                    continue;
                }
            };
            if self.tls.is_none() && !service.server.config.plaintext.serves(address.ip()) {
                service.server.metrics.resp_refused("plaintext");
                tracing::debug!(client.address = %address, "refused a client without TLS");
                connections.spawn(stream.refuse(WITHOUT_TLS));
                continue;
            }
            let permit = Arc::clone(&room).try_acquire_owned().ok();
            let (others, place) = addresses.enter(address.ip());
            let is_full = permit.is_none() || others >= of_one_address;
            if is_full && !guests.close_oldest() {
                service.server.metrics.resp_refused("max_connections");
                connections.spawn(stream.refuse(FULL));
                continue;
            }
            let service = Arc::clone(&service);
            let (tls, closing) = (self.tls.clone(), closing.child_token());
            let is_guest = service.server.users.are_required();
            let guest = is_guest.then(|| guests.add(closing.clone()));
            let room = Arc::clone(&room);
            connections.spawn(async move {
                let permit = match permit {
                    Some(permit) => permit,
                    // That of the connection that gives way.
                    None => match timeout(GIVE_WAY_TIME, room.acquire_owned()).await {
                        Ok(Ok(permit)) => permit,
                        _ => return stream.refuse(FULL).await,
                    },
                };
                let count = |change: i64| {
                    let server = &service.server;
                    let connected = &server.connected;
                    connected.fetch_add(change.cast_unsigned(), Ordering::Relaxed);
                    server.metrics.resp_connections(connected.load(Ordering::Relaxed));
                };
                count(1);
                let ended = serve_one(stream, address, tls, &service, guest, closing).await;
                count(-1);
                if let Err(error) = ended {
                    tracing::debug!(%error, client.address = %address, "a connection of the RESP server was lost");
                }
                drop((permit, place));
            });
        }
        closing.cancel();
        connections.close();
        let _ = timeout(END_TIME, connections.wait()).await;
        if let Some(audit_log) = &service.server.audit_log {
            audit_log.flush().await;
        }
    }
}

impl Listeners {
    /// The next client, and its address.
    async fn accept(&self) -> io::Result<(Stream, SocketAddr)> {
        let tcp = async {
            match &self.tcp {
                Some(tcp) => tcp.accept().await,
                None => std::future::pending().await,
            }
        };
        let unix = async {
            match &self.socket {
                Some(socket) => socket.accept().await,
                None => std::future::pending().await,
            }
        };
        tokio::select! {
            accepted = tcp => accepted.map(|(stream, address)| (Stream::Tcp(stream), address)),
            accepted = unix => accepted.map(|stream| (Stream::Unix(stream), OF_SOCKET)),
        }
    }
}

/// The number of connections of each address.
#[derive(Default)]
struct Addresses(Mutex<HashMap<IpAddr, usize>>);

/// A connection of an address.
struct AddressPlace {
    addresses: Arc<Addresses>,
    address: IpAddr,
}

impl Addresses {
    /// Counts a connection. Returns how many others the address has.
    fn enter(self: &Arc<Self>, address: IpAddr) -> (usize, AddressPlace) {
        let others = {
            let mut counts = self.counts();
            let count = counts.entry(address).or_default();
            *count += 1;
            *count - 1
        };
        let addresses = Arc::clone(self);
        (others, AddressPlace { addresses, address })
    }

    fn counts(&self) -> MutexGuard<'_, HashMap<IpAddr, usize>> {
        self.0.lock().expect("nothing panics while holding it")
    }
}

impl Drop for AddressPlace {
    fn drop(&mut self) {
        let mut counts = self.addresses.counts();
        if let Some(count) = counts.get_mut(&self.address) {
            *count -= 1;
            if *count == 0 {
                counts.remove(&self.address);
            }
        }
    }
}

fn listen(address: SocketAddr) -> io::Result<TcpListener> {
    let socket = match address {
        SocketAddr::V4(_) => TcpSocket::new_v4()?,
        SocketAddr::V6(_) => TcpSocket::new_v6()?,
    };
    socket.set_reuseaddr(true)?;
    socket.bind(address)?;
    socket.listen(BACKLOG)
}

async fn serve_one(
    stream: Stream,
    client: SocketAddr,
    tls: Option<TlsAcceptor>,
    service: &Service,
    guest: Option<Guest>,
    closing: CancellationToken,
) -> io::Result<()> {
    let stream = match stream {
        Stream::Tcp(stream) => stream,
        // It leaves the machine nowhere, and the kernel knows when the client is gone.
        Stream::Unix(stream) => {
            let server = OF_SOCKET;
            let ends = Ends { client, server };
            return service.serve_guest(stream, ends, guest, closing).await;
        }
    };
    cut_silent(&stream, SILENT_TIME)?;
    let server = stream.local_addr()?;
    let ends = Ends { client, server };
    match tls {
        None => service.serve_guest(stream, ends, guest, closing).await,
        Some(tls) => {
            let accepted = tokio::select! {
                accepted = timeout(TLS_TIME, tls.accept(stream)) => accepted,
                () = closing.cancelled() => return Ok(()),
            };
            let stream = accepted.map_err(|_| io::Error::from(io::ErrorKind::TimedOut))??;
            service.serve_guest(stream, ends, guest, closing).await
        }
    }
}

impl Stream {
    /// Tells the client why it is not served, and closes the connection.
    async fn refuse(self, error: &'static [u8]) {
        match self {
            Self::Tcp(stream) => write(stream, error).await,
            Self::Unix(stream) => write(stream, error).await,
        }
    }
}

async fn write(mut stream: impl AsyncWrite + Unpin, error: &'static [u8]) {
    let _ = timeout(Duration::from_secs(1), stream.write_all(error)).await;
}

//! RESP and HTTP servers of processes, and connections of clients to them in memory.

use std::net::{Ipv4Addr, SocketAddr};
use std::sync::{Arc, Mutex, OnceLock};

use lapsed_server::http::AppState;
use lapsed_server::resp::{Ends, Service};
use redis::aio::MultiplexedConnection;
use redis::{AsyncConnectionConfig, RedisConnectionInfo, RedisError};
use serde_json::Value;
use tokio::io::duplex;
use tokio::sync::oneshot;
use tokio::task::JoinSet;
use tokio_util::sync::CancellationToken;

use crate::http::{self, Method, Reply, Router};
use crate::record::Actor;

/// Bytes on the way in each direction.
const STREAM_BYTES: usize = 16 * 1024;

/// An address that nothing listens on.
pub const NO_ADDRESS: SocketAddr = SocketAddr::new(std::net::IpAddr::V4(Ipv4Addr::LOCALHOST), 1);

/// The servers of a process.
pub struct Server {
    /// The process.
    pub actor: Actor,
    service: Arc<Service>,
    app: AppState,
    /// Made for the first request: most processes get none.
    routes: OnceLock<Router>,
    stop: CancellationToken,
    connections: Mutex<JoinSet<()>>,
}

impl Server {
    pub fn new(actor: Actor, service: Service, app: AppState) -> Arc<Self> {
        Arc::new(Self {
            actor,
            service: Arc::new(service),
            stop: app.stopping.clone(),
            app,
            routes: OnceLock::new(),
            connections: Mutex::default(),
        })
    }

    /// Connects a client.
    pub async fn connect(&self) -> Result<MultiplexedConnection, RedisError> {
        let (ours, theirs) = duplex(STREAM_BYTES);
        let (service, stop) = (Arc::clone(&self.service), self.stop.clone());
        if !stop.is_cancelled() {
            let ends = Ends {
                client: NO_ADDRESS,
                server: NO_ADDRESS,
            };
            let mut connections = self.connections();
            while connections.try_join_next().is_some() {}
            connections.spawn(async move {
                let _ = service.serve(theirs, ends, stop).await;
            });
        }
        let info = RedisConnectionInfo::default();
        let config = AsyncConnectionConfig::new().set_response_timeout(None);
        let (connection, driver) =
            MultiplexedConnection::new_with_config(&info, ours, config).await?;
        tokio::spawn(driver);
        Ok(connection)
    }

    /// Sends a request of HTTP. No answer comes from a process that ends meanwhile.
    pub async fn request(
        &self,
        method: Method,
        path: String,
        body: Option<Value>,
    ) -> Result<Reply, String> {
        let (answer, answered) = oneshot::channel();
        if !self.stop.is_cancelled() {
            let routes = self
                .routes
                .get_or_init(|| lapsed_server::http::routes(self.app.clone()));
            let request = http::send(routes.clone(), NO_ADDRESS, method, path, body);
            self.connections().spawn(async move {
                let _ = answer.send(request.await);
            });
        }
        answered.await.unwrap_or(Err("no connection".to_owned()))
    }

    /// Answers the commands that have begun, and closes the connections.
    pub fn stop(&self) {
        self.stop.cancel();
    }

    /// Closes the connections, as the kernel does for a killed process.
    pub fn kill(&self) {
        self.stop.cancel();
        self.connections().abort_all();
    }

    fn connections(&self) -> std::sync::MutexGuard<'_, JoinSet<()>> {
        self.connections
            .lock()
            .expect("nothing panics while holding it")
    }
}

//! Connections: accepts them within limits, and ends them when the daemon stops.

use std::future::Future;
use std::sync::Arc;
use std::time::Duration;

use axum::Router;
use axum::extract::ConnectInfo;
use axum::http::Request;
use hyper::body::Incoming;
use hyper::server::conn::http1;
use hyper::service::{Service as _, service_fn};
use hyper_util::rt::{TokioIo, TokioTimer};
use hyper_util::server::graceful::GracefulShutdown;
use hyper_util::service::TowerToHyperService;
use tokio::io::AsyncWriteExt as _;
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::Semaphore;
use tokio::time::{sleep, timeout};

/// Limits of connections.
#[derive(Debug, Clone, Copy)]
pub struct Limits {
    /// Open connections. Further ones are answered with 503 and closed.
    pub connections: usize,
    /// Time for the headers of a request. A connection that is idle for longer is closed.
    pub headers_within: Duration,
    /// Number of headers of a request.
    pub headers: usize,
    /// Bytes of the headers of a request.
    pub header_bytes: usize,
}

impl Default for Limits {
    fn default() -> Self {
        Self {
            connections: 4_096,
            headers_within: Duration::from_secs(30),
            headers: 100,
            header_bytes: 64 * 1024,
        }
    }
}

/// Pause after an error of `accept`, such as too many open files.
const ACCEPT_PAUSE: Duration = Duration::from_millis(100);

/// Time for the answer to a connection that is refused.
const REFUSE_WITHIN: Duration = Duration::from_secs(1);

/// Serves until `stop` resolves. Then requests that have begun are answered, and idle connections are closed at once.
pub async fn serve(
    listener: TcpListener,
    router: Router,
    limits: Limits,
    stop: impl Future<Output = ()> + Send,
) {
    let room = Arc::new(Semaphore::new(limits.connections));
    let connections = GracefulShutdown::new();
    let mut server = http1::Builder::new();
    server
        .timer(TokioTimer::new())
        .header_read_timeout(limits.headers_within)
        .max_headers(limits.headers)
        .max_buf_size(limits.header_bytes);
    tokio::pin!(stop);
    loop {
        let accepted = tokio::select! {
            () = &mut stop => break,
            accepted = listener.accept() => accepted,
        };
        let (stream, address) = match accepted {
            Ok(accepted) => accepted,
            Err(error) => {
                tracing::warn!(%error, "could not accept a connection of HTTP");
                sleep(ACCEPT_PAUSE).await;
                continue;
            }
        };
        let Ok(permit) = Arc::clone(&room).try_acquire_owned() else {
            tracing::debug!(client.address = %address, "refused a connection of HTTP: there are too many");
            tokio::spawn(refuse(stream));
            continue;
        };
        let _ = stream.set_nodelay(true);
        let routes = TowerToHyperService::new(router.clone());
        let service = service_fn(move |mut request: Request<Incoming>| {
            request.extensions_mut().insert(ConnectInfo(address));
            routes.call(request)
        });
        let connection = server.serve_connection(TokioIo::new(stream), service);
        let connection = connections.watch(connection);
        tokio::spawn(async move {
            if let Err(error) = connection.await {
                tracing::debug!(%error, client.address = %address, "a connection of HTTP was lost");
            }
            drop(permit);
        });
    }
    drop(listener);
    connections.shutdown().await;
}

async fn refuse(mut stream: TcpStream) {
    let answer = b"HTTP/1.1 503 Service Unavailable\r\nconnection: close\r\nretry-after: 1\r\ncontent-length: 0\r\n\r\n";
    let _ = timeout(REFUSE_WITHIN, stream.write_all(answer)).await;
}

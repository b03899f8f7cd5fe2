//! Connections: accepts them within limits, and ends them when the daemon stops.

use std::future::Future;
use std::sync::Arc;
use std::time::Duration;

use axum::Router;
use axum::extract::ConnectInfo;
use axum::http::{Request, StatusCode, header};
use axum::response::IntoResponse as _;
use hyper::body::Incoming;
use hyper::server::conn::http1;
use hyper::service::{Service as _, service_fn};
use hyper_util::rt::{TokioIo, TokioTimer};
use hyper_util::server::graceful::GracefulShutdown;
use hyper_util::service::TowerToHyperService;
use tokio::io::AsyncWriteExt as _;
use tokio::net::{TcpListener, TcpStream};
use tokio::time::{sleep, timeout};
use tokio_util::sync::CancellationToken;

use super::access::PROBES;
use super::places::Places;
use crate::net::sockets::cut_silent;

/// Limits of connections.
#[derive(Debug, Clone, Copy)]
pub struct Limits {
    /// Open connections. A further one gets the place of the connection that has waited for a request for the longest. If all
    /// have requests, it is answered with 503 and closed.
    pub connections: usize,
    /// Further connections, on which only probes are answered.
    pub probes: usize,
    /// Time for the first request of a connection.
    pub first_request_within: Duration,
    /// Time for the headers of a request. A connection that is idle for longer is closed.
    pub headers_within: Duration,
    /// Number of headers of a request.
    pub headers: usize,
    /// Bytes of the headers of a request.
    pub header_bytes: usize,
    /// Time in which a client must take a part of what it is sent. The connection of one that does not read is cut.
    pub read_within: Duration,
    /// Time for requests that have begun when the server stops. What is left then is cut.
    pub end_within: Duration,
}

impl Default for Limits {
    fn default() -> Self {
        Self {
            connections: 4_096,
            probes: 64,
            first_request_within: Duration::from_secs(5),
            headers_within: Duration::from_secs(30),
            headers: 100,
            header_bytes: 64 * 1024,
            read_within: Duration::from_secs(30),
            end_within: Duration::from_secs(2),
        }
    }
}

/// Pause after an error of `accept`, such as too many open files.
const ACCEPT_PAUSE: Duration = Duration::from_millis(100);

/// Time for the answer to a connection that is refused.
const REFUSE_WITHIN: Duration = Duration::from_secs(1);

/// Serves until `stop` resolves. Then requests that have begun have `end_within` to be answered, and idle connections are
/// closed at once.
pub async fn serve(
    listener: TcpListener,
    router: Router,
    limits: Limits,
    stop: impl Future<Output = ()> + Send,
) {
    let places = Places::new(limits.connections, limits.probes);
    let connections = GracefulShutdown::new();
    let cut = CancellationToken::new();
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
        let Some(place) = places.take() else {
            tracing::debug!(client.address = %address, "refused a connection of HTTP: there are too many");
            tokio::spawn(refuse(stream));
            continue;
        };
        // A connection that is lost already ends by itself.
        let _ = cut_silent(&stream, limits.read_within);
        let routes = TowerToHyperService::new(router.clone());
        let at = Arc::clone(&place);
        let service = service_fn(move |mut request: Request<Incoming>| {
            request.extensions_mut().insert(ConnectInfo(address));
            let is_taken = at.only_probes && !PROBES.contains(&request.uri().path());
            // The server of `hyper` reads a little more than its buffer may have.
            let is_long = header_bytes(&request) > limits.header_bytes;
            let answer = (!is_taken && !is_long).then(|| routes.call(request));
            Arc::clone(&at).answer(async move {
                let close = (header::CONNECTION, "close");
                match answer {
                    Some(answer) => answer.await,
                    None if is_long => {
                        let status = StatusCode::REQUEST_HEADER_FIELDS_TOO_LARGE;
                        Ok((status, [close]).into_response())
                    }
                    None => {
                        let status = StatusCode::SERVICE_UNAVAILABLE;
                        Ok((status, [close, (header::RETRY_AFTER, "1")]).into_response())
                    }
                }
            })
        });
        let connection = server.serve_connection(TokioIo::new(stream), service);
        let connection = connections.watch(connection);
        let cut = cut.clone();
        tokio::spawn(async move {
            let silent = async {
                sleep(limits.first_request_within).await;
                if place.had_request() {
                    std::future::pending().await
                }
            };
            let why = tokio::select! {
                biased;
                ended = connection => match ended {
                    Ok(()) => return,
                    Err(error) => error.to_string(),
                },
                () = cut.cancelled() => "the daemon stops".to_owned(),
                () = place.closed() => "another one needed its place".to_owned(),
                () = silent => "no request came".to_owned(),
            };
            tracing::debug!(client.address = %address, why, "a connection of HTTP was lost or cut");
        });
    }
    drop(listener);
    let _ = timeout(limits.end_within, connections.shutdown()).await;
    cut.cancel();
}

/// Bytes of the headers as they were sent.
fn header_bytes(request: &Request<Incoming>) -> usize {
    const SIGNS: usize = ": \r\n".len();
    let headers = request.headers().iter();
    let bytes = headers.map(|(name, value)| name.as_str().len() + value.len() + SIGNS);
    bytes.sum()
}

async fn refuse(mut stream: TcpStream) {
    let answer = b"HTTP/1.1 503 Service Unavailable\r\nconnection: close\r\nretry-after: 1\r\ncontent-length: 0\r\n\r\n";
    let _ = timeout(REFUSE_WITHIN, stream.write_all(answer)).await;
}

#[cfg(test)]
mod tests {
    use std::convert::Infallible;
    use std::net::SocketAddr;

    use axum::body::{Body, Bytes};
    use axum::routing::get;
    use futures_util::stream;
    use tokio::io::AsyncReadExt as _;
    use tokio::sync::{Semaphore, oneshot};
    use tokio::task::JoinHandle;

    use super::*;

    /// Far beyond what a busy machine needs.
    const DEADLINE: Duration = Duration::from_secs(60);

    const SHORT: Duration = Duration::from_millis(300);

    struct Serving {
        address: SocketAddr,
        stop: Option<oneshot::Sender<()>>,
        serving: JoinHandle<()>,
        /// A permit for each endless answer that was given up.
        given_up: Arc<Semaphore>,
    }

    struct GivenUp(Arc<Semaphore>);

    impl Drop for GivenUp {
        fn drop(&mut self) {
            self.0.add_permits(1);
        }
    }

    impl Serving {
        /// `/` answers at once, `/endless` never ends its answer, `/slow` never begins it.
        async fn start(limits: Limits) -> Self {
            let given_up = Arc::new(Semaphore::new(0));
            let ends = Arc::clone(&given_up);
            let answer = move || {
                let end = GivenUp(Arc::clone(&ends));
                let parts = stream::repeat_with(move || {
                    let _ = &end;
                    Ok::<_, Infallible>(Bytes::from_static(&[b'x'; 16 * 1024]))
                });
                std::future::ready(Body::from_stream(parts))
            };
            let router = Router::new()
                .route("/", get("here"))
                .route("/healthz", get("here"))
                .route("/endless", get(answer))
                .route("/slow", get(std::future::pending::<()>));
            let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
            let address = listener.local_addr().unwrap();
            let (stop, stopped) = oneshot::channel();
            let stopped = async {
                let _ = stopped.await;
            };
            Self {
                address,
                stop: Some(stop),
                serving: tokio::spawn(serve(listener, router, limits, stopped)),
                given_up,
            }
        }

        /// Connects and sends this.
        async fn send(&self, bytes: &str) -> TcpStream {
            let mut stream = TcpStream::connect(self.address).await.unwrap();
            stream.write_all(bytes.as_bytes()).await.unwrap();
            stream
        }

        async fn stop(&mut self) {
            let _ = self.stop.take().unwrap().send(());
            let ended = timeout(DEADLINE, &mut self.serving).await;
            ended.expect("it stops").unwrap();
        }
    }

    fn ask(path: &str) -> String {
        format!("GET {path} HTTP/1.1\r\nhost: localhost\r\n\r\n")
    }

    /// Reads the head and the body of an answer of `/`.
    async fn answer(stream: &mut TcpStream) -> String {
        let mut read = String::new();
        let mut buffer = [0; 1_024];
        while !read.ends_with("here") {
            let length = stream.read(&mut buffer).await.unwrap();
            assert!(length > 0, "the connection ended: {read}");
            read += std::str::from_utf8(&buffer[..length]).unwrap();
        }
        read
    }

    /// Reads until the server closes the connection.
    async fn rest(stream: &mut TcpStream) -> String {
        let mut read = String::new();
        let ended = timeout(DEADLINE, stream.read_to_string(&mut read)).await;
        ended.expect("the connection ends").unwrap();
        read
    }

    #[tokio::test]
    async fn a_connection_beyond_the_limit_is_refused_while_all_others_have_requests() {
        let server = Serving::start(Limits {
            connections: 2,
            probes: 1,
            ..Limits::default()
        })
        .await;
        let first = server.send(&ask("/endless")).await;
        first.readable().await.unwrap();
        let second = server.send(&ask("/endless")).await;
        second.readable().await.unwrap();
        let mut third = server.send(&ask("/")).await;
        let refused = rest(&mut third).await;
        assert!(refused.starts_with("HTTP/1.1 503 "), "{refused}");
        assert!(refused.contains("\r\nretry-after: 1\r\n"), "{refused}");
        let mut probe = server.send(&ask("/healthz")).await;
        answer(&mut probe).await;
        drop(first);
        let room = async {
            loop {
                let mut stream = TcpStream::connect(server.address).await.unwrap();
                let mut read = [0; 12];
                let _ = stream.write_all(ask("/").as_bytes()).await;
                if stream.read_exact(&mut read).await.is_ok() && read == *b"HTTP/1.1 200" {
                    return;
                }
            }
        };
        timeout(DEADLINE, room).await.expect("there is room again");
    }

    #[tokio::test]
    async fn connections_that_send_nothing_keep_no_others_out() {
        let server = Serving::start(Limits {
            connections: 3,
            ..Limits::default()
        })
        .await;
        let mut idle = server.send(&ask("/")).await;
        answer(&mut idle).await;
        let mut silent = Vec::new();
        for _ in 0..20 {
            silent.push(server.send("").await);
        }
        let mut late = server.send(&ask("/")).await;
        answer(&mut late).await;
        // The oldest are closed.
        assert_eq!(rest(&mut silent[0]).await, "");
        assert_eq!(rest(&mut idle).await, "");
    }

    #[tokio::test]
    async fn a_client_that_sends_slowly_or_nothing_is_cut() {
        let server = Serving::start(Limits {
            headers_within: SHORT,
            first_request_within: SHORT,
            ..Limits::default()
        })
        .await;
        let mut silent = server.send("").await;
        assert_eq!(rest(&mut silent).await, "");
        let mut slow = server.send("GET / HTTP/1.1\r\nhost: lo").await;
        assert_eq!(rest(&mut slow).await, "");
        let mut idle = server.send(&ask("/")).await;
        let read = rest(&mut idle).await;
        assert!(read.starts_with("HTTP/1.1 200 "), "{read}");
        assert!(read.ends_with("here"), "{read}");
    }

    #[cfg(target_os = "linux")]
    #[tokio::test]
    async fn a_client_that_does_not_read_is_cut() {
        let server = Serving::start(Limits {
            read_within: SHORT,
            ..Limits::default()
        })
        .await;
        let _deaf = server.send(&ask("/endless")).await;
        let given_up = timeout(DEADLINE, server.given_up.acquire()).await;
        assert!(given_up.is_ok(), "the answer goes on");
    }

    #[tokio::test]
    async fn a_stop_cuts_what_does_not_end() {
        let mut server = Serving::start(Limits {
            end_within: SHORT,
            ..Limits::default()
        })
        .await;
        let mut idle = server.send(&ask("/")).await;
        answer(&mut idle).await;
        let mut half = server.send("GET / HTTP/1.1\r\nhost: lo").await;
        let mut slow = server.send(&ask("/slow")).await;
        let deaf = server.send(&ask("/endless")).await;
        // Data has arrived: the answer has begun.
        deaf.readable().await.unwrap();
        server.stop().await;
        for stream in [&mut idle, &mut half, &mut slow] {
            assert_eq!(rest(stream).await, "");
        }
        let given_up = timeout(DEADLINE, server.given_up.acquire()).await;
        assert!(given_up.is_ok(), "the answer goes on");
    }
}

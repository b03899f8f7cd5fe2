//! Somebody's HTTP server, which need not be kind.

use std::collections::BTreeMap;
use std::net::Ipv4Addr;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};

use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};
use tokio::task::JoinHandle;

/// What arrived.
#[derive(Debug, Clone)]
pub struct Request {
    /// Its first line's path and query.
    pub path: String,
    /// By their names in lower case.
    pub headers: BTreeMap<String, String>,
    pub body: String,
}

/// What becomes of it.
pub enum Answer {
    /// Status, lines of headers, body.
    Say(u16, &'static str, String),
    /// Nothing at all.
    Silence,
    /// The connection is reset.
    Reset,
    /// A status, and then a body that has no end.
    Flood(u16),
    /// A status and the beginning of a body, and no more.
    Stall(u16),
}

impl Answer {
    pub fn status(status: u16) -> Self {
        Self::Say(status, "", String::new())
    }
}

/// A server on a port of its own, until it is dropped.
pub struct Receiver {
    port: u16,
    seen: Arc<Seen>,
    serving: JoinHandle<()>,
}

#[derive(Default)]
struct Seen {
    requests: Mutex<Vec<Request>>,
    connections: AtomicUsize,
    bytes_written: AtomicU64,
}

impl Receiver {
    /// `answer` gets each request, and how many of its path there were before.
    pub async fn start(answer: impl Fn(&Request, usize) -> Answer + Send + Sync + 'static) -> Self {
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).await.unwrap();
        let port = listener.local_addr().unwrap().port();
        let seen = Arc::new(Seen::default());
        let (answer, shared) = (Arc::new(answer), Arc::clone(&seen));
        let serving = tokio::spawn(async move {
            while let Ok((stream, _)) = listener.accept().await {
                shared.connections.fetch_add(1, Ordering::Relaxed);
                let (answer, shared) = (Arc::clone(&answer), Arc::clone(&shared));
                tokio::spawn(async move { serve(stream, &*answer, &shared).await });
            }
        });
        Self {
            port,
            seen,
            serving,
        }
    }

    pub fn url(&self, path: &str) -> String {
        format!("http://127.0.0.1:{}{path}", self.port)
    }

    pub fn requests(&self) -> Vec<Request> {
        self.seen.requests.lock().unwrap().clone()
    }

    pub fn requests_to(&self, path: &str) -> Vec<Request> {
        let mut requests = self.requests();
        requests.retain(|request| request.path == path);
        requests
    }

    /// How many were accepted.
    pub fn connections(&self) -> usize {
        self.seen.connections.load(Ordering::Relaxed)
    }

    /// How much of its floods was taken.
    pub fn bytes_written(&self) -> u64 {
        self.seen.bytes_written.load(Ordering::Relaxed)
    }
}

impl Drop for Receiver {
    fn drop(&mut self) {
        self.serving.abort();
    }
}

async fn serve(
    mut stream: TcpStream,
    answer: &(impl Fn(&Request, usize) -> Answer + Sync),
    seen: &Seen,
) {
    while let Some(request) = read(&mut stream).await {
        let before = {
            let mut requests = seen.requests.lock().unwrap();
            let same = requests.iter().filter(|other| other.path == request.path);
            let before = same.count();
            requests.push(request.clone());
            before
        };
        match answer(&request, before) {
            Answer::Say(status, headers, body) => {
                let length = body.len();
                let text = format!(
                    "HTTP/1.1 {status} Said\r\ncontent-length: {length}\r\n{headers}\r\n{body}"
                );
                if stream.write_all(text.as_bytes()).await.is_err() {
                    return;
                }
            }
            Answer::Silence => std::future::pending().await,
            Answer::Reset => {
                stream.set_zero_linger().unwrap();
                return;
            }
            Answer::Stall(status) => {
                let head = format!("HTTP/1.1 {status} Said\r\ncontent-length: 100\r\n\r\nbegun");
                stream.write_all(head.as_bytes()).await.unwrap();
                std::future::pending().await
            }
            Answer::Flood(status) => {
                let head = format!("HTTP/1.1 {status} Said\r\n\r\n");
                stream.write_all(head.as_bytes()).await.unwrap();
                while stream.write_all(&[b'z'; 16 * 1024]).await.is_ok() {
                    seen.bytes_written.fetch_add(16 * 1024, Ordering::Relaxed);
                }
                return;
            }
        }
    }
}

/// One request; `None` when the other side has closed.
async fn read(stream: &mut TcpStream) -> Option<Request> {
    let mut bytes = Vec::new();
    let end = loop {
        let found = bytes.windows(4).position(|window| window == b"\r\n\r\n");
        match found {
            Some(end) => break end + 4,
            None if stream.read_buf(&mut bytes).await.ok()? == 0 => return None,
            None => {}
        }
    };
    let head = String::from_utf8(bytes[..end].to_vec()).unwrap();
    let mut lines = head.lines();
    let path = lines.next()?.split(' ').nth(1)?.to_owned();
    let headers: BTreeMap<String, String> = lines
        .filter_map(|line| line.split_once(": "))
        .map(|(name, value)| (name.to_ascii_lowercase(), value.to_owned()))
        .collect();
    let length: usize = headers
        .get("content-length")
        .map_or(0, |length| length.parse().unwrap());
    while bytes.len() < end + length {
        if stream.read_buf(&mut bytes).await.ok()? == 0 {
            return None;
        }
    }
    let body = String::from_utf8(bytes[end..end + length].to_vec()).unwrap();
    Some(Request {
        path,
        headers,
        body,
    })
}

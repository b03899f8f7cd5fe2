//! A client's connection to the HTTP API of the measured daemon.

use std::net::SocketAddr;
use std::time::Duration;

use anyhow::{Context, bail};
use http_body_util::{BodyExt as _, Full};
use hyper::body::{Bytes, Incoming};
use hyper::client::conn::http1::{SendRequest, handshake};
use hyper::header::{ACCEPT_ENCODING, CONTENT_TYPE, HOST};
use hyper::{Request, Response, StatusCode};
use hyper_util::rt::TokioIo;
use tokio::net::TcpStream;
use tokio::task::AbortHandle;
use tokio::time::{Instant, timeout};

/// Time limit of an answer, in case the daemon hangs.
const ANSWERED_WITHIN: Duration = Duration::from_secs(30);

/// An open connection; closed when dropped.
pub struct Connection {
    host: String,
    sender: SendRequest<Full<Bytes>>,
    driver: AbortHandle,
}

/// An answer, and how long it took from the first byte of the request to its last byte.
pub struct Answer {
    pub status: StatusCode,
    pub body: Bytes,
    pub took: Duration,
}

impl Connection {
    pub async fn open(address: SocketAddr) -> anyhow::Result<Self> {
        let stream = TcpStream::connect(address).await?;
        stream.set_nodelay(true)?;
        let (sender, connection) = handshake(TokioIo::new(stream)).await?;
        let driver = tokio::spawn(async move {
            // The sender of a request gets the error, too.
            let _ = connection.await;
        });
        Ok(Self {
            host: address.to_string(),
            sender,
            driver: driver.abort_handle(),
        })
    }

    /// Reads this path. With `gzip`, its body stays compressed.
    pub async fn get(&mut self, path: &str, gzip: bool) -> anyhow::Result<Answer> {
        let encoding = if gzip { "gzip" } else { "identity" };
        let request = self.request("GET", path).header(ACCEPT_ENCODING, encoding);
        let request = request.body(Full::default())?;
        self.send(request).await
    }

    /// Posts a JSON document to this path.
    pub async fn post(&mut self, path: &str, json: String) -> anyhow::Result<Answer> {
        let request = self.request("POST", path);
        let request = request.header(CONTENT_TYPE, "application/json");
        self.send(request.body(Full::from(json))?).await
    }

    /// Begins to read an endless answer.
    pub async fn follow(&mut self, path: &str) -> anyhow::Result<Incoming> {
        let request = self.request("GET", path).body(Full::default())?;
        let answer = self.answer(request).await?;
        if answer.status() != StatusCode::OK {
            bail!("the daemon answered `{path}` with {}", answer.status());
        }
        Ok(answer.into_body())
    }

    fn request(&self, method: &str, path: &str) -> hyper::http::request::Builder {
        let request = Request::builder().method(method).uri(path);
        request.header(HOST, &self.host)
    }

    async fn send(&mut self, request: Request<Full<Bytes>>) -> anyhow::Result<Answer> {
        let started = Instant::now();
        let answer = self.answer(request).await?;
        let status = answer.status();
        let body = timeout(ANSWERED_WITHIN, answer.into_body().collect());
        let body = body.await.context("wait for the rest of an answer")??;
        Ok(Answer {
            status,
            body: body.to_bytes(),
            took: started.elapsed(),
        })
    }

    async fn answer(
        &mut self,
        request: Request<Full<Bytes>>,
    ) -> anyhow::Result<Response<Incoming>> {
        self.sender.ready().await?;
        let answer = timeout(ANSWERED_WITHIN, self.sender.send_request(request));
        Ok(answer.await.context("wait for an answer")??)
    }
}

impl Drop for Connection {
    fn drop(&mut self) {
        self.driver.abort();
    }
}

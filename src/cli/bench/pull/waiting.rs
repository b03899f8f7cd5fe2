//! Connections that wait: workers at an empty queue, and clients that send nothing.

use std::net::SocketAddr;

use anyhow::{Context, ensure};
use futures_util::{StreamExt, TryStreamExt, stream};
use rustix::process::{Resource, getrlimit, setrlimit};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;

use crate::bench::queues::EMPTY_QUEUE;

/// Connections that are opened at the same time.
const AT_ONCE: usize = 64;

/// The answer to `PING`.
const PONG: &str = "+PONG\r\n";

/// Open connections; closed when dropped.
pub struct WaitingConnections {
    _connections: Vec<TcpStream>,
}

/// Raises the limit of open files of this process and of those that it starts.
pub fn allow_files(files: u64) -> anyhow::Result<()> {
    let mut limit = getrlimit(Resource::Nofile);
    if limit.current.is_none_or(|current| current >= files) {
        return Ok(());
    }
    ensure!(
        limit.maximum.is_none_or(|most| most >= files),
        "these connections need {files} open files, the limit is {}: raise it with `ulimit -n {files}`",
        limit.maximum.unwrap_or(u64::MAX)
    );
    limit.current = Some(files);
    setrlimit(Resource::Nofile, limit).context("raise the limit of open files")
}

impl WaitingConnections {
    /// Opens the connections. Returns when the daemon has answered each once.
    pub async fn gather(resp: SocketAddr, waiting: u32, idle: u32) -> anyhow::Result<Self> {
        let take = format!("LAPSED.TAKE {EMPTY_QUEUE} BLOCK 0\r\n");
        let open = |number: u32| {
            let take = take.clone();
            async move {
                let mut stream = TcpStream::connect(resp).await?;
                stream.write_all(b"PING\r\n").await?;
                stream.read_exact(&mut [0; PONG.len()]).await?;
                if number < waiting {
                    stream.write_all(take.as_bytes()).await?;
                }
                std::io::Result::Ok(stream)
            }
        };
        let opening = stream::iter((0..waiting + idle).map(open)).buffer_unordered(AT_ONCE);
        let connections = opening.try_collect().await;
        let connections: Vec<TcpStream> = connections.context("connect to the RESP server")?;
        Ok(Self {
            _connections: connections,
        })
    }
}

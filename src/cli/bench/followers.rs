//! Clients that follow the hints of the daemon, as open pages of the dashboard do.

use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use anyhow::Context;
use futures_util::{StreamExt as _, TryStreamExt as _, stream};
use http_body_util::BodyExt as _;
use tokio::task::JoinSet;

use super::connection::Connection;

/// The stream of hints.
const EVENTS: &str = "/v1/events";

/// Connections that are opened at the same time.
const AT_ONCE: usize = 64;

/// Number of clients that followed to the end, and bytes that all of them have read.
#[derive(Debug, Clone, Copy, Default)]
pub struct Followed {
    pub clients: u64,
    pub bytes: u64,
}

/// Clients that read hints; they leave when dropped.
pub struct Followers {
    reading: JoinSet<()>,
    bytes: Arc<AtomicU64>,
}

impl Followers {
    /// Opens the connections. Returns when the daemon has begun to answer each.
    pub async fn gather(address: SocketAddr, count: u32) -> anyhow::Result<Self> {
        let open = |_| async move {
            let mut connection = Connection::open(address).await?;
            let hints = connection.follow(EVENTS).await?;
            anyhow::Ok((connection, hints))
        };
        let opened = stream::iter((0..count).map(open)).buffer_unordered(AT_ONCE);
        let opened: Vec<_> = opened.try_collect().await.context("follow the hints")?;
        let bytes = Arc::new(AtomicU64::new(0));
        let mut reading = JoinSet::new();
        for (connection, mut hints) in opened {
            let bytes = Arc::clone(&bytes);
            reading.spawn(async move {
                while let Some(Ok(frame)) = hints.frame().await {
                    let read = frame.data_ref().map_or(0, |data| data.len() as u64);
                    bytes.fetch_add(read, Ordering::Relaxed);
                }
                drop(connection);
            });
        }
        Ok(Self { reading, bytes })
    }

    /// Lets them leave.
    pub fn leave(mut self) -> Followed {
        while self.reading.try_join_next().is_some() {}
        Followed {
            clients: self.reading.len() as u64,
            bytes: self.bytes.load(Ordering::Relaxed),
        }
    }
}

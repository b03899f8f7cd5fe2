//! Streams to a server that is not reached through the network: a model of Redis in the same process.

use std::future::Future;
use std::io;
use std::pin::Pin;

use redis::aio::AsyncStream;

/// A stream on which a connection speaks RESP.
pub type Stream = Pin<Box<dyn AsyncStream + Send>>;

/// Opens the stream of each new connection.
pub trait Connector: Send + Sync {
    /// Opens a stream. The caller limits the time.
    ///
    /// # Errors
    /// If the server refuses the connection.
    fn connect(&self) -> Pin<Box<dyn Future<Output = io::Result<Stream>> + Send + '_>>;
}

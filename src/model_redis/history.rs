//! What happened to keys.

use std::sync::Arc;

use lapsed_core::task::UnixMs;

use crate::request::Words;

/// A change of a key.
#[derive(Debug, Clone, PartialEq)]
pub struct Change {
    /// When, on the server's clock.
    pub at: UnixMs,
    /// The database.
    pub db: u32,
    /// The key. Empty for changes of a whole database.
    pub key: Vec<u8>,
    /// The event: `set`, `expire`, `expired`, `del`, `zadd`, .. and `flushdb`, `restart`, `forged`, which Redis does not
    /// publish.
    pub what: &'static str,
    /// When the key expires after this change; of `expired`, when it should have.
    pub due: Option<UnixMs>,
    /// The command. `None` if the server acted on its own.
    pub command: Option<Arc<Words>>,
}

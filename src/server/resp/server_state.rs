//! The state of the RESP server: what all connections share.

use std::fmt;
use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::AtomicU64;
use std::time::Duration;

use futures_util::future::BoxFuture;
use tokio::sync::{Semaphore, SemaphorePermit};
use tokio::time::Instant;

use super::auth::Users;
use crate::net::audit_log::AuditLog;
use crate::net::room::Room;
use lapsed::client::TaskClient;
use lapsed::config::RespConfig;
use lapsed::engine::PullQueues;
use lapsed::task::UnixMs;
use lapsed_core::telemetry::Metrics;

/// The version of Redis whose commands and replies these are. Clients choose their protocol and commands by it.
pub const REDIS_VERSION: &str = "7.4.0";

/// Memory that all clients together may make it take.
const ROOM_BYTES: usize = 16 * 1024 * 1024;

/// Connections with more input than every connection may hold whose commands are carried out at the same time. Others get
/// their turn on the processors between them, however many there are.
const LARGE_INPUTS: usize = 32;

/// Keys of commands with several that are read or written at the same time. A command with one key does not wait for those.
const TURNS: usize = 4096;

/// The clock of a daemon for tests.
pub trait SetForward: fmt::Debug + Send + Sync {
    /// Sets it forward, and starts what falls due. Returns the new time.
    ///
    /// # Errors
    /// Why it was not set.
    fn set_forward(&self, by: Duration) -> BoxFuture<'static, Result<UnixMs, String>>;
}

/// What all connections share.
pub struct ServerState {
    /// The producer.
    pub tasks: TaskClient,
    /// The pull queues of the engine, if one runs in this process.
    pub workers: Option<PullQueues>,
    /// The clock, if it can be set.
    pub clock: Option<Arc<dyn SetForward>>,
    /// Who may connect.
    pub users: Users,
    /// Who changed what; `None`: changes have no entries.
    pub audit_log: Option<AuditLog>,
    /// The metrics.
    pub metrics: Arc<Metrics>,
    /// The configuration.
    pub config: RespConfig,
    /// Address of the listener.
    pub address: SocketAddr,
    /// When it was opened.
    pub since: Instant,
    /// Random name of this process, as `run_id` of Redis.
    pub run_id: String,
    /// Connections so far.
    pub accepted: AtomicU64,
    /// Connections now.
    pub connected: AtomicU64,
    /// The memory that clients may use.
    pub room: Arc<Room>,
    /// For a `SCAN`, whose pattern takes time to compare: one at a time.
    pub scans: Semaphore,
    /// For the connections with much input.
    pub large_inputs: Arc<Semaphore>,
    turns: Semaphore,
}

impl ServerState {
    /// Creates it for a listener at `address`.
    pub fn new(
        tasks: TaskClient,
        metrics: Arc<Metrics>,
        config: RespConfig,
        address: SocketAddr,
    ) -> Self {
        Self {
            tasks,
            workers: None,
            clock: None,
            users: Users::new(&config.users, config.masks.clone(), Arc::clone(&metrics)),
            audit_log: None,
            metrics,
            config,
            address,
            since: Instant::now(),
            run_id: format!(
                "{:032x}{:08x}",
                rand::random::<u128>(),
                rand::random::<u32>()
            ),
            accepted: AtomicU64::new(0),
            connected: AtomicU64::new(0),
            room: Room::new(ROOM_BYTES),
            scans: Semaphore::new(1),
            large_inputs: Arc::new(Semaphore::new(LARGE_INPUTS)),
            turns: Semaphore::new(TURNS),
        }
    }

    /// Waits for the turn of commands with this number of keys together.
    pub async fn turn(&self, keys: usize) -> Option<SemaphorePermit<'_>> {
        match u32::try_from(keys.min(TURNS)) {
            Ok(keys @ 2..) => self.turns.acquire_many(keys).await.ok(),
            _ => None,
        }
    }
}

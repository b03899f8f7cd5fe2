//! What all connections share.

use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::AtomicU64;

use tokio::time::Instant;

use super::auth::Users;
use crate::client::TaskClient;
use crate::config::RespConfig;
use crate::engine::PullQueues;
use crate::telemetry::Metrics;

/// The version of Redis whose commands and replies these are. Clients choose their protocol and commands by it.
pub const REDIS_VERSION: &str = "7.4.0";

/// What all connections share.
pub struct Door {
    /// The producer.
    pub tasks: TaskClient,
    /// The pull queues of the engine, if one runs in this process.
    pub workers: Option<PullQueues>,
    /// Who may connect.
    pub users: Users,
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
}

impl Door {
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
            users: Users::new(&config.users),
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
        }
    }
}

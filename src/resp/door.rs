//! What all connections share.

use std::hash::{BuildHasher, RandomState};
use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicI64, AtomicU64, Ordering};

use tokio::time::Instant;

use super::auth::Users;
use crate::client::TaskClient;
use crate::config::RespConfig;
use crate::engine::PullQueues;
use crate::task::{TaskKey, UnixMs};
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
    recent: RecentDues,
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
            recent: RecentDues::default(),
        }
    }

    /// Returns a due time for a task that is written without reading its row: `due`, or a millisecond later if the key was
    /// given that very due time just before. The same due time again would change nothing, not the payload either.
    pub fn distinct_due(&self, key: &TaskKey, due: UnixMs) -> UnixMs {
        self.recent.next(key, due)
    }
}

/// Number of places for recent due times; 32 KiB. Two keys of one place can cost a task a millisecond.
const PLACES: usize = 4096;

/// The due times that keys were given last.
struct RecentDues {
    hasher: RandomState,
    places: Box<[AtomicI64]>,
}

impl Default for RecentDues {
    fn default() -> Self {
        Self {
            hasher: RandomState::new(),
            places: (0..PLACES).map(|_| AtomicI64::new(0)).collect(),
        }
    }
}

impl RecentDues {
    fn next(&self, key: &TaskKey, due: UnixMs) -> UnixMs {
        let place = self.hasher.hash_one(key) as usize % PLACES;
        let place = &self.places[place];
        let before = place.load(Ordering::Relaxed);
        let due = due.0 + i64::from(before == due.0);
        place.store(due, Ordering::Relaxed);
        UnixMs(due)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_key_does_not_get_the_same_due_time_twice_in_a_row() {
        let recent = RecentDues::default();
        let key = TaskKey::parse("C@m").unwrap();
        let dues = [5, 5, 5, 9].map(|due| recent.next(&key, UnixMs(due)).0);
        assert_eq!(dues, [5, 6, 5, 9]);
    }
}

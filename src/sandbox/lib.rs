//! Private servers for tests, demos and benchmarks.
//!
//! [`PrivateRedis`] and [`PrivateMaria`] start a private server on a free port of 127.0.0.1, with its data in
//! a temporary directory, and return when it is ready. Any number can run in parallel. A server dies with the
//! value that holds it, and also when the whole process is killed: it is started through `setpriv --pdeathsig`.
//!
//! [`PrivateCluster`] starts several Redis servers as one Redis Cluster, [`PrivateGalera`] several MariaDB servers as one
//! Galera cluster, [`PrivateGroup`] several MySQL servers as one group. [`PrivateNetwork`] gives each node links that can be cut.
//!
//! Faults are easy to inject: [`kill`](PrivateRedis::kill) and restart, or [`stop_process`](PrivateRedis::stop_process)
//! for a server that accepts connections and never answers.

mod cluster;
mod error;
mod galera;
mod group;
mod home;
mod maria;
mod network;
mod port;
mod process;
mod redis;

pub use cluster::PrivateCluster;
pub use error::SandboxError;
pub use galera::PrivateGalera;
pub use group::PrivateGroup;
pub use maria::{MariaOptions, PrivateMaria};
pub use network::PrivateNetwork;
pub use redis::{PrivateRedis, RedisOptions};

//! The Redis client: connections, key commands, notification flags, and the subscription.
//!
//! Only this module uses the redis crate. It knows no timer, ledger or engine. Keys go in and out as
//! [`TaskKey`](lapsed_core::task::TaskKey), and event names as a closed [`Heard`].
#![forbid(unsafe_code)]
#![cfg_attr(not(test), warn(clippy::unwrap_used))]

mod address;
pub mod alarms;
mod client;
mod cluster;
mod commands;
mod connection;
mod connector;
#[cfg(feature = "engine")]
mod delivery;
mod error;
#[cfg(feature = "engine")]
mod inspection;
mod keyspace;
mod link;
mod master;
#[cfg(feature = "engine")]
mod members;
mod names;
#[cfg(feature = "engine")]
mod notify;
mod scored_sets;
#[cfg(feature = "engine")]
mod subscription;
#[cfg(feature = "engine")]
pub mod timer;
#[cfg(feature = "engine")]
mod token_bucket;
mod wheel;

pub use address::Address;
pub use client::LIBRARY;
pub use cluster::{Cluster, Master, Topology};
pub use commands::Commands;
pub use connection::Endpoint;
#[doc(hidden)] // for a model of the server
pub use connector::{Connector, Stream};
#[cfg(feature = "engine")]
pub use delivery::{DelayedSet, Deliveries, DueJob, MovedJob, RegisterPage, SeenJob};
pub use error::RedisError;
#[cfg(feature = "engine")]
pub use inspection::{Client, Facts, Inspection, Listeners};
pub use keyspace::{ArmedKey, Existing, Found, Holds, Keyspace, Put, Role, Server, Ttl, Value};
#[cfg(feature = "engine")]
pub use members::Members;
pub use names::{EventKind, Heard, LedgerName, Names, ProbeId};
#[cfg(feature = "engine")]
pub use notify::{Events, Notifications, NotifyFlags, ensure_notifications, notify_flags};
pub use scored_sets::{
    EntryAnswer, EntryToTake, Held, Proof, Register, ScoreChange, ScoredEntry, ScoredSets,
    TakenEntry, WriteMode,
};
#[cfg(feature = "engine")]
pub use subscription::{Backlog, Connected, Loss, Subscription};
#[cfg(feature = "engine")]
pub use token_bucket::{FullAt, TokenBuckets};
#[cfg(feature = "engine")]
pub use wheel::{Handling, Taken, Taking};
pub use wheel::{LastTick, Run, SlotEntry, WheelKeys};

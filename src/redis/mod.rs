//! The Redis client: connections, key commands, notification flags, and the subscription.
//!
//! Only this module uses the redis crate. It knows no timer, ledger or engine. Keys go in and out as
//! [`TaskKey`](crate::task::TaskKey), and event names as a closed [`Heard`].

mod connection;
mod delivery;
mod error;
#[cfg(feature = "doctor")]
mod inspection;
mod keyspace;
mod members;
mod names;
mod notify;
mod scored_sets;
mod subscription;
mod token_bucket;
mod wheel;

#[cfg(feature = "doctor")]
pub use connection::LIBRARY;
pub use connection::{Commands, Endpoint};
pub use delivery::Deliveries;
pub use error::RedisError;
#[cfg(feature = "doctor")]
pub use inspection::{Client, Facts, Inspection, Listeners};
pub use keyspace::{ArmedKey, Existing, Found, Keyspace, Put, Role, Server, Ttl, Value};
pub use members::Members;
pub use names::{EventKind, Heard, LedgerName, Names, ProbeId};
pub use notify::{Events, Notifications, NotifyFlags, ensure_notifications, notify_flags};
pub use scored_sets::{
    EntryAnswer, EntryToTake, Proof, Register, ScoreChange, ScoredEntry, ScoredSets, TakenEntry,
    WriteMode,
};
pub use subscription::{Backlog, Connected, Loss, Subscription};
pub use token_bucket::{FullAt, TokenBuckets};
pub use wheel::{Handling, LastTick, Run, SlotEntry, Taken, Taking, WheelKeys};

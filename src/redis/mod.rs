//! The Redis client: connections, key commands, notification flags, and the subscription.
//!
//! Only this module uses the redis crate. It knows no timer, ledger or engine. Keys go in and out as
//! [`TaskKey`](crate::task::TaskKey), and event names as a closed [`Heard`].

mod connection;
mod delivery;
mod error;
mod inspection;
mod keyspace;
mod members;
mod names;
mod notify;
mod subscription;
mod token_bucket;

pub use connection::{Commands, Endpoint, LIBRARY};
pub use delivery::Deliveries;
pub use error::RedisError;
pub use inspection::{Client, Facts, Inspection, Listeners};
pub use keyspace::{ArmedKey, Existing, Found, Keyspace, Put, Role, Ttl, Value};
pub use members::Members;
pub use names::{EventKind, Heard, LedgerName, Names, ProbeId};
pub use notify::{Events, Notifications, NotifyFlags, ensure_notifications};
pub use subscription::{Connected, Loss};
pub use token_bucket::{FullAt, TokenBuckets};

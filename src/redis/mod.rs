//! Everything that speaks Redis: connections, the verbs on our keys, notify flags, the subscription.
//!
//! The only place that knows the redis crate. It knows no timer, no ledger and no engine: names come
//! in and go out as [`TaskKey`](crate::task::TaskKey)s, and what is heard as a closed [`Heard`].

mod connection;
mod delivery;
mod error;
mod inspect;
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
pub use inspect::{Found, ScanPage, Value};
pub use inspection::{Client, Facts, Inspection, Listeners};
pub use keyspace::{ArmedKey, Existing, Keyspace, Put, Role, Server, Ttl};
pub use members::Members;
pub use names::{EventKind, Heard, LedgerName, Names, ProbeId};
pub use notify::{Events, Notifications, NotifyFlags, ensure_notifications};
pub use subscription::{Connected, Loss, Subscription};
pub use token_bucket::{FullAt, TokenBuckets};

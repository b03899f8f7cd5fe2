//! Everything that speaks Redis: connections, the verbs on our keys, notify flags, the subscription.
//!
//! The only place that knows the redis crate. It knows no timer, no ledger and no engine: names come
//! in and go out as [`TaskKey`](crate::task::TaskKey)s, and what is heard as a closed [`Heard`].

mod buckets;
mod connection;
mod delivery;
mod error;
mod inspection;
mod keyspace;
mod look;
mod members;
mod names;
mod notify;
mod session;

pub use buckets::{Buckets, FullAt};
pub use connection::{Commands, Endpoint, LIBRARY};
pub use delivery::Deliveries;
pub use error::RedisError;
pub use inspection::{Client, Facts, Inspection, Listeners};
pub use keyspace::{ArmedKey, Existing, Keyspace, Put, Role, Server, Ttl};
pub use look::{Found, ScanPage, Value};
pub use members::Members;
pub use names::{EventKind, Heard, LedgerName, Names, ProbeId};
pub use notify::{Events, Notifications, NotifyFlags, ensure_notifications};
pub use session::{Connected, Loss, Subscription};

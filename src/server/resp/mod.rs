//! The RESP server: Redis clients create, move, cancel and show tasks by Redis' own commands.
//!
//! `+OK` is sent after the commit of the ledger. A key is a task, its expiry is the due time, its value is the payload.
//! Commands have the replies and error texts of Redis; what is not scheduling is refused with an error that says so.
//!
//! ```text
//! listener ── service ── connection: parser ── dispatch ──┬── batch ── keyspace ── TaskClient
//!                         (bytes)     (ranges)  (command)  └── a command that is not about tasks by key
//! ```

mod actor;
mod auth;
mod batch;
mod client;
mod clock;
mod command;
mod commands;
mod connection;
mod control;
mod counters;
mod dispatch;
mod error_code;
mod execute;
mod expiry;
#[cfg(feature = "fuzzing")]
#[doc(hidden)] // for the fuzz targets
pub mod fuzzing;
mod glob;
mod guests;
mod handshake;
mod introspection;
mod keyed;
mod keys;
mod keyspace;
mod lapsed;
mod listener;
mod parser;
mod pieces;
mod pubsub;
mod reply;
mod server;
mod server_state;
mod service;
mod session;
mod socket;
mod strings;
mod tls;
mod transactions;
mod unsent_deliveries;
mod watched;
mod workers;

pub use self::auth::hash_password;
#[cfg(all(test, feature = "http"))]
pub(crate) use self::error_code::ErrorCode;
pub use self::listener::{Listener, OpenError};
pub use self::server_state::SetForward;
pub use self::service::{Ends, Service};

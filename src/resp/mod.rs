//! Front door for Redis clients: creates, moves, cancels and shows tasks by Redis' own commands.
//!
//! `+OK` is sent after the commit of the ledger. A key is a task, its expiry is the due time, its value is the payload.
//! Commands have the replies and error texts of Redis; what is not scheduling is refused with an error that says so.
//!
//! ```text
//! listener ── connection: parser ── dispatch ──┬── batch ── keyspace ── TaskClient
//!             (bytes)     (ranges)  (command)  └── a command that is not about tasks by key
//! ```

mod auth;
mod batch;
mod client;
mod command;
mod commands;
mod connection;
mod control;
mod counters;
mod dispatch;
mod door;
mod expiry;
mod glob;
mod guests;
mod handed;
mod handshake;
mod introspection;
mod keyed;
mod keys;
mod keyspace;
mod lapsed;
mod listener;
mod parser;
mod pubsub;
mod reply;
mod server;
mod session;
mod strings;
mod tls;
mod transactions;
mod watched;
mod workers;

pub use self::auth::hash_password;
pub use self::listener::{Listener, OpenError};

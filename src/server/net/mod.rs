//! What the servers share: the audit log, the sockets of their clients, the memory that clients may use, and limits on guesses.

pub mod audit_log;
pub mod failures;
pub mod login_log;
pub mod room;
pub mod sockets;
mod subnet;

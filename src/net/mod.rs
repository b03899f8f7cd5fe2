//! What the servers share: the sockets of their clients, the memory that clients may use, and limits on guesses.

pub mod failures;
pub mod login_log;
pub mod room;
pub mod sockets;
mod subnet;

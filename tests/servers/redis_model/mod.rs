//! What Redis does with keys that expire, asserted against redis-server and against the model of it; and random commands,
//! to which both give the same replies and events.

#![allow(clippy::unwrap_used, reason = "in a test it stops where it went wrong")]

mod differential;
mod lines;
mod scripts;
mod server;

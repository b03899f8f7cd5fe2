//! Daemons with `timer = "sorted_set"` against real servers.

#![allow(clippy::unwrap_used, reason = "in a test it stops where it went wrong")]

mod absence;
mod cancelling;
mod commands;
mod faults;
mod fleet;
mod load;
mod producers;
mod promises;
mod queue;
mod taking;

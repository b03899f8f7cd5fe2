//! The front door for Redis clients, on the ledger in memory.

mod access;
mod budgets;
mod connections;
pub mod door;
mod scheduling;
mod workers;

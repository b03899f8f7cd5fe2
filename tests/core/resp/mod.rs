//! The front door for Redis clients, on the ledger in memory.

mod connections;
mod door;
mod scheduling;
mod workers;

//! The RESP server for Redis clients, on the ledger in memory.

mod access;
mod budgets;
mod conditions;
mod connections;
mod fenced_claims;
mod permissions;
pub mod rig;
mod scans;
mod scheduling;
mod waiting_workers;
mod workers;

//! What every part of lapsed shares: tasks and their rules, the configuration, and the seams to the ledger and to the timer,
//! with their adapters in memory. Users of the library name the package `lapsed`, which exports what is stable of it.
#![forbid(unsafe_code)]
// The verbs of `rows` use rules of a row that the ledger in MySQL has as statements.
#![cfg_attr(not(feature = "rows"), allow(dead_code))]
#![cfg_attr(not(test), warn(clippy::unwrap_used))]

pub mod access;
mod alarms;
pub mod clock;
pub mod config;
pub mod format;
pub mod ledger;
pub mod task;
pub mod telemetry;
pub mod timer;
pub mod trace;

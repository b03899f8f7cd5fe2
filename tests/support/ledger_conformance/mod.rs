//! What every ledger must do, run against each of them. Names are rules.
//!
//! A rule is a function of a ledger, in the file of its topic, whose `rules!` lists it; a rule or topic that is left out
//! is never used, and the compiler says so. Each binary that has this module declares `rules!` before it: `core` makes a
//! test of each rule with the ledger in memory and one with the ledger in SQLite, `servers` one of each topic with MariaDB.

mod adopted_tasks;
mod adoption;
mod archive;
mod arming;
mod cancelling;
mod changes;
mod claims;
mod dead_letters;
mod documents;
mod history;
mod leases;
mod lists;
mod moving;
mod near_scans;
mod pauses;
mod progress;
mod pruning;
mod removed_keys;
pub mod rig;
mod same_due_time;
mod scans;
mod series;
mod series_changes;
mod settlements;
mod survey;
mod uniqueness;

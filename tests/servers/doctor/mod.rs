//! `lapsed doctor` against servers that are well, and against servers that are not.

mod delayed_sets;
mod installation;
mod ledger;
mod redis;
pub mod rig;
mod silence;
mod trials;

//! The whole daemon against real servers of its own, and what it promises when they fail.

mod adopting;
mod cancelling;
mod due;
mod exec;
mod fleets;
mod floods;
mod holding;
mod ledger_faults;
mod legacy;
mod pause_commands;
mod pausing;
mod php;
mod processes;
mod redis_faults;
mod rig;
mod sentinels;
mod sharing;
mod strangers;
mod transactions;
mod unadopted;
mod wire;
mod worker;

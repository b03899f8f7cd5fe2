//! The whole daemon against real servers of its own, and what it promises when they fail.

mod adopting;
mod cancelling;
mod cancelling_many;
mod due;
mod exec;
mod fleets;
mod floods;
mod horizon;
mod ledger_faults;
mod legacy;
mod php;
mod processes;
mod redis_faults;
mod rig;
mod sentinels;
mod sharing;
mod strangers;
mod transactions;
mod unadopted;
mod uniqueness;
mod wire;
mod worker;

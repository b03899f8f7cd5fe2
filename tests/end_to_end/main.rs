//! The whole daemon against real servers of its own, and what it promises when they fail.

mod adopting;
mod cancelling;
mod crashes;
mod due;
mod exec;
mod fleets;
mod floods;
mod ledger_faults;
mod legacy;
mod php;
mod processes;
mod recurring;
mod redis_faults;
mod rig;
mod sentinels;
mod sharing;
mod strangers;
mod transactions;
mod unadopted;
mod wire;
mod worker;

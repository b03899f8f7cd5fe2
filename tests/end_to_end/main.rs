//! The whole daemon against real servers of its own, and what it promises when they fail.

mod adopting;
mod around;
mod cancelling;
mod deliveries;
mod due;
mod envelopes;
mod exec;
mod fleets;
mod floods;
mod ledger_faults;
mod legacy;
mod php;
mod processes;
mod receiver;
mod redis_faults;
mod rig;
mod sentinels;
mod sharing;
mod strangers;
mod transactions;
mod unadopted;
mod webhooks;
mod webhooks_tls;
mod wire;
mod worker;
mod workers;

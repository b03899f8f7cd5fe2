//! Several daemons on one ledger, without any server: time moves only when nothing else can.

mod adapters;
mod adoption;
mod audits;
mod pruning;
mod pulling;
mod rig;
mod sharing;

//! What only the MySQL ledger can be asked: its statements, and other sessions' locks.

mod creation;
mod errors;
mod guards;
mod locks;
mod proxy;
mod rates;
mod refusals;
mod rig;
mod scans;
mod snippets;
mod statements;
mod survey;

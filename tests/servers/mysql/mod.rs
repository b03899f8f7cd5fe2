//! What only the MySQL ledger can be asked: its statements, and other sessions' locks.

mod adopting;
mod archive;
mod assumptions;
mod bounds;
mod charset;
mod creation;
mod documents;
mod errors;
mod guards;
mod links;
mod locks;
mod lost;
mod older_programs;
pub mod proxy;
mod rates;
mod recurring;
mod refusals;
mod rig;
mod scans;
mod sessions;
mod sizes;
mod snippets;
mod statements;
mod survey;

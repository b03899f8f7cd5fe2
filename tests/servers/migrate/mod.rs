//! `lapsed migrate`: creating the ledger's table, and adopting one that an older program has filled.

mod adopting;
mod database;
mod duplicates;
mod interruptions;
mod plans;
mod refusals;

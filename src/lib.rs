#![forbid(unsafe_code)]

pub mod ledger;
pub mod sandbox;

//! Pull workers in other languages, through the RESP server of a daemon in this process.

mod examples;
mod transactions;

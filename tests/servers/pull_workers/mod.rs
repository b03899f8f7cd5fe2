//! Pull workers in other languages, through the front door of a daemon in this process.

mod examples;
mod transactions;

//! What tests of more than one binary use.

pub mod snapshot;

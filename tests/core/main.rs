//! Everything that needs no server: pure parts, the engine on the ledger in memory, the rules of the sources.

/// Before the rules, which use its macro.
#[macro_use]
mod ledger_rules;

mod circles;
mod conditions;
mod engine;
mod error_pages;
mod evidence;
mod exports;
mod figures;
mod layers;
#[path = "../support/ledger_conformance/mod.rs"]
mod ledger_conformance;
mod links;
mod membership;
mod metrics;
mod middleware;
mod moving;
mod packages;
mod properties;
mod readme;
mod redis_model;
mod resp;
mod retention;
mod series;
mod settings;
mod source_files;
mod sqlite;
mod stats;
mod testing;
mod words;

/// What this binary uses of `tests/support`.
#[path = "../support"]
mod support {
    pub mod metrics;
    pub mod snapshot;
    pub mod wait;
}

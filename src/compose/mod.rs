//! The composition root of the library: the one place besides `main` that names concrete adapters.

#[cfg(feature = "engine")]
mod engine;
#[cfg(feature = "mysql")]
mod mysql;
#[cfg(any(feature = "mysql", feature = "sqlite"))]
mod producer;
#[cfg(feature = "sqlite")]
mod sqlite;

#[cfg(feature = "engine")]
pub use self::engine::{Adapters, in_memory};
#[cfg(any(feature = "mysql", feature = "sqlite"))]
#[doc(hidden)] // for the program
pub use self::producer::ledger_to_move;

#[cfg(all(not(feature = "mysql"), any(feature = "engine", feature = "sqlite")))]
fn not_in_this_build(ledger: &crate::config::LedgerConfig) -> crate::ConfigError {
    let feature = match ledger.sqlite_file() {
        Some(_) => "sqlite",
        None => "mysql",
    };
    let problem = format!("needs a build with the feature `{feature}`");
    crate::ConfigError::one("ledger.url", problem)
}

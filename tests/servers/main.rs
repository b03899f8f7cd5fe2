//! What needs a private Redis or MariaDB: adapters by themselves, and daemons end to end.

mod doctor;
mod end_to_end;
mod key_expiry;
mod ledger_conformance;
mod migrate;
mod mysql;
mod sandbox;
mod server_defaults;

//! The program as it is typed.

mod bench;
mod check_config;
mod options;
mod refusals;
mod sweep_command;

#[path = "../support/mod.rs"]
mod support;

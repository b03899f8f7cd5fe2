//! The program as it is typed.

mod backup;
mod bench;
mod check_config;
mod dev;
mod healthcheck;
mod options;
mod refusals;
mod soak;
mod sweep_command;
mod systemd_unit;
mod unwritable_log;

/// What this binary uses of `tests/support`.
#[path = "../support"]
mod support {
    pub mod not_tried;
    pub mod program;
    pub mod redis_commands;
    pub mod resp_wire;
    pub mod snapshot;
    pub mod wait;
}

//! What needs a private Redis or MariaDB: adapters by themselves, and daemons end to end.

/// Before the rules, which use its macro.
#[macro_use]
mod ledger_rules;

mod cluster;
mod coming_from;
mod dashboard;
mod doctor;
mod end_to_end;
mod failover;
mod faults;
mod galera;
mod group_replication;
mod hostile;
mod http_access;
mod http_api;
mod importing;
mod key_expiry;
#[path = "../support/ledger_conformance/mod.rs"]
mod ledger_conformance;
mod manifests;
mod migrate;
mod mysql;
mod pages;
mod prometheus;
mod pull_workers;
mod random_operations;
mod redis_model;
mod replicated;
mod resp_clients;
mod resp_differential;
mod sandbox;
mod server_defaults;
mod sorted_set;
mod timers;
mod wheel;

/// What this binary uses of `tests/support`.
#[path = "../support"]
mod support {
    pub mod certificate;
    pub mod daemon;
    pub mod faked_clock;
    pub mod file_scene;
    pub mod handlers;
    pub mod http_client;
    pub mod maria;
    pub mod metrics;
    pub mod not_tried;
    pub mod process;
    pub mod program;
    pub mod redis_commands;
    pub mod redis_stats;
    pub mod registry;
    pub mod resp_server;
    pub mod resp_wire;
    pub mod rig;
    pub mod scene;
    pub mod setup;
    pub mod shell;
    pub mod snapshot;
    pub mod snippet;
    pub mod tasks;
    pub mod tcp_proxy;
    pub mod wait;
}

//! The HTTP API of a daemon in this process: on an SQLite file, and some of it on MySQL.

mod batches;
mod bulk;
mod connections;
mod documented;
mod generated_client;
mod ledgers;
mod lists;
mod live;
mod masking;
mod pausing;
mod permissions;
mod raw;
mod rig;
mod scopes;
mod secrecy;
mod single_tasks;
mod stopping;
mod workers;

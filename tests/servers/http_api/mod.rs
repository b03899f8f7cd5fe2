//! The HTTP API of a daemon in this process: on an SQLite file, and some of it on MySQL.

mod batches;
mod bulk;
mod connections;
mod documented;
mod ledgers;
mod lists;
mod live;
mod pausing;
mod rig;
mod single_tasks;
mod workers;

#![doc = "placeholder"]
#![forbid(unsafe_code)]
#![cfg_attr(not(test), warn(clippy::unwrap_used))]

pub mod client;
pub mod clock;
pub mod compose;
pub mod config;
pub mod doctor;
pub mod engine;
pub mod handler;
pub mod http;
pub mod ledger;
pub mod redis;
pub mod sandbox;
pub mod task;
pub mod telemetry;
pub mod timer;

pub use client::{ClientError, IntoDue, Made, Task, TaskClient, Unarmed};
pub use config::{Config, ConfigError};
pub use engine::Engine;
pub use handler::{HandlerError, HandlerRegistry, TaskContext};
pub use ledger::mysql::{MysqlTask, TaskTransaction};
pub use task::{Due, TaskKey, UnixMs};

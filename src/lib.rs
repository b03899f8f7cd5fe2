#![doc = "placeholder"]
#![forbid(unsafe_code)]

pub mod client;
pub mod clock;
pub mod compose;
pub mod config;
pub mod engine;
pub mod handler;
pub mod ledger;
pub mod redis;
pub mod sandbox;
pub mod task;
pub mod telemetry;
pub mod timer;

pub use client::{ClientError, TaskClient};
pub use config::{Config, ConfigError};
pub use engine::Engine;
pub use handler::{HandlerError, HandlerRegistry, TaskContext};

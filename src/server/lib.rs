//! What a daemon answers on the network: the HTTP API with the dashboard, metrics and probes, the server for Redis clients, and
//! the alerts it sends.
#![forbid(unsafe_code)]
#![cfg_attr(not(test), warn(clippy::unwrap_used))]

pub mod alerts;
#[cfg(all(test, feature = "http", feature = "resp"))]
mod errors_page;
#[cfg(feature = "http")]
pub mod http;
// Each server uses a part.
#[cfg(any(feature = "http", feature = "resp"))]
#[cfg_attr(not(all(feature = "http", feature = "resp")), allow(dead_code))]
mod net;
#[cfg(feature = "resp")]
pub mod resp;
